"""Files that no network wrote: broken, lying, or made to hurt. Each maker writes one and says what must be said."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Maker = Callable[[Path], str]
HOSTILE: dict[str, Maker] = {}


def hostile(name: str) -> Callable[[Maker], Maker]:
    def keep(maker: Maker) -> Maker:
        HOSTILE[name] = maker
        return maker

    return keep


# JSON graphs: text, and the words of the refusal

GRAPH: dict[str, Any] = {"inputs": ["a"], "outputs": ["y"], "edges": [["a", "h", 1.0], ["h", "y", 1.0]]}


def changed(**parts: Any) -> str:
    return json.dumps({**GRAPH, **parts})


def edges(*more: Any) -> str:
    return changed(edges=[*GRAPH["edges"], *more])


TEXTS: dict[str, tuple[str, str]] = {
    "cycle": (edges(["h", "g", 1], ["g", "h", 1]), "cycle: [gh] -> [gh] -> [gh]"),
    "loop": (edges(["h", "h", 1]), "cycle: h -> h"),
    "into input": (edges(["h", "a", 1]), "edge h -> a enters an input"),
    "out of output": (edges(["y", "h", 1]), "edge y -> h leaves an output"),
    "useless": (edges(["a", "lost", 1]), "no path from input to output: lost .*--drop-useless"),
    "nan": (edges(["a", "y", float("nan")]), "not finite, the first on edge a -> y"),
    "infinite": (edges(["a", "y", 1]).replace("1]]", "1e999]]"), "not finite, the first on edge a -> y"),
    "huge integer": (edges(["a", "y", 10**400]), "not finite, the first on edge a -> y"),
    "twice": (edges(["a", "h", 2]), "edge a -> h appears twice"),
    "sigmoid": (changed(activation="sigmoid"), "unknown word 'sigmoid': homogeneous activations are relu"),
    "half weights": (edges(["a", "y"]), "edge 2: either all edges have weights or none"),
    "text weight": (edges(["a", "y", "one"]), "edge a -> y: its weight is a text, not a number"),
    "true weight": (edges(["a", "y", True]), "its weight is a truth value"),
    "short edge": (edges(["a"]), "edge 2 must be"),
    "number edge": (edges(3), "edge 2 must be"),
    "number name": (edges(["a", 3, 1]), "edge 2 must be"),
    "unknown key": (changed(weights=[]), "unknown key 'weights'"),
    "no outputs": ('{"inputs": ["a"], "edges": []}', "needs 'outputs'"),
    "empty outputs": (changed(outputs=[], edges=[]), "at least one input and one output"),
    "same name": (changed(inputs=["a", "a"]), "two nodes are called 'a'"),
    "input is output": (changed(inputs=["a", "y"]), "two nodes are called 'y'"),
    "names": (changed(inputs="a"), "'inputs' is a list of names"),
    "bias of nobody": (changed(biases={"z": 1.0}), "a bias at 'z'"),
    "bias of an input": (changed(biases={"a": 1.0}), "a bias at 'a'"),
    "biases as list": (changed(biases=["h"]), "'biases' must be a map"),
    "bias as text": (changed(biases={"h": "x"}), "the bias of 'h' is a text"),
    "activation of nobody": (changed(activation={"y": "relu"}), "no hidden node"),
    "activation number": (changed(activation=3), "one name or a map"),
    "hidden disagrees": (changed(hidden=["h", "g"]), "do not agree about 'g'"),
    "key twice": ('{"inputs": [], "inputs": []}', "'inputs' appears twice"),
    "a list": ("[]", "a graph is a JSON object, not a list"),
    "not json": ("{inputs", "not JSON"),
    "truncated": (changed()[:-9], "not JSON"),
    "deep": ("[" * 200_000, "nested too deeply"),
    "deep objects": ('{"a":' * 100_000, "nested too deeply"),
    "digits": (edges(["a", "y", 1]).replace("1]]", "1" * 100_000 + "]]"), "not JSON"),
}


def text_maker(text: str, words: str) -> Maker:
    def make(path: Path) -> str:
        path.write_text(text)
        return words

    return make


for _name, (_text, _words) in TEXTS.items():
    HOSTILE[f"{_name}.json"] = text_maker(_text, _words)


@hostile("bytes.json")
def not_text(path: Path) -> str:
    path.write_bytes(b'{"inputs": ["\xff\xfe"]}')
    return "not JSON"


@hostile("bomb.json")
def many_lists(path: Path) -> str:
    path.write_bytes(b'{"edges":[' + b"[]," * 20_000_000 + b"[]]}")  # 60 MB that would become 2 GB
    return "lists are too many for JSON"


# safetensors


def tensors_file(path: Path, header: Any, content: bytes = b"", length: int | None = None) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + content)


def entry(shape: list[int], begin: int, end: int, kind: str = "F64") -> dict[str, Any]:
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


@hostile("lying header.safetensors")
def lying_header(path: Path) -> str:
    tensors_file(path, {}, length=2**62)
    return "its header claims 4,611,686,018,427,387,904 bytes"


@hostile("long header.safetensors")
def long_header(path: Path) -> str:
    tensors_file(path, b"{}", length=300 * 2**20)
    os.truncate(path, 310 * 2**20)  # a sparse file: no space is used
    return "header takes .* bytes, more than"


@hostile("lying shape.safetensors")
def lying_shape(path: Path) -> str:
    tensors_file(path, {"0.weight": entry([10**6, 10**6], 0, 8 * 10**12)}, bytes(8))
    return r"for shape \(1000000, 1000000\) of F64, which does not fit"


@hostile("beyond the end.safetensors")
def beyond_the_end(path: Path) -> str:
    tensors_file(path, {"0.weight": entry([1000, 1000], 0, 8 * 10**6)}, bytes(64))
    return "does not fit"


@hostile("overlap.safetensors")
def overlap(path: Path) -> str:
    tensors_file(path, {"0.weight": entry([2, 2], 0, 32), "2.weight": entry([2, 2], 0, 32)}, bytes(32))
    return "does not fit"


@hostile("left over.safetensors")
def left_over(path: Path) -> str:
    tensors_file(path, {"0.weight": entry([2, 2], 0, 32)}, bytes(40))
    return "40 follow the header"


@hostile("odd entries.safetensors")
def odd_entries(path: Path) -> str:
    tensors_file(path, {"0.weight": {"dtype": "F64", "shape": [1.5], "data_offsets": [0, 8]}}, bytes(8))
    return "whole numbers"


@hostile("negative.safetensors")
def negative(path: Path) -> str:
    tensors_file(path, {"0.weight": entry([-1, -1], 0, 8)}, bytes(8))
    return "whole numbers"


@hostile("scales alone.safetensors")
def scales_alone(path: Path) -> str:
    tensors_file(path, {"0.weight": entry([2, 2], 0, 4, "F8_E8M0")}, bytes(4))
    return "has type F8_E8M0"


@hostile("nested header.safetensors")
def nested_header(path: Path) -> str:
    tensors_file(path, b'{"a":' * 100_000)
    return "header is not JSON"


@hostile("truncated.safetensors")
def short_tensors(path: Path) -> str:
    path.write_bytes(b"\x10\x00\x00")
    return "header claims"


@hostile("list header.safetensors")
def list_header(path: Path) -> str:
    tensors_file(path, b"[1]")
    return "not a JSON object"


# npz


def npy(shape: tuple[int, ...], content: bytes, kind: str = "<f8") -> bytes:
    """An array whose header need not fit its content."""
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape!r}}}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + content


@hostile("bomb.npz")
def zip_bomb(path: Path) -> str:
    block = npy((100 * 2**17,), bytes(100 * 2**20))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for number in range(6):
            archive.writestr(f"{number}.weight.npy", block)
    return "unpacked archive takes .* bytes, more than"


@hostile("lying sizes.npz")
def lying_sizes(path: Path) -> str:
    """A hundred packed megabytes that claim to be 208 bytes."""
    content = npy((10,), bytes(100 * 2**20))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("0.weight.npy", content)
    data = path.read_bytes()
    path.write_bytes(data.replace(struct.pack("<I", len(content)), struct.pack("<I", 128 + 80)))
    return "cannot be read: Bad CRC-32"


@hostile("lying header.npz")
def lying_array(path: Path) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("0.weight.npy", npy((10**6, 10**6), bytes(16)))
    return "claims shape 1000000×1000000"


@hostile("short array.npz")
def short_array(path: Path) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("0.weight.npy", npy((1000, 1000), bytes(16)))
    return "claims 8,000,000 bytes but has 16"


class Payload:
    """What a pickle runs when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch '{self.path}'",)


@hostile("pickle.npz")
def pickled_array(path: Path) -> str:
    np.savez(path, **{"0.weight": np.array([Payload(path.with_name("executed"))], dtype=object)})
    return "holds Python objects: they would have to be unpickled"


@hostile("words.npz")
def words_array(path: Path) -> str:
    np.savez(path, **{"0.weight": np.array([["a", "b"]])})
    return "array '0.weight' holds text: store labels as whole numbers"


@hostile("truncated.npz")
def truncated_zip(path: Path) -> str:
    np.savez(path, **{"0.weight": np.ones((3, 3))})
    path.write_bytes(path.read_bytes()[:-40])
    return "not a zip archive"


@hostile("corrupt.npz")
def corrupt_zip(path: Path) -> str:
    np.savez_compressed(path, **{"0.weight": np.arange(900.0).reshape(30, 30)})
    data = bytearray(path.read_bytes())
    data[300:340] = bytes(40)
    path.write_bytes(data)
    return "cannot be read"


@hostile("garbage.npz")
def garbage_zip(path: Path) -> str:
    path.write_bytes(b"garbage" * 100)
    return "not a zip archive"


@hostile("not an array.npz")
def no_array(path: Path) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("0.weight.npy", b"hello")
    return "cannot be read"


# State dicts and stored graphs, whatever the format


def arrays_maker(words: str, **arrays: Any) -> Maker:
    def make(path: Path) -> str:
        np.savez(path, **arrays)
        return words

    return make


def graph_arrays(**changes: Any) -> dict[str, Any]:
    names = np.frombuffer(b'["a","h","y"]', dtype=np.uint8)
    whole = {"names": names, "roles": np.arange(3), "tails": np.arange(2), "heads": np.arange(1, 3)}
    whole |= {"weights": np.ones(2), "slopes": np.zeros(3)}
    return {f"dag.{key}": value for key, value in {**whole, **changes}.items() if value is not None}


ONE = np.ones((2, 3))
for _name, _maker in {
    "convolution": arrays_maker("tensor '0.weight' of shape .*give --model", **{"0.weight": np.ones((2, 3, 3, 3))}),
    "norm": arrays_maker("tensor '1.weight' of shape .*give --model", **{"0.weight": ONE, "1.weight": np.ones(2)}),
    "counter": arrays_maker("'1.num_batches_tracked'", **{"0.weight": ONE, "1.num_batches_tracked": np.array(3)}),
    "lonely bias": arrays_maker("tensor '1.bias'", **{"0.weight": ONE, "1.bias": np.ones(2)}),
    "nothing": arrays_maker("holds no tensor"),
    "complex": arrays_maker("numbers of type complex128", **{"0.weight": ONE * 1j}),
    "truth": arrays_maker("numbers of type bool", **{"0.weight": ONE > 0}),
    "large integers": arrays_maker("beyond 2\\^53", **{"0.weight": np.full((1, 1), 2**60)}),
    "mismatch": arrays_maker(
        "layer 2 takes 4 inputs, but 0 before it gives 2", **{"0.weight": ONE, "2.weight": np.ones((1, 4))}
    ),
    "bias mismatch": arrays_maker(
        "layer 1: bias has shape \\(3,\\), expected \\(2,\\)", **{"0.weight": ONE, "0.bias": np.ones(3)}
    ),
    "nan": arrays_maker("layer 1: weight\\[0, 0\\] is not finite", **{"0.weight": ONE * np.nan}),
    "empty layer": arrays_maker("layer 1: a weight matrix has shape", **{"0.weight": np.ones((0, 3))}),
    "slopes": arrays_maker(
        "states 3 activations for 0 hidden layers", **{"0.weight": ONE, "lawful.slopes": np.zeros(3)}
    ),
    "bad slopes": arrays_maker("not a list of slopes", **{"0.weight": ONE, "lawful.slopes": np.zeros((1, 1))}),
    "graph tails": arrays_maker("'dag.tails' names a node that does not exist", **graph_arrays(tails=np.array([0, 9]))),
    "graph negative": arrays_maker("'dag.heads' names a node", **graph_arrays(heads=np.array([1, -1]))),
    "graph floats": arrays_maker("'dag.tails' has shape", **graph_arrays(tails=np.array([0.0, 1.0]))),
    "graph roles": arrays_maker("'dag.roles' has a role other", **graph_arrays(roles=np.array([0, 7, 2]))),
    "graph names": arrays_maker("'dag.names' is not a list of names", **graph_arrays(names=np.zeros(5, np.uint8))),
    "graph lacks": arrays_maker("lacks 'dag.heads'", **graph_arrays(heads=None)),
    "graph extra": arrays_maker("unknown entry 'dag.more'", **graph_arrays(more=np.ones(1))),
    "graph weights": arrays_maker("2 edges but 3 weights", **graph_arrays(weights=np.ones(3))),
    "graph slopes": arrays_maker("3 nodes, but 2 slopes", **graph_arrays(slopes=np.zeros(2))),
}.items():
    HOSTILE[f"{_name}.npz"] = _maker


# PyTorch


def pt_archive(path: Path, code: bytes, compression: int = zipfile.ZIP_STORED, **more: bytes) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("archive/data.pkl", code)
        archive.writestr("archive/version", b"3\n")
        for name, content in more.items():
            archive.writestr(f"archive/data/{name}", content)


@hostile("payload.pt")
def payload(path: Path) -> str:
    pt_archive(path, pickle.dumps({"0.weight": Payload(path.with_name("executed"))}, protocol=2))
    return "its pickle asks for 'posix system'"


@hostile("newer payload.pt")
def newer_payload(path: Path) -> str:
    pt_archive(path, pickle.dumps({"0.weight": Payload(path.with_name("executed"))}, protocol=4))
    return "its pickle uses STACK_GLOBAL"


@hostile("old payload.pt")
def old_payload(path: Path) -> str:
    path.write_bytes(pickle.dumps({"0.weight": Payload(path.with_name("executed"))}, protocol=2))
    return "is a pickle of Python objects"


def older_pt(path: Path, state: bytes) -> None:
    """A file as PyTorch 1.5 wrote it: a number that says so, a version, facts of the machine, the object."""
    start = (0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {}})
    path.write_bytes(b"".join(pickle.dumps(each, protocol=2) for each in start) + state)


@hostile("payload behind the older mark.pt")
def marked_payload(path: Path) -> str:
    older_pt(path, pickle.dumps({"0.weight": Payload(path.with_name("executed"))}, protocol=2))
    return "its pickle asks for"


@hostile("payload in the older list of keys.pt")
def payload_in_keys(path: Path) -> str:
    older_pt(path, pickle.dumps({}, 2) + pickle.dumps([Payload(path.with_name("executed"))], protocol=2))
    return "its pickle asks for"


@hostile("older and cut.pt")
def older_cut(path: Path) -> str:
    import torch

    torch.save({"0.weight": torch.zeros(100, 100)}, path, _use_new_zipfile_serialization=False)
    path.write_bytes(path.read_bytes()[:2_000])
    return "PyTorch cannot load it as weights"


@hostile("older with few pickles.pt")
def older_short(path: Path) -> str:
    older_pt(path, b"")
    return "its pickle is broken"


@hostile("older with a huge claim.pt")
def older_huge(path: Path) -> str:
    import torch

    torch.save({"0.weight": torch.zeros(70_001)}, path, _use_new_zipfile_serialization=False)
    small, huge = (b"J" + (70_001).to_bytes(4, "little"), b"J" + (2**31 - 1).to_bytes(4, "little"))
    path.write_bytes(path.read_bytes().replace(small, huge))
    return "PyTorch cannot load it as weights"


@hostile("bytearray.pt")
def allocating(path: Path) -> str:
    """`bytearray(10**11)`, which PyTorch's own list of harmless names allows."""
    pt_archive(path, b"\x80\x02cbuiltins\nbytearray\n\x8a\x05" + (10**11).to_bytes(5, "little") + b"\x85R.")
    return "its pickle asks for 'builtins bytearray'"


@hostile("packed.pt")
def packed(path: Path) -> str:
    pt_archive(path, b"\x80\x02}.", zipfile.ZIP_DEFLATED, **{"0": bytes(30 * 2**20)})
    return "packed or overlap"


@hostile("broken pickle.pt")
def broken_pickle(path: Path) -> str:
    pt_archive(path, b"\x80\x02\xff\xff")
    return "pickle is broken"


@hostile("list.pt")
def a_list(path: Path) -> str:
    pt_archive(path, b"\x80\x02].", **{"0": b""})
    return "holds a list, not a state dict"


@hostile("no pickle.pt")
def no_pickle(path: Path) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hello", "world")
    return "holds no state dict"


@hostile("expanded.pt")
def expanded(path: Path) -> str:
    """One stored number that claims to be ten thousand million."""
    import torch

    torch.save({"0.weight": torch.zeros(1).expand(10**5, 10**5)}, path)
    return "claims shape 100000×100000"


@hostile("whole module.pt")
def whole_module(path: Path) -> str:
    import torch

    torch.save(torch.nn.Linear(2, 2), path)
    return "holds a whole object of torch.nn.modules.linear.Linear, not a state dict: where you trust it, save"


@hostile("truncated.pt")
def truncated_pt(path: Path) -> str:
    import torch

    torch.save({"0.weight": torch.zeros(100, 100)}, path)
    path.write_bytes(path.read_bytes()[:20_000])
    return "not a zip archive"


@hostile("lying storage.pt")
def lying_storage(path: Path) -> str:
    """A pickle that says 2^28 numbers where the archive has six."""
    import torch

    buffer = io.BytesIO()
    torch.save({"0.weight": torch.ones(2, 3, dtype=torch.float64)}, buffer)
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(path, "w") as new:
        for member in old.infolist():
            content = old.read(member)
            if member.filename.endswith("data.pkl"):
                content = content.replace(b"K\x06", b"J\x00\x00\x00\x10")
            new.writestr(member.filename, content)
    return "PyTorch cannot load it as weights"


# ONNX


def onnx_model(**changes: Any) -> Any:
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.ones((3, 2)), "w")
    for key, value in changes.items():
        if key == "dims":
            del weight.dims[:]
            weight.dims.extend(value)
        elif key == "external":
            weight.ClearField("raw_data")
            weight.data_location = TensorProto.EXTERNAL
            for name, text in value.items():
                weight.external_data.add(key=name, value=text)
    ends = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["N", None]) for name in "xy"]
    ends[0].type.tensor_type.shape.dim[1].dim_value = 3
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    return helper.make_model(helper.make_graph([node], "g", ends[:1], ends[1:], [weight]))


def onnx_maker(words: str, **changes: Any) -> Maker:
    def make(path: Path) -> str:
        path.with_name("short.data").write_bytes(bytes(8))
        path.write_bytes(onnx_model(**changes).SerializeToString())
        return words

    return make


for _name, _maker in {
    "outside": onnx_maker("outside the folder: it is not followed", external={"location": "../../etc/passwd"}),
    "absolute": onnx_maker("outside the folder", external={"location": "/etc/passwd"}),
    "nowhere": onnx_maker("'missing.data', which does not exist", external={"location": "missing.data"}),
    "short data": onnx_maker("has no 48 bytes for it", external={"location": "short.data"}),
    "odd offset": onnx_maker("makes no sense", external={"location": "short.data", "offset": "many"}),
    "negative offset": onnx_maker("has no 48 bytes", external={"location": "short.data", "offset": "-8"}),
    "lying length": onnx_maker("has no 8 bytes", external={"location": "short.data", "length": "8"}),
    "lying dims": onnx_maker("claims shape 1000000×1000000", dims=[10**6, 10**6]),
    "negative dims": onnx_maker("negative size", dims=[-3, -2]),
    "short tensor": onnx_maker("tensor 'w' cannot be read", dims=[300, 200]),
}.items():
    HOSTILE[f"{_name}.onnx"] = _maker


def onnx_of(nodes: list[Any], functions: Sequence[Any] = (), **constants: Any) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy"]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    model = helper.make_model(graph, opset_imports=versions, functions=functions, ir_version=8)
    return bytes(model.SerializeToString())


def onnx_function(name: str, *calls: str) -> Any:
    """A function that calls others, one after the other."""
    from onnx import helper

    names = ["a", *(f"h{k}" for k in range(1, len(calls))), "b"]
    nodes = [
        helper.make_node(call, [names[k]], [names[k + 1]], domain="" if call == "Relu" else "local")
        for k, call in enumerate(calls)
    ]
    return helper.make_function(
        "local", name, ["a"], ["b"], nodes, [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    )


@hostile("recursion.onnx")
def recursive_function(path: Path) -> str:
    from onnx import helper

    functions = [onnx_function("F", "G"), onnx_function("G", "F")]
    path.write_bytes(onnx_of([helper.make_node("F", ["x"], ["y"], domain="local")], functions))
    return "its function 'F' calls itself"


@hostile("doubling.onnx")
def doubling_functions(path: Path) -> str:
    from onnx import helper

    functions = [onnx_function(f"F{k}", f"F{k + 1}", f"F{k + 1}") for k in range(40)] + [onnx_function("F40", "Relu")]
    path.write_bytes(onnx_of([helper.make_node("F0", ["x"], ["y"], domain="local")], functions))
    return "entries, more than the 20,000 that are read"


@hostile("doubling values.onnx")
def doubling_values(path: Path) -> str:
    from onnx import helper

    nodes = [helper.make_node("Concat", [f"t{k}"] * 5000, [f"t{k + 1}"], axis=1) for k in range(2)]
    nodes = [helper.make_node("Relu", ["x"], ["t0"]), *nodes, helper.make_node("ReduceSum", ["t2"], ["y"])]
    path.write_bytes(onnx_of(nodes))
    return r"\(Concat\) claims shape"


@hostile("two makers.onnx")
def two_makers(path: Path) -> str:
    from onnx import helper

    path.write_bytes(onnx_of([helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Sigmoid", ["x"], ["y"])],
                             w=np.eye(4, dtype=np.float32)))  # fmt: skip
    return "computes 'y', which exists already"


@hostile("symbolic link.onnx")
def symbolic_link(path: Path) -> str:
    path.with_name("link.data").symlink_to("/etc/passwd")
    path.write_bytes(onnx_model(external={"location": "link.data"}).SerializeToString())
    return "outside the folder"


@hostile("bomb.onnx")
def onnx_bomb(path: Path) -> str:
    content = b"\x0a\x00" * 7_000_000  # empty nodes: 14 MB that would become gigabytes
    path.write_bytes(b"\x3a" + bytes([len(content) >> shift & 127 | 128 for shift in (0, 7, 14)])
                     + bytes([len(content) >> 21]) + content)  # fmt: skip
    return "more than 200,000 entries"


@hostile("long structure.onnx")
def long_structure(path: Path) -> str:
    model = onnx_model()
    model.doc_string = "x" * (17 * 2**20)
    path.write_bytes(model.SerializeToString())
    return "the graph without its numbers takes"


@hostile("garbage.onnx")
def garbage_onnx(path: Path) -> str:
    path.write_bytes(b"garbage" * 100)
    return "not an ONNX file"


@hostile("truncated.onnx")
def truncated_onnx(path: Path) -> str:
    path.write_bytes(onnx_model().SerializeToString()[:-20])
    return "not an ONNX file, or a truncated one"


@hostile("empty graph.onnx")
def empty_graph(path: Path) -> str:
    path.write_bytes(b"\x08\x08")
    return "0 inputs and 0 outputs"


# Any ending


@hostile("too large.npz")
def too_large(path: Path) -> str:
    path.write_bytes(b"PK")
    os.truncate(path, 2**40)  # a sparse terabyte
    return "the file takes 1,099,511,627,776 bytes"


@hostile("empty.safetensors")
def empty(path: Path) -> str:
    path.touch()
    return "is empty"


@hostile("folder.onnx")
def folder(path: Path) -> str:
    path.mkdir()
    return "is a folder"


@hostile("pipe.json")
def pipe(path: Path) -> str:
    os.mkfifo(path)
    return "not a regular file"
