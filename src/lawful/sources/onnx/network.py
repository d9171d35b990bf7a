"""ONNX files that are no graph of scalar weights, opened as modules, checked, and written back.

Sizes that a file leaves open are the first of a few usual ones for which its graph can be read. What holds at one size
need not hold at another, so every reading says which was taken, and `--input` gives another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from lawful.errors import LawfulError, Unsupported
from lawful.formats.graphs import onnx_file
from lawful.formats.io.limits import check_numbers
from lawful.network.reading import Reading, TensorReading, assumed_in_training, rounded_inside
from lawful.program.domains.graph_reading import unrolled_edges
from lawful.program.frontends.onnx_weights import held_tensors
from lawful.program.operators.factory import ONNX_KINDS
from lawful.program.program import Program
from lawful.sources.modules.module_network import ModuleNetwork
from lawful.sources.onnx.module import OnnxModule, is_close, list_tensors
from lawful.sources.onnx.reader import fill_open_sizes, load_model

SAMPLES = 2  # for which a graph is tried
MAX_CHECKED = 5_000_000  # weights up to which a graph is compared with ONNX's own reference,
MAX_PRODUCTS = 5_000_000  # and products of its convolutions: the reference takes about a second for ten times as many
NEWER = 15  # the version from which that reference can be trusted: it has no older softmax or batch normalisation
MISUSED = ("is used in an unsupported way", "of no steps", "at this size")  # as a program's frontend says it
MIXED = "the first axis of its input counts no samples: what stands along it is mixed"
Size = tuple[int, ...]
Sizes = list[int | None]
Stated = Mapping[str, tuple[Sequence[int | None], str, Sequence[str]]]  # of inputs: sizes, kind, names of axes
# Usual sizes: sides of pictures (most networks halve them five times), lengths of sequences, samples of sound.
TRIES = ((64, 8), (48, 64), (32, 16), (224, 512), (320, 576), (640, 1024), (96, 16_000))
CHANNELS = 3
SCALARS = {"i": (16_000, 1, 0), "f": (1.0,), "b": (False,)}  # whole ones are rates of sound more often than not
PICTURE = 3  # axes of a sample, without the batch


class Mixed(Unsupported):
    """A graph in which the entries along the first axis are not samples."""


def load(path: Path, obstacle: str, input_shape: Size | None = None, glance: bool = False) -> ModuleNetwork:
    """The module of an ONNX file; `obstacle` is what prevents a graph of scalar weights."""
    return network_of(load_model(path), path.parent, obstacle, input_shape, glance)


def network_of(
    model: Any, folder: Path, obstacle: str, input_shape: Size | None = None, glance: bool = False
) -> ModuleNetwork:
    """The module of an ONNX model; tensors in other files lie in the folder.

    A `glance` is for whoever asks for its tensors and sizes alone.
    """
    module = OnnxModule(model, folder).eval()
    entries = {entry.name: entry for entry in model.graph.input}
    if not module.inputs:
        raise Unsupported("it has no input")
    stated = {name: _sizes(entries[name], input_shape) for name in module.inputs}
    first = {size[0] for size in stated.values() if size}
    module.fixed = first.copy().pop() or 0 if len(first) == 1 else 0
    # Inputs of one axis have no samples; nor has a graph whose inputs begin with axes of different meanings.
    module.bare = any(len(size) == 1 for size in stated.values()) or len(first) > 1
    chosen = _open(module, entries, stated, input_shape, glance)
    only = module.input_sizes[0] if len(module.input_sizes) == 1 else None
    reading = _reading(module, model).assuming(*chosen)
    module.reading = replace(reading, module=None, template=None)
    return ModuleNetwork(module, obstacle, reading, only if isinstance(only, tuple) else None)


def _open(
    module: OnnxModule, entries: Mapping[str, Any], stated: dict[str, Sizes], given: Size | None, glance: bool
) -> list[str]:
    """Try the module at the sizes that the file states, or else at usual ones; what was chosen, in words."""
    asked = {}
    for name, stated_size in stated.items():
        size = stated_size if module.bare else stated_size[1:]
        size = list(fill_open_sizes(size, given) if given is not None and len(stated) == 1 else size)
        if module.bare and len(stated) > 1 and None in size:  # the first open axis counts samples, wherever it stands
            size[size.index(None)] = 1
        axes = _axis_names(entries[name])
        asked[name] = (size, _kind(entries[name]), axes[len(axes) - len(size) :])
    errors: list[tuple[Mapping[str, Size], LawfulError]] = []
    is_open = any(None in size for size, _, _ in asked.values())
    chosen, second_best = None, None
    # The first size at which every input matters and all outputs are finite; else the best that can be read.
    for sizes, values in size_candidates(asked):
        try:
            examples = _try(module, entries, sizes, values, glance)
        except LawfulError as error:
            if isinstance(error, Mixed) and not module.bare:
                module.alone, module.bare, module.fixed = False, True, 0
                return [MIXED, *_open(module, entries, stated, given, glance)]
            errors.append((sizes, error))
            # The same words twice: no size will change that, unless it is an operator that cannot do with the size.
            if len(errors) > 1 and str(error) == str(errors[-2][1]) and not any(w in str(error) for w in MISUSED):
                break
            continue
        sees = not is_open or _sees_inputs(module)
        unseen = glance and any(is_costly(program.program) for program in module.programs.values())
        if not is_open or (sees and (unseen or _is_finite(module, examples))):
            chosen = sizes, values
            break
        # Masks that hide everything are NaN at any size, and an input may be one that nothing reads.
        second_best = (sizes, values) if second_best is None or not sees else second_best
    if chosen is None:
        if second_best is None:
            raise _refusal(errors)
        chosen = second_best
        examples = _try(module, entries, *chosen, glance)
    sizes, values = chosen
    # A false reading would make every answer false: the file is evaluated twice, by programs that share nothing.
    _check(module, module.graph.model, module.graph.folder, examples)
    module.input_sizes = tuple(_said(module, entries[name], sizes[name]) for name in module.inputs)
    return words_of_sizes(asked, sizes, values)


def _try(
    module: OnnxModule, entries: Mapping[str, Any], sizes: Mapping[str, Size], values: Mapping[str, Any], glance: bool
) -> list[torch.Tensor]:
    """Run the module at these sizes, on the samples that are returned."""
    module.values, module.programs = dict(values), {}
    examples = [_example(module, entries[name], sizes[name]) for name in module.inputs]
    _choose(module, examples, glance)
    return examples


def _sees_inputs(module: OnnxModule) -> bool:
    """Whether the outputs depend on every input at this size: pools may leave nothing of a short sequence."""
    for program in module.programs.values():
        seen, left = set(), list(program.program.outputs)
        while left:
            node = left.pop()
            if node not in seen:
                seen.add(node)
                left.extend(node.inputs)
        if sum(node.op == "input" for node in seen) < len(module.inputs):
            return False
    return True


def _is_finite(module: OnnxModule, examples: list[torch.Tensor]) -> bool:
    """Whether the outputs are finite at this size: the statistics of a sequence of one entry are not."""
    kind = next((parameter.dtype for parameter in module.parameters()), torch.float32)
    with torch.no_grad():
        outputs = list_tensors(
            module(*(example.to(kind) if example.is_floating_point() else example for example in examples))
        )
    return all(bool(output.isfinite().all()) for output in outputs)


def resize_file(path: Path, smaller: nn.Module, examples: Sequence[torch.Tensor]) -> bytes | None:
    """The file with the weights of a smaller module in its initializers; None if its nodes then compute something else.

    Both are compared on the examples: a node may have a size in it that went away.
    """
    model = load_model(path)
    try:
        content = refill_file(
            model,
            OnnxModule(model, path.parent),
            smaller.state_dict(),
            resize=True,
            sizes=getattr(smaller, "sizes", None),
        )
        twin = network_of(type(model).FromString(content), path.parent, "").module
        with torch.no_grad():
            same = is_close(twin(*examples), smaller(*examples), 1e-5)
    except (LawfulError, KeyError, RuntimeError):
        return None
    return content if same else None


def refill_file(
    model: Any,
    module: OnnxModule,
    weights: Mapping[str, torch.Tensor],
    *,
    resize: bool = False,
    sizes: Mapping[str, tuple[int, ...]] | None = None,
) -> bytes:
    """The file with other numbers in its initializers: the same nodes, names, types and ends.

    `resize` lets tensors change their sizes; `sizes` are new ones that nodes state, by their first outputs.
    """
    from onnx import helper, numpy_helper

    twin = type(model)()
    twin.CopyFrom(model)
    fresh = module.initializers(weights)
    for name, tensor in held_tensors(twin.graph):  # those of graphs inside nodes too: two branches may hold one each
        if name not in fresh:
            continue
        kind = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        array = np.ascontiguousarray(fresh[name].detach().cpu().double().numpy().astype(kind))
        if not np.isfinite(array.astype(np.float64)).all():
            raise LawfulError(f"{name} has a number that {kind} cannot hold")
        if tuple(array.shape) != tuple(tensor.dims) and not resize:
            raise Unsupported(f"{name} changed its size, and the nodes of the file are written for the old one")
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    # Older opsets state sizes in attributes of the node that makes a value.
    makers = {node.output[0]: node for node in twin.graph.node if node.output}
    for output, stated in (sizes or {}).items():
        _state(twin, makers[output], stated)
    if resize:
        del twin.graph.value_info[:]  # sizes between the layers may have changed, and say nothing else
    if sizes:
        read = {name for node in twin.graph.node for name in node.input} | {output.name for output in twin.graph.output}
        for tensor in [tensor for tensor in twin.graph.initializer if tensor.name not in read]:
            twin.graph.initializer.remove(tensor)
    return bytes(twin.SerializeToString(deterministic=True))


def _state(model: Any, node: Any, sizes: tuple[int, ...]) -> None:
    """Let a node state other sizes: older files do in an attribute."""
    from onnx import numpy_helper

    named = {attribute.name: attribute for attribute in node.attribute}
    if "split" in named:
        named["split"].ints[:] = sizes
        return
    for superseded in named.keys() & {"num_outputs", "allowzero"}:
        node.attribute.remove(named[superseded])
    name = f"{node.output[0]}.sizes"
    model.graph.initializer.append(numpy_helper.from_array(np.array(sizes, dtype=np.int64), name))
    node.input[1:] = [name]


def _said(module: OnnxModule, entry: Any, sample: Size | None) -> Size | str:
    return f"{','.join(map(str, sample or ()))}:int" if entry.name in module.graph.whole else tuple(sample or ())


def _sizes(entry: Any, given: Size | None) -> Sizes:
    if not entry.type.tensor_type.HasField("shape"):
        if given is None:
            raise Unsupported("its input size is unknown: give it without the batch, like --input 3,8,8")
        return [None, *given]
    dims = entry.type.tensor_type.shape.dim
    return [dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None for dim in dims]


def _axis_names(entry: Any) -> list[str]:
    return [dim.dim_param for dim in entry.type.tensor_type.shape.dim]


def _kind(entry: Any) -> str:
    kind = ONNX_KINDS.get(entry.type.tensor_type.elem_type)
    if kind not in ("f", "i", "b"):
        raise Unsupported(f"its input {entry.name[:60]!r} holds no numbers that are read")
    return kind


def _example(module: OnnxModule, entry: Any, sample: Size) -> torch.Tensor:
    """Random samples; token ids are the first few."""
    check_numbers("its input", (max(module.fixed, SAMPLES), *sample))
    generator = torch.Generator().manual_seed(0)
    if entry.name in module.graph.whole:
        return torch.randint(0, 2, (SAMPLES, *sample), generator=generator)
    return torch.randn((SAMPLES, *sample), generator=generator)


def _choose(module: OnnxModule, examples: list[torch.Tensor], glance: bool) -> None:
    """Run the samples, side by side if the graph can and gives the same; else one after another.

    Whoever takes a `glance` computes nothing with the module: a file that is written for one sample is run on one, and
    one that takes long on none.
    """
    kind = next((parameter.dtype for parameter in module.parameters()), torch.float32)
    batch = [example.to(kind) if example.is_floating_point() else example for example in examples]
    if not module.bare and module.fixed > 1:
        batch = [torch.cat([example] * module.fixed)[: module.fixed] for example in batch]
    elif glance and not module.bare and module.fixed:
        module.alone, batch = True, [example[:1] for example in batch]
    if glance and is_costly(module.program([example[0] if module.bare else example for example in batch])):
        return
    with torch.no_grad():
        if module.bare or (glance and module.fixed == 1):
            module(*batch)
        else:
            module.alone = not module.keeps_apart(batch)
            if module.alone and module.fixed != 1:
                raise Mixed("its samples are not kept apart")


def is_costly(program: Program) -> bool:
    """Whether its convolutions take long."""
    return unrolled_edges(program) > MAX_PRODUCTS


def _check(module: OnnxModule, model: Any, folder: Path, examples: list[torch.Tensor]) -> None:
    """Compare with ONNX's own reference implementation, where it can run."""
    if onnx_file.opset_of(model) < NEWER or sum(parameter.numel() for parameter in module.parameters()) > MAX_CHECKED:
        return
    if any(is_costly(program.program) for program in module.programs.values()):
        return
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    entries = {entry.name: entry for entry in model.graph.input}
    kinds = [helper.tensor_dtype_to_np_dtype(entries[name].type.tensor_type.elem_type) for name in module.inputs]
    count = module.fixed or len(examples[0])
    whole = [torch.cat([example] * count)[:count] for example in examples]
    samples = [example[0] if module.bare else example for example in whole]
    try:
        runner = ReferenceEvaluator(onnx_file.complete(model, folder))
        wanted = runner.run(list(module.graph.outputs), {
            name: sample.numpy().astype(kind) for name, sample, kind in zip(module.inputs, samples, kinds, strict=True)
        } | {name: value.astype(helper.tensor_dtype_to_np_dtype(entries[name].type.tensor_type.elem_type))
             for name, value in module.values.items()})  # fmt: skip
    except Exception:  # the reference has not every operator
        return
    precision = next((parameter.dtype for parameter in module.parameters()), torch.float32)
    with torch.no_grad():
        computed = module(*(example.to(precision) if example.is_floating_point() else example for example in whole))
    computed = tuple(output[0] for output in list_tensors(computed)) if module.bare else computed
    half = any(parameter.dtype in (torch.float16, torch.bfloat16) for parameter in module.parameters())
    if not is_close(computed, tuple(torch.as_tensor(np.array(output)) for output in wanted), 2e-2 if half else 1e-3):
        raise Unsupported("its reading as a module gave another function than ONNX's reference: a defect, or odd types")


def _reading(module: OnnxModule, model: Any) -> Reading:
    state = dict(module.state_dict())
    layers = tuple(
        TensorReading(name, str(state[path].dtype).removeprefix("torch."), tuple(state[path].shape))
        for path, name in module.names.items()
    )
    assumed = rounded_inside(layers, module.casts)
    if module.fixed > 1:
        assumed = (*assumed, f"the first axis of the input, of size {module.fixed}, counts samples")
    assumed = (*assumed, *module.assumptions)
    weights = module.graph.weights
    training = assumed_in_training(weights.shared, ["BatchNormalization"] if weights.statistics else [])
    return Reading(
        "onnx", layers, assumed, module.graph.left_out, in_training_only=training, module=module, template=model
    )


def size_candidates(
    inputs: Stated,
) -> Iterator[tuple[dict[str, Size], dict[str, Any]]]:
    """Sizes of the inputs, and values of those that are one number, in the order in which they are tried.

    An input is its stated sizes without the batch (None for an open one), its kind (`f`, `i` or `b`), and the names of
    its axes: axes of one name have one size.

    >>> next(size_candidates({"x": ((None, None, None), "f", ("", "", "")), "ids": ((None,), "i", ("n",))}))
    ({'x': (3, 64, 64), 'ids': (8,)}, {})
    """
    seen = []
    for number, (side, length) in enumerate(TRIES):
        named: dict[str, int] = {}
        sizes: dict[str, Size] = {}
        values: dict[str, Any] = {}
        for name, (stated, kind, axes) in inputs.items():
            if not stated:
                usual = SCALARS[kind]
                values[name] = np.asarray(usual[number % len(usual)])
                continue
            candidates = []
            for axis, size in enumerate(stated):
                picture = len(stated) == PICTURE and kind == "f"
                free = CHANNELS if picture and axis == 0 else side if picture else length
                if size is None and axes[axis]:
                    size = named.setdefault(axes[axis], free)
                candidates.append(free if size is None else size)
            sizes[name] = tuple(candidates)
        key = (sizes, {name: value.item() for name, value in values.items()})
        if key not in seen:
            seen.append(key)
            yield sizes, values


def words_of_sizes(inputs: Stated, sizes: Mapping[str, Size], values: Any) -> list[str]:
    """What was taken where the file leaves it open.

    >>> words_of_sizes({"x": ((3, None), "f", ("", "")), "r": ((), "i", ())}, {"x": (3, 64)}, {"r": np.asarray(16_000)})
    ["the open size of its input 'x' is taken as 3×64: --input gives another", "its input 'r' is taken as 16000"]
    """
    words = []
    for name, (stated, _, _) in inputs.items():
        if name in values:
            words.append(f"its input {name[:60]!r} is taken as {values[name].item()}")
        elif None in stated:
            taken = "×".join(map(str, sizes[name]))
            words.append(f"the open size of its input {name[:60]!r} is taken as {taken}: --input gives another")
    return words


def _refusal(errors: Sequence[tuple[Mapping[str, Size], LawfulError]]) -> LawfulError:
    """What is said where none of the sizes could be read."""
    sizes, error = errors[0]
    tried = ";".join(",".join(map(str, size)) for size in sizes.values())
    if len({str(error) for _, error in errors}) == 1:  # no size would change it
        return error
    return type(error)(f"{error} (at the size {tried}, and others: its input sizes are open, give --input)")
