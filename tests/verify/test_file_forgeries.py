"""Certificates about files, forged by machine: whatever is accepted is compared with another evaluation of both files.

Copies are carried out again in fractions, networks of smooth units and lists of steps in mpmath with 60 digits.
"""

from __future__ import annotations

import base64
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from forging import REFUSED, Proof
from safetensors.numpy import save_file
from torch import nn

from lawful.api.binding import need_model
from lawful.checkpoints.compare.certificate import list_program
from lawful.checkpoints.read_architecture import read_architecture
from lawful.cli.checkpoints import FloatTensors
from lawful.errors import CertificateError, Unsupported
from lawful.verify import verify
from lawful.verify.checkpoints.safetensors import read_checkpoint
from lawful.verify.core.checkpoint import tensors_digest
from lawful.verify.core.finding import Verified
from lawful.verify.relational.program import program_digest

Tensors = dict[str, Any]


def packed(values: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f8").tobytes()).decode()


def checked(kind: str, first: Tensors, second: Tensors, **parts: Any) -> Verified:
    about = [tensors_digest(first), tensors_digest(second)]
    return verify(json.dumps({"kind": kind, "version": 2, "about": about} | parts), first, second)


# Copies

NOTHING: dict[str, Any] = {"folds": [], "matrices": [], "frames": [], "shifts": [], "moved": []}


def copied(first: Tensors, second: Tensors, **parts: Any) -> Verified:
    return checked("checkpoint-copy", first, second, **NOTHING | {"tensors": [[n, n, n] for n in first]} | parts)


def frame(tensor: str, dims: list[int], factors: Any, source: list[int] | None = None, **more: Any) -> dict[str, Any]:
    rows = list(range(len(factors))) if source is None else source
    return {"tensor": tensor, "dims": dims, "source": rows, "factor": packed(factors), "blocks": []} | more


@pytest.mark.parametrize("large", [1e308, 2.0**900])
def test_numbers_far_below_the_largest_are_not_called_equal(large: float) -> None:
    """Divided by the largest number of their tensor they are 0 in doubles: so are all others of that size."""
    small = 2.0**-1074 * large
    first = {"w": np.array([large, 0.25 * small, 0.3 * small])}
    second = {"w": np.array([large, 0.125 * small, -0.3 * small])}
    with pytest.raises(CertificateError, match="too far apart"):
        copied(first, second)
    assert copied(first, first, moved=["w"]).facts["moved_only"] == 3


def two_layers(rename: str = "") -> tuple[Tensors, Tensors, Proof]:
    """W2 relu(W1 x) with W1 and W2 taken for each other in both files: rows of the one, columns of the other moved."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Linear(4, 4, bias=False))
    read = read_architecture(module.eval(), "4")
    assert read.program is not None
    order = [1, 2, 3, 0]
    one, two = (weight.double().numpy() for weight in module.state_dict().values())
    first, second = ({f"{rename}{place}.weight": weight for place, weight in zip((0, 2), pair, strict=True)}
                     for pair in ((one, two), (one[:, order], two[order])))  # fmt: skip
    inverse = [order.index(k) for k in range(4)]
    frames = [frame(f"{place}.weight", [dim], [1.0] * 4, inverse) for dim, place in enumerate((0, 2))]
    sources = [[f"{place}.weight", *[f"{rename}{2 - place}.weight"] * 2] for place in (0, 2)]
    program = list_program(read.program, list(read.state()), (), read.state())
    return first, second, {"tensors": sources, "frames": frames, "moved": [name for name, *_ in sources],
                           "program": program}  # fmt: skip


def test_tensors_that_are_exchanged_in_both_files_are_another_function() -> None:
    """Both files are x -> W2 relu(W1 x), 0.6 apart; what was proved is that W1 relu(W2 x) is one function."""
    first, second, parts = two_layers()
    with pytest.raises(CertificateError, match="plays the part of another one"):
        copied(first, second, **parts)
    rows = [[name, *[{"parts": [name], "axis": 0, "transposed": False, "rows": [1, 0, 2, 3]}] * 2] for name in first]
    with pytest.raises(CertificateError, match="plays the part of another one"):
        copied(first, first, **parts | {"tensors": rows, "frames": [], "moved": []})


def test_names_that_the_program_does_not_have_are_the_certificates(tmp_path: Path) -> None:
    """Where both files name their tensors otherwise, the sentence says which is which, and a model says it better."""
    first, second, parts = two_layers("net.")
    assert (
        "by other names here, as the certificate says: 0.weight = net.2.weight"
        in copied(first, second, **parts).statement
    )
    files = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    for file, tensors in zip(files, (first, second), strict=True):
        save_file({name: np.ascontiguousarray(values, dtype="f4") for name, values in tensors.items()}, file)
    (tmp_path / "nets.py").write_text(
        "from torch import nn\n\n\ndef two():\n"
        "    return nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Linear(4, 4, bias=False))\n"
    )
    proof = json.dumps({"kind": "checkpoint-copy"} | NOTHING | parts)
    facts = {"program": program_digest(parts["program"])}
    with pytest.raises(CertificateError, match="takes tensors of the files for others"):
        need_model(proof.encode(), facts, files, f"{tmp_path / 'nets.py'}:two", "4")
    right = [[name, *[f"net.{name}"] * 2] for name, *_ in parts["tensors"]]
    need_model(json.dumps(parts | {"tensors": right}).encode(), facts, files, f"{tmp_path / 'nets.py'}:two", "4")


@pytest.mark.parametrize("read", [read_checkpoint, FloatTensors])
def test_whole_numbers_that_differ_are_named(read: Callable[[Path], Any], tmp_path: Path) -> None:
    """Files with one digest, whose modules read their inputs in different orders."""
    files = [tmp_path / name for name in ("a.safetensors", "b.safetensors", "c.safetensors")]
    weight = np.arange(6.0, dtype="f4").reshape(2, 3)
    for file, order in zip(files, ([0, 1, 2], [0, 1, 2], [1, 0, 2]), strict=True):
        save_file({"w": weight, "order": np.array(order)}, file)
    one, two, three = map(read, files)
    assert "whole numbers" not in copied(one, two, moved=["w"], tensors=[["w", "w", "w"]]).statement
    said = copied(one, three, moved=["w"], tensors=[["w", "w", "w"]]).statement
    assert "Not checked: that the difference in order, of whole numbers, has no effect" in said


def test_a_factor_that_makes_a_number_vanish_is_refused() -> None:
    first = {"w": np.array([[1.0, 0.0], [1.0, 1.0]])}
    second = {"w": np.array([[2.0**600, 2.0**-200], [1.0, 1.0]])}
    factors = frame("w", [0], [2.0**-600, 1.0])
    with pytest.raises(CertificateError, match=r"too far apart|more than rounding"):
        copied(first, second, frames=[factors, frame("w", [1], [1.0, 2.0**-900])])


def test_products_that_are_rounded_are_not_exact() -> None:
    """0.1 times a double is no double: the numbers are near, and the sentence must not say more."""
    second = {"w": np.random.default_rng(0).normal(size=(3, 3))}
    first = {"w": 0.1 * second["w"]}
    factors = [frame("w", [0], [0.1] * 3)]
    with pytest.raises(CertificateError, match="moved only is another one"):
        copied(first, second, frames=factors, moved=["w"])
    assert "exactly" not in copied(first, second, frames=factors).statement
    assert copied(first, {"w": -first["w"]}, frames=[frame("w", [0], [-1.0] * 3)], moved=["w"]).facts["moved_only"] == 9


def test_factors_whose_squares_overflow_explain_nothing() -> None:
    first = {"w": np.ones((3, 3)), "v": np.ones((3, 3))}
    with pytest.raises(CertificateError, match="more than rounding"):
        copied(first, first, frames=[frame("w", [0], [1.0, 1.0, 2.0**600])], moved=["v"])


class Folder(dict[str, Any]):
    """The tensors of a folder, and what its `config.json` says."""

    settings: dict[str, Any] | None = None


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"sliding_window": None}, {}),  # none there; the default, which may be some, here
        ({"text": {"hidden_act": "relu"}}, {"text.hidden_act": "relu"}),  # a key that looks like a path
        ({"rope_scaling": {}}, {"rope_scaling": None}),
        ({f"a{k}": k for k in range(60)} | {"window": 3}, {}),  # more than a sentence lists
    ],
)
def test_settings_that_one_folder_lacks_are_said_to_be_unchecked(one: Any, two: Any) -> None:
    folders = [Folder(w=np.arange(4.0)) for _ in range(2)]
    for folder, settings in zip(folders, (one, two), strict=True):
        folder.settings = settings
    try:
        statement = copied(folders[0], folders[1], moved=["w"]).statement
    except CertificateError:
        return
    assert "the same settings" not in statement
    assert "which only one folder states" in statement
    assert "window" not in one or "51 more" in statement


DTYPES: tuple[Callable[[Any], Any], ...] = (
    lambda x: x, lambda x: x.astype(np.float32).astype(np.float64), lambda x: x.astype(np.float16).astype(np.float64),
    lambda x: (np.ascontiguousarray(x, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32).astype(np.float64),
)  # fmt: skip
SIZES = [0.0, -0.0, 1.0, -1.0, 3.0, 1e-3, 1e300, -1e300, 1e-300, 5e-324, 1e-8, 65504.0, 6e-8, 1e38]


def random_copy(rng: random.Random) -> tuple[Tensors, Tensors, dict[str, Any]]:
    """Two files, of which one is made of the other, changed a little, or not what is listed."""
    draw = np.random.default_rng(rng.randrange(2**32))
    second: Tensors = {}
    first: Tensors = {}
    parts: dict[str, Any] = {"frames": [], "shifts": [], "moved": []}
    for name in "abc"[: rng.randint(1, 3)]:
        shape = rng.choice([(2,), (3,), (2, 3), (3, 3), (2, 2, 2), (1, 4), (0, 3), (4, 1), ()])
        values: Any = draw.normal(size=shape)
        if rng.random() < 0.4:
            for place in np.ndindex(*shape):
                values[place] = rng.choice([values[place], values[place], rng.choice(SIZES)])
        store = rng.choice(DTYPES)
        with np.errstate(over="ignore", invalid="ignore"):
            values = np.nan_to_num(store(values), posinf=1.0, neginf=-1.0)
        made = values.copy()
        for axis in rng.sample(range(len(shape)), rng.randint(0, len(shape))):
            count = shape[axis]
            source = rng.sample(range(count), count)
            factors = [rng.choice([1.0, 1.0, -1.0, 2.0, 0.1, -3.0, 2.0**-600, 2.0**500]) for _ in range(count)]
            laid = [-1 if d == axis else 1 for d in range(len(shape))]
            with np.errstate(over="ignore", under="ignore"):
                made = np.take(made, source, axis) * np.array(factors).reshape(laid)
            if rng.random() < 0.1 and count > 1:
                source = source[1:] + source[:1]
            parts["frames"].append(frame(name, [axis], factors, source))
        if rng.random() < 0.15 and shape:
            constant = np.array(rng.choice([1.0, 1e9, 1e-9])).reshape([1] * len(shape))
            made = made + constant
            parts["shifts"].append({"tensor": name, "shape": [1] * len(shape), "values": packed(constant)})
        if rng.random() < 0.5:
            with np.errstate(over="ignore", invalid="ignore"):
                made = np.asarray(rng.choice(DTYPES)(made))
        if rng.random() < 0.5 and made.size:
            place = tuple(rng.randrange(count) for count in shape)
            made = np.array(made)
            made[place] = rng.choice([made[place] * (1 + 10.0 ** rng.randint(-16, 0)), rng.choice(SIZES), -made[place]])
        second[name], first[name] = values, made
        parts["moved"] += [name] * (rng.random() < 0.6)
    if rng.random() < 0.2 and len(first) > 1 and rng.choice("ab") in first:
        first["a"], first["b"] = first["b"], first["a"]
    return first, second, parts


def terms_in_fractions(name: str, tensor: Any, parts: dict[str, Any]) -> Iterator[tuple[Any, Fraction, Fraction]]:
    """What is listed, carried out exactly: places of a tensor of A, with the number that B has there then."""
    frames = [each for each in parts["frames"] if each["tensor"] == name]
    shift = sum(
        (Fraction(float(np.frombuffer(base64.b64decode(each["values"]))[0]))
         for each in parts["shifts"] if each["tensor"] == name), Fraction(0),
    )  # fmt: skip
    for place in np.ndindex(*tensor.shape):
        origin, factor = list(place), Fraction(1)
        for each in frames:
            (axis,) = each["dims"]
            factor *= Fraction(float(np.frombuffer(base64.b64decode(each["factor"]))[place[axis]]))
            origin[axis] = each["source"][place[axis]]
        yield place, factor * Fraction(float(tensor[tuple(origin)])), shift


@pytest.mark.parametrize("seed", range(8))
def test_no_forged_copy_says_what_is_false(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    seen = 0
    for _ in range(250):
        first, second, parts = random_copy(rng)
        try:
            facts = copied(first, second, **parts).facts
        except REFUSED:
            continue
        seen += 1
        equal, worst = 0, Fraction(0)
        for name, tensor in second.items():
            entries = list(terms_in_fractions(name, tensor, parts))
            gaps = [abs(Fraction(float(first[name][place])) - value - shift) for place, value, shift in entries]
            if name in parts["moved"] and not any(gaps):
                equal += len(gaps)
                continue
            for gap, (place, value, shift) in zip(gaps, entries, strict=True):
                size = max(abs(value), abs(Fraction(float(first[name][place])))) + abs(shift)
                worst = max(worst, gap / size if size else Fraction(0))
        assert facts["moved_only"] <= equal
        assert worst <= Fraction(facts["entry"]) or (worst == 0 and facts["moved_only"] == facts["numbers"])
    assert seen > 20


# Networks of smooth units

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "tanh": mpmath.tanh, "sigmoid": lambda z: 1 / (1 + mpmath.exp(-z)), "gelu": lambda z: z * mpmath.ncdf(z),
}  # fmt: skip
Layers = list[tuple[list[list[float]], list[float]]]


def random_layers(rng: random.Random, widths: list[int]) -> Layers:
    """With equal, opposite and zero units."""
    found: Layers = []
    choice = rng.choice([[1.0, -1.0, 2.0, 0.0], [1.0, -1.0, 0.5, 3.0], [0.3, -0.7, 1.1, 5e-324, 1e-9]])
    for inputs, outputs in itertools.pairwise(widths):
        rows = [[rng.choice(choice) for _ in range(inputs)] for _ in range(outputs)]
        biases = [rng.choice([*choice, 0.25, 0.75]) for _ in range(outputs)]
        if outputs > 1 and rng.random() < 0.4:
            sign = rng.choice([1, 1, -1])
            rows[1], biases[1] = [sign * weight for weight in rows[0]], sign * biases[0]
        found.append((rows, biases))
    return found


def relative_of(rng: random.Random, layers: Layers, activation: str) -> Layers:
    """The same function by permutations and signs, or nearly so."""
    found: Layers = [([list(row) for row in rows], list(biases)) for rows, biases in layers]
    for (rows, biases), (after, shift) in itertools.pairwise(found):
        order = rng.sample(range(len(rows)), len(rows))
        rows[:], biases[:] = [rows[k] for k in order], [biases[k] for k in order]
        for row in after:
            row[:] = [row[k] for k in order]
        for unit in range(len(rows)):
            if activation != "gelu" and rng.random() < 0.4:
                rows[unit], biases[unit] = [-weight for weight in rows[unit]], -biases[unit]
                for place, row in enumerate(after):
                    shift[place] += row[unit] * (activation == "sigmoid")
                    row[unit] = -row[unit]
    if rng.random() < 0.5:
        rows, biases = rng.choice(found)
        place = rng.randrange(len(rows))
        if rng.random() < 0.5:
            biases[place] = rng.choice([-biases[place], 0.0, biases[place] + 0.5, biases[place] * (1 + 2.0**-52)])
        else:
            column = rng.randrange(len(rows[place]))
            rows[place][column] = rng.choice([-rows[place][column], 0.0, rows[place][column] + 1.0])
    return found


def at(layers: Layers, activation: str, x: list[Any]) -> list[Any]:
    for depth, (rows, biases) in enumerate(layers):
        sums = [sum((w * v for w, v in zip(map(mpmath.mpf, row), x, strict=True)), mpmath.mpf(b))
                for row, b in zip(rows, biases, strict=True)]  # fmt: skip
        x = sums if depth == len(layers) - 1 else [ACTIVATIONS[activation](z) for z in sums]
    return x


def file_of(layers: Layers, rng: random.Random, prefix: str) -> tuple[Tensors, list[dict[str, Any]]]:
    file: Tensors = {}
    reading = []
    for depth, (rows, biases) in enumerate(layers):
        axis = rng.choice([1, 1, 0])
        weight, bias = f"{prefix}w{depth}", f"{prefix}b{depth}" if any(biases) or rng.random() < 0.5 else None
        file[weight] = np.array(rows) if axis else np.array(rows).T
        if bias is not None:
            file[bias] = np.array(biases)
        reading.append({"weight": weight, "axis": axis, "bias": bias})
    return file, reading


@pytest.mark.parametrize("seed", range(6))
def test_no_forged_verdict_about_smooth_networks_is_false(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    accepted = {"equal": 0, "different": 0}
    with mpmath.workdps(400):
        for _ in range(80):
            activation = rng.choice(sorted(ACTIVATIONS))
            widths = [rng.randint(1, 2), *(rng.randint(1, 3) for _ in range(rng.choice([1, 1, 2]))), rng.randint(1, 2)]
            layers = random_layers(rng, widths)
            other = relative_of(rng, layers, activation)
            (first, one), (second, two) = file_of(layers, rng, ""), file_of(other, rng, rng.choice(["", "other."]))
            for verdict in accepted:
                parts = {"activation": activation, "layers": [one, two], "verdict": verdict}
                try:
                    checked("smooth-pair", first, second, **parts)
                except REFUSED:
                    continue
                accepted[verdict] += 1
                gap = mpmath.mpf(0)
                for _ in range(4):
                    x = [mpmath.mpf(rng.gauss(0, 1)) for _ in range(widths[0])]
                    pairs = zip(at(layers, activation, x), at(other, activation, x), strict=True)
                    gap = max([gap, *(abs(a - b) for a, b in pairs)])
                assert (gap < mpmath.mpf(10) ** -380) == (verdict == "equal"), (layers, other, activation)
    assert min(accepted.values()) > 5


@pytest.mark.parametrize("names", [["w0", "b0", "w1", None], ["w0", "b0", "w1", "b0"]])
def test_a_smooth_network_uses_every_tensor_once(names: list[Any]) -> None:
    file = {"w0": np.ones((2, 2)), "b0": np.ones(2), "w1": np.ones((2, 2)), "b1": np.ones(2)}
    other = file | {"b1": np.zeros(2)}
    layers = [{"weight": names[k], "axis": 1, "bias": names[k + 1]} for k in (0, 2)]
    with pytest.raises(CertificateError, match="used twice, or not at all"):
        checked("smooth-pair", file, other, activation="tanh", layers=[layers, layers], verdict="equal")


# Outputs that differ

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": mpmath.exp, "erf": mpmath.erf, "reciprocal": lambda x: 1 / x, "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "log": mpmath.log, "sin": mpmath.sin, "cos": mpmath.cos,
}  # fmt: skip


def random_steps(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """A list of steps that ends in one number."""
    steps: list[dict[str, Any]] = [{"kind": "parameters", "length": count}, {"kind": "input", "length": 0}]
    lengths = [count, 0]

    def add(step: dict[str, Any], length: int) -> None:
        steps.append(step)
        lengths.append(length)

    for _ in range(rng.randint(2, 7)):
        kind = rng.choice(["take", "add", "mul", "matmul", "sum", "choose", "constant", *FUNCTIONS])
        source = rng.choice([k for k, length in enumerate(lengths) if length])
        length = lengths[source]
        alike = [k for k, other in enumerate(lengths) if other == length]
        match kind:
            case "take":
                more = rng.sample(range(len(steps)), rng.randint(0, 1))
                size = length + sum(lengths[k] for k in more)
                indices = [rng.randrange(-1, size) for _ in range(rng.randint(1, 4))]
                add({"kind": "take", "sources": [source, *more], "indices": indices}, len(indices))
            case "constant":
                values = [rng.choice([0.0, 1.0, -2.0, 0.1, 1e9, 5e-324]) for _ in range(length)]
                add({"kind": kind, "values": values}, length)
            case "matmul":
                inner = rng.choice([k for k in range(1, length + 1) if length % k == 0])
                sizes = [1, length // inner, inner, length // inner]
                add({"kind": kind, "sources": [source, source], "sizes": sizes}, (length // inner) ** 2)
            case "sum":
                run = rng.choice([k for k in range(1, length + 1) if length % k == 0])
                add({"kind": kind, "sources": [source], "sizes": [run]}, length // run)
            case _:
                arity = 2 if kind in ("add", "mul") else 3 if kind == "choose" else 1
                add({"kind": kind, "sources": [rng.choice(alike) for _ in range(arity)]}, length)
    add({"kind": "sum", "sources": [len(steps) - 1], "sizes": [lengths[-1]]}, 1)
    add({"kind": "take", "sources": [len(steps) - 1, 0], "indices": [0]}, 1)
    return steps


def _defined(function: Callable[[Any], Any], x: Any) -> Any:
    """Nothing where it is complex or has a pole."""
    if abs(x) > 1000:
        raise OverflowError("mpmath would take minutes")
    try:
        found = mpmath.nan if mpmath.isnan(x) else function(x)
    except (ZeroDivisionError, ValueError):
        return mpmath.nan
    return found if isinstance(found, mpmath.mpf) and mpmath.isfinite(found) else mpmath.nan


def carried_out(steps: list[dict[str, Any]], values: list[float]) -> Any:
    made: list[list[Any]] = []
    for step in steps:
        given = [made[source] for source in step.get("sources", [])]
        match step["kind"]:
            case "parameters":
                found = [mpmath.mpf(value) for value in values]
            case "input":
                found = []
            case "constant":
                found = [mpmath.mpf(value) for value in step["values"]]
            case "take":
                joined = [*(value for each in given for value in each), mpmath.mpf(0)]
                found = [joined[k] for k in step["indices"]]
            case "add" | "mul":
                found = [a + b if step["kind"] == "add" else a * b for a, b in zip(*given, strict=True)]
            case "choose":
                found = [s if mpmath.isnan(s) else a if s > 0 else b for s, a, b in zip(*given, strict=True)]
            case "sum":
                (run,) = step["sizes"]
                found = [mpmath.fsum(given[0][k : k + run]) for k in range(0, len(given[0]), run)]
            case "matmul":
                n, p, q, r = step["sizes"]
                found = [mpmath.fsum(given[0][(b * p + i) * q + k] * given[1][(b * q + k) * r + j] for k in range(q))
                         for b in range(n) for i in range(p) for j in range(r)]  # fmt: skip
            case kind:
                found = [_defined(FUNCTIONS[kind], value) for value in given[0]]
        made.append(found)
    return made[-1][0]


@pytest.mark.parametrize("seed", range(6))
def test_outputs_are_never_further_apart_in_words(seed: int) -> None:
    """Gaps stated a little too large, and steps whose numbers have poles, roots of negative numbers, or grow large."""
    rng = random.Random(seed)  # noqa: S311
    accepted = 0
    with mpmath.workdps(700):
        for _ in range(60):
            sizes = [0.0, 1.0, -1.0, 0.5, 2.0, 1e-300, 30.0]
            files = [{"a": np.array([rng.choice(sizes) for _ in range(4)])} for _ in range(2)]
            lists = [random_steps(rng, 4) for _ in range(rng.choice([1, 1, 2]))]
            pairs = zip((lists[0], lists[-1]), files, strict=True)
            try:
                one, two = (carried_out(steps, file["a"].tolist()) for steps, file in pairs)
            except OverflowError:
                continue
            gap = abs(one - two)
            near = float(gap) * rng.choice([1.0, 1 + 2.0**-52, 1 - 2.0**-52, 2.0, 0.5])
            stated = near if 0 < near < 1e300 and rng.random() < 0.7 else 10.0 ** rng.choice([-300, -9, -1, 0, 3])
            try:
                checked("outputs-differ", files[0], files[1], steps=lists, tensors=[["a"], ["a"]], apart=stated)
            except REFUSED:
                continue
            accepted += 1
            assert gap > stated, (lists, gap, stated)
    assert accepted > 10


def test_balls_that_never_tell_are_given_up_soon() -> None:
    """A million sines that cancel, at one precision after the other, from a certificate of a few lines."""
    files = [{"a": np.linspace(1.0, 2.0, 1400) + k / 2} for k in range(2)]
    steps = [{"kind": "parameters", "length": 1400}, {"kind": "input", "length": 0},
             {"kind": "matmul", "sources": [0, 0], "sizes": [1, 1400, 1, 1400]}, {"kind": "sin", "sources": [2]},
             {"kind": "sum", "sources": [3], "sizes": [1400**2]}, {"kind": "constant", "values": [-1.0]},
             {"kind": "mul", "sources": [4, 5]}, {"kind": "take", "sources": [0], "indices": [0]},
             {"kind": "add", "sources": [4, 6]}, {"kind": "add", "sources": [7, 8]}]  # fmt: skip
    start = time.process_time()
    with pytest.raises(Unsupported, match="would take about"):
        checked("outputs-differ", files[0], files[1], steps=[steps], tensors=[["a"], ["a"]], apart=0.5)
    assert time.process_time() - start < 10
