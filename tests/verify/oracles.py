"""Is what a verified certificate states true? Asked again of the library that makes answers, or of plain sampling."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from entries_oracle import components_hold, path_holds
from forging import Proof, result_of
from program_oracle import reaches

from lawful.conservation import HeavyBall, Metric, count_laws
from lawful.fibers import Domain, Stack, cells
from lawful.fibers.deep.identifiability import identifiable
from lawful.invariant_set import Apart, Balance, WeightPath, components, find_path
from lawful.invariant_set.singular.existence import exact_balance, singular_points
from lawful.network import Architecture, Dag, Mlp, Role
from lawful.papers.leaky import LeakyResNet, TeacherTask, energies, trace
from lawful.papers.truncation.separation import CommonPoint, Frame, Hyperplane, ObtusePair, separate, separate_aligned
from lawful.pruning.removable.decide import decide_neurons
from lawful.verify import Verified

SLACK = 1e-9  # of floating point, beside numbers of size 1


def dag_of(network: Proof) -> Dag:
    """The network in a certificate."""
    roles = network["roles"]
    hidden = iter(network["slopes"])
    slopes = [next(hidden) if role == Role.HIDDEN else 1.0 for role in roles]
    names = [f"n{number}" for number in range(len(roles))]
    tails, heads = zip(*network["edges"], strict=True) if network["edges"] else ((), ())
    return Dag(names, roles, tails, heads, network["weights"], slopes)


def mlp_of(network: Proof) -> Mlp:
    """The layered network in a certificate."""
    return Mlp(network["weights"], network["biases"], network["slopes"])


def _components(proof: Proof, found: Verified) -> bool:
    if "tensors" in proof["network"]:
        return components_hold(proof, found)
    balance = Balance(tuple(proof["balance"]), proof["denominator"], proof["tolerance"])
    return components(dag_of(proof["network"]), balance).log2_components == found.facts["log2_components"]


def _laws(proof: Proof, found: Verified) -> bool:
    flow: Any = None
    if proof["flow"]["name"] == "momentum":
        flow = HeavyBall(proof["flow"]["friction"], proof["flow"]["autonomous"])
    if proof["flow"]["name"] == "metric":
        flow = Metric(np.array(proof["flow"]["diagonal"]))
    data = proof["inputs"] if proof["level"] == "data" else None
    count = count_laws(dag_of(proof["network"]), level=proof["level"], data=data, loss=proof["loss"], flow=flow)
    return count.laws == found.facts["laws"]


def _pruning(proof: Proof, found: Verified) -> bool:
    before, after = dag_of(proof["original"]), dag_of(result_of(proof))
    low, high = proof["box"] or ([None] * len(before.inputs), [None] * len(before.inputs))
    ends = [[end if value is None else value for value in corner] for corner, end in ((low, -100.0), (high, 100.0))]
    points = np.random.default_rng(0).uniform(ends[0], ends[1], (200, len(before.inputs)))
    change = np.abs(before.evaluate(points) - after.evaluate(points)).max()
    facts = found.facts
    return bool(change <= float(facts["max_output_change_bound"] + facts["rounding_bound"]) + SLACK)


def _channels(proof: Proof, _: Verified) -> bool:
    """Both programs run on random signals of five places; one that does not fit them says nothing false."""
    rng = np.random.default_rng(0)
    signals = [rng.normal(size=(step["channels"], 5)) for step in proof["program"] if step["kind"] == "input"]
    gained = {str(place): name for place, name in proof["added"]}
    try:
        before = channels_run(proof["program"], proof["before"], {}, signals)
        after = channels_run(proof["program"], proof["after"], gained, signals)
    except ValueError:
        return True
    pairs = [(before[at], after[at]) for at in proof["results"]]
    return all(one.shape == two.shape and np.allclose(one, two, atol=1e-4) for one, two in pairs)


def channels_run(program: list[Proof], tensors: Proof, gained: dict[str, str], signals: list[Any]) -> list[Any]:
    """The values of a program of channels: kernels slide along the places without a border, or with one of zeros."""

    def of(name: str | None) -> Any:
        if name is None:
            return None
        given = tensors[name]
        kind = np.float32 if given["dtype"] == "float32" else np.float64
        return np.frombuffer(base64.b64decode(given["data"]), kind).reshape(given["shape"]).astype(float)

    found: list[Any] = []
    inputs = iter(signals)
    for at, step in enumerate(program):
        sources = [found[source] for source in step["sources"]]
        names = step["tensors"]
        match step["kind"]:
            case "input":
                value = next(inputs)
            case "layer" | "depthwise":
                weight, bias = of(names["weight"]), of(names["bias"] or gained.get(str(at)))
                kernel = weight.reshape(*weight.shape[:2], -1)
                source = np.pad(sources[0], ((0, 0), (1, 1))) if step["padded"] else sources[0]
                windows = np.lib.stride_tricks.sliding_window_view(source, kernel.shape[2], axis=1)
                form = "oik,ilk->ol" if step["kind"] == "layer" else "oik,olk->ol"
                value = np.einsum(form, kernel, windows) + (0 if bias is None else bias[:, None])
            case "norm":
                gain, shift, mean, spread = (of(names[role]) for role in ("weight", "bias", "mean", "variance"))
                value = (sources[0] - mean[:, None]) / np.sqrt(spread + step["arguments"][0])[:, None]
                value = value * (1 if gain is None else gain[:, None]) + (0 if shift is None else shift[:, None])
            case "same" | "bend":
                functions = {"relu": lambda x: np.maximum(x, 0), "tanh": np.tanh, "abs": np.abs, "neg": np.negative}
                if step["function"] not in functions:
                    raise ValueError
                value = functions[step["function"]](sources[0])
            case "flat":
                value = sources[0].reshape(-1, 1)
                if step["width"] != sources[0].shape[1]:
                    raise ValueError
            case "add" | "sub" | "mul":
                value = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[step["kind"]](*sources)
            case "cat":
                value = np.concatenate(sources)
            case "copy" | "pool":
                value = sources[0]
            case _:
                raise ValueError
        found.append(value)
    return found


def _same(proof: Proof, found: Verified) -> bool:
    first, second = (mlp_of(network) for network in proof["networks"])
    if found.facts["verdict"] == "different":
        point = np.array([found.facts["input"]])
        apart = [[float(Fraction(value)) for value in side] for side in found.facts["outputs"]]
        close = np.allclose(apart, [first.evaluate(point)[0], second.evaluate(point)[0]])
        return close and found.facts["outputs"][0] != found.facts["outputs"][1]
    low, high = proof["box"] or ([-3.0] * first.widths[0], [3.0] * first.widths[0])
    points = np.random.default_rng(0).uniform(low, high, (200, first.widths[0]))
    outputs = first.evaluate(points)
    size = 1 + np.abs(outputs).max()
    allowed = float(found.facts["within"][1]) * 1e3
    return bool(np.abs(outputs - second.evaluate(points)).max() <= (SLACK + allowed) * size)


def _distance(proof: Proof, found: Verified) -> bool:
    first, second = (mlp_of(network) for network in proof["networks"])
    low, high = np.array([[float(Fraction(end)) for end in side] for side in proof["box"]]).T
    points = np.random.default_rng(0).uniform(low, high, (300, len(low)))
    if "near" in proof:
        near, radius = np.array(proof["near"]["samples"]), float(Fraction(proof["near"]["radius"]))
        points = near[np.arange(300) % len(near)] + np.random.default_rng(0).uniform(-radius, radius, points.shape)
        points = np.clip(points, low, high)
    order = {"inf": np.inf, "1": 1, "2": 2}[proof["norm"]]

    def apart(batch: Any) -> Any:
        return np.linalg.norm((second.evaluate(batch) - first.evaluate(batch))[:, proof["outputs"]], order, axis=1)

    size = 1 + max(np.abs(network.evaluate(points)).max() for network in (first, second))
    fine = "upper" not in found.facts or apart(points).max() <= float(found.facts["upper"]) + SLACK * size
    if "lower" in found.facts:
        fine = fine and apart(np.array([proof["lower"]["input"]]))[0] >= float(found.facts["lower"]) - SLACK * size
    return bool(fine)


def _monotone(proof: Proof, found: Verified) -> bool:
    network = mlp_of(proof["network"])
    low, high = np.array([[float(Fraction(end)) for end in side] for side in proof["box"]]).T
    if proof["inputs"] is not None:
        before, after = network.evaluate(proof["inputs"])
        step = (after - before)[found.facts["output"]] * (1 if found.facts["input"] in proof["rising"] else -1)
        return bool(step < SLACK * np.abs(before).max())
    rng = np.random.default_rng(0)
    for at in proof["rising"] + proof["falling"]:
        points = rng.uniform(low, high, (500, len(low)))
        more = points.copy()
        more[:, at] = rng.uniform(points[:, at], high[at])
        steps = (network.evaluate(more) - network.evaluate(points))[:, proof["outputs"]]
        if (steps * (1 if at in proof["rising"] else -1) < -SLACK * (1 + np.abs(steps))).any():
            return False
    return True


def _specification(proof: Proof, found: Verified) -> bool:
    network = unpacked(proof["network"])
    for region in proof["regions"]:
        low, high = np.array([[float(Fraction(end)) for end in side] for side in region["box"]]).T
        points = np.random.default_rng(0).uniform(low, high, (500, len(low)))
        room = -SLACK
        if proof["input"] is not None:
            points, room = np.array([proof["input"]], dtype=float), SLACK
        outputs = network.evaluate(points)
        inside = np.zeros(len(points), dtype=bool)
        for case in region["forbidden"]:
            held = ((low - SLACK <= points) & (points <= high + SLACK)).all(axis=1)
            for space in case:
                total, size = np.zeros(len(points)), 1.0
                for key, values in (("outputs", outputs), ("inputs", points)):
                    for place, factor in space[key]:
                        total = total + float(Fraction(factor)) * values[:, place]
                        size += abs(float(Fraction(factor))) * np.abs(values[:, place]).max()
                held &= total <= float(Fraction(space["bound"])) + room * size
            inside |= held
        if inside.any():
            return proof["input"] is not None
    return proof["input"] is None


def unpacked(network: Proof) -> Mlp | Dag:
    """The network in a certificate whose layers are packed."""
    if "roles" in network:
        return dag_of(network)

    def table(text: str, *shape: int) -> np.ndarray[Any, Any]:
        return np.frombuffer(zlib.decompress(base64.b64decode(text)), "<f8").reshape(shape)

    layers = network["layers"]
    return Mlp(
        [table(each["weights"], *each["shape"]) for each in layers],
        [None if each["bias"] is None else table(each["bias"], each["shape"][0]) for each in layers],
        network["slopes"],
    )


def _singular(proof: Proof, found: Verified) -> bool:
    dag = dag_of(proof["network"])
    return singular_points(dag, exact_balance(dag)).exist is found.facts["exist"]


def _flow(proof: Proof, found: Verified) -> bool:
    dag = dag_of(proof["network"] | {"weights": proof["theta"][0]})
    for theta, (low, high) in zip(proof["theta"], proof["losses"], strict=True):
        outputs = torch.tensor(dag.with_theta(theta).evaluate(proof["x"]))
        if proof["loss"] == "ce":
            value = torch.nn.functional.cross_entropy(outputs, torch.tensor(proof["y"]))
        else:
            value = torch.nn.functional.mse_loss(outputs, torch.tensor(proof["y"], dtype=torch.float64))
        if not low - SLACK <= float(value) <= high + SLACK:
            return False
    balances = (dag.hidden_incidence @ (np.array(proof["theta"]) ** 2).T).T
    shares = np.exp(-2 * proof["decay"] * np.array(proof["times"]))[:, None]
    return bool(np.abs(balances - shares * balances[0]).max() <= found.facts["drift"] + SLACK)


def _geodesic(proof: Proof, found: Verified) -> bool:
    network = LeakyResNet(proof["weights"], proof["effective_depth"], proof["steps"], softness=proof["softness"])
    reading = energies(trace(network, TeacherTask(proof["inputs"], proof["targets"]), proof["ridge"]))
    ends = [(reading.stationarity, found.facts["stationarity"])]
    ends += list(zip(np.asarray(reading.rank).tolist(), found.facts["ranks"], strict=True))
    return all(low - 1e-6 <= value <= high + 1e-6 for value, (low, high) in ends)


def _separation(proof: Proof, found: Verified) -> bool:
    points, labels = np.array(proof["points"], dtype=float), np.array(proof["labels"])
    for number, kind in enumerate(found.facts["answers"]):
        sides = points[labels == number], points[labels != number]
        answer = separate(*sides) if kind in ("hyperplane", "common point") else separate_aligned(*sides)
        wrong = {"hyperplane": CommonPoint, "common point": Hyperplane, "frame": ObtusePair, "obtuse pair": Frame}
        if kind in wrong and isinstance(answer, wrong[kind]):
            return False
    return True


def _path(proof: Proof, found: Verified) -> bool:
    if "tensors" in proof["start"]:
        return path_holds(proof, found)
    ends = dag_of(proof["start"]), dag_of(proof["stop"])
    if found.facts["joined"]:
        return isinstance(find_path(*ends, tolerance=found.facts["drift"]), WeightPath)
    return isinstance(find_path(*ends, tolerance=0), Apart)


def _rebalance(proof: Proof, found: Verified) -> bool:
    before, after = dag_of(proof["before"]), dag_of(proof["after"])
    points = np.random.default_rng(0).normal(size=(100, len(before.inputs)))
    outputs = before.evaluate(points)
    close = (
        np.abs(outputs - after.evaluate(points)).max() <= (SLACK + 10 * found.facts["rounding"]) * np.abs(outputs).max()
    )
    gaps = [abs(float(c) - asked) for c, asked in zip(Balance.of(after).fractions, found.facts["target"], strict=True)]
    kept = [gap for place, gap in enumerate(gaps) if place not in found.facts["except"]]
    return bool(close and max(kept, default=0.0) <= found.facts["residual"] + SLACK)


def _laws_of_module(proof: Proof, found: Verified) -> bool:
    """Fields and brackets of the program itself leave room for no more laws than stated."""
    return reaches(proof, found.facts["parameters"] - found.facts["laws"])


def _laws_by_theorem(proof: Proof, found: Verified) -> bool:
    """The formula, at smaller sizes where laws are counted."""
    n, r, m = (max(1, round(width / 20)) for width in proof["widths"])
    network = Architecture.parse(f"{n}-{r}-{m} {'linear' if proof['slope'] == 1 else 'relu'}")
    small = count_laws(network).laws
    rank, whole = min(n + m, r), min(proof["widths"][0] + proof["widths"][2], proof["widths"][1])
    if proof["slope"] != 1:
        return small == r and found.facts["laws"] == proof["widths"][1]
    formula = rank * (2 * r + 1 - rank) // 2
    return small == formula and found.facts["laws"] == whole * (2 * proof["widths"][1] + 1 - whole) // 2


def _identifiable(proof: Proof, found: Verified) -> bool:
    """The maker decides alike; of other parameters, the outputs are the same."""
    network = mlp_of(proof["network"])
    answer = identifiable(network).identifiable
    if answer is not None and answer is not found.facts["identifiable"]:
        return False
    if found.facts["identifiable"]:
        return True
    points = 3 * np.random.default_rng(0).normal(size=(200, network.widths[0]))
    outputs = network.evaluate(points)
    for twin in proof.get("twins", [proof]):
        rows = [np.array([[float(Fraction(entry)) for entry in row] for row in layer]) for layer in twin["other"]]
        other = Mlp([layer[:, :-1] for layer in rows], [layer[:, -1] for layer in rows], network.slopes)
        if not np.abs(outputs - other.evaluate(points)).max() <= SLACK * (1 + np.abs(outputs).max()):
            return False
    return True


def _regions(proof: Proof, found: Verified) -> bool:
    """At least as many patterns are seen by sampling as a lower bound, and the maker counts as many."""
    network = mlp_of(proof["network"])
    box = None if proof["box"] is None else Domain(*(np.array(corner) for corner in proof["box"]))
    cells_of = sum(1 for _ in cells(Stack.of(network), box))
    return cells_of == found.facts["regions"]


def _removable(proof: Proof, found: Verified) -> bool:
    """The makers' own decision, which shares no code with the check, never says the opposite."""
    network = Mlp(**proof["network"])
    answers = {(each.layer, each.neuron): each.removable for each in decide_neurons(network)}
    stated = {**dict.fromkeys(found.facts["needed"], False), **dict.fromkeys(found.facts["removable"], True)}
    return all(answers[place] in (None, answer) for place, answer in stated.items())


ORACLES: dict[str, Callable[[Proof, Verified], bool]] = {
    "components": _components,
    "laws": _laws,
    "laws-of-module": _laws_of_module,
    "laws-by-theorem": _laws_by_theorem,
    "identifiable": _identifiable,
    "regions": _regions,
    "removable": _removable,
    "pruning": _pruning,
    "channel-pruning": _channels,
    "same": _same,
    "distance": _distance,
    "specification": _specification,
    "monotone": _monotone,
    "singular": _singular,
    "flow": _flow,
    "geodesic": _geodesic,
    "truncation-separation": _separation,
    "path": _path,
    "rebalance": _rebalance,
}


def is_true(proof: Proof, found: Verified) -> bool:
    """Whether the statement holds, asked elsewhere."""
    return ORACLES[proof["kind"]](proof, found)
