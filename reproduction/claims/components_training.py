"""Claims about training across and inside components (P0 Figures 2d, 8 and 9)."""

from __future__ import annotations

import gzip
import math
import os
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lawful.errors import LawfulError
from lawful.figure import Figure, Panel, Series
from lawful.invariant_set import Balance, components
from lawful.invariant_set.balance import balance
from lawful.network import Architecture, Dag, Mlp, Role
from lawful.types import Floats
from reproduction.claim import Erratum, Outcome, Size, claim
from reproduction.claims.descent import Loss, dag_gradient, descend, logistic, squared
from reproduction.claims.extremes import largest, smallest


def toy(theta_e: float) -> Dag:
    """The DAG of Figure 2d: `c = (θ_e² − 6, 1, 3)`, neuron 4 the out-bottleneck, its output weight positive."""
    names = ("x1", "x2", "2", "3", "4", "5")
    roles = [Role.INPUT, Role.INPUT, Role.HIDDEN, Role.HIDDEN, Role.HIDDEN, Role.OUTPUT]
    root = math.sqrt(3)
    return Dag(names, roles, [0, 2, 2, 1, 3, 4], [2, 3, 4, 3, 4, 5], [theta_e, root, root, 0.5, 1.5, 1.5])


@claim(
    "p0-toy-dag",
    "Section 3.2, Figure 2d",
    "the toy DAG disconnects below theta_e = sqrt 2: from theta_e = 1 training cannot learn -(x1 + x2), "
    "from sqrt 3 it does",
    erratum=Erratum(
        "the balance of T = {2, 3, 4} is θ_e² − 4",
        "θ_e² − 2, which is what puts the threshold at √2",
        "sum of c = (θ_e² − 6, 1, 3) in exact arithmetic, and the threshold found by bisection",
    ),
    size=Size("the paper's graph, 4000 steps", "the paper's graph, 20,000 steps", "the same graph"),
    criterion="ours: learned is a loss below 1e-3; blocked is a loss never below the best of outputs above 0",
)
def toy_dag(full: bool) -> Outcome:
    """Find the threshold by bisection, the sum in exact arithmetic, and train from both sides of it."""
    low, high = 1.0, 2.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (low, middle) if components(toy(middle)).connected else (middle, high)
    exact = sum(Balance.given(toy(1.0), [Fraction(1) - 6, 1, 3]).fractions)  # θ_e = 1
    sums = {theta: float(balance(toy(theta)).sum()) for theta in (1.0, math.sqrt(3))}
    ours = all(abs(total - (theta**2 - 2)) < 1e-12 for theta, total in sums.items()) and exact == 1 - 2
    printed = all(abs(total - (theta**2 - 4)) < 1e-12 for theta, total in sums.items()) and exact == 1 - 4
    rng = np.random.default_rng(0)
    inputs = rng.uniform(0, 1, (100, 2))
    targets = -inputs.sum(axis=1, keepdims=True)
    steps, rate = (20_000, 2e-3) if full else (4000, 5e-3)
    runs = {name: _train_toy(theta, inputs, targets, rate, steps) for name, theta in _TOY_STARTS}
    floor = float((targets**2).mean())  # the best that outputs ≥ 0 can do
    blocked, free = runs["blocked"], runs["free"]
    holds = (
        ours
        and abs(high - math.sqrt(2)) < 1e-9
        and bool((blocked[1] > 0).all())
        and blocked[0].min() >= floor - 1e-9
        and free[0][-1] < 1e-3
        and free[1][-1] < 0
    )
    measured = {
        "threshold": high,
        "sum_over_T_at_1": sums[1.0],
        "final_loss_from_1": blocked[0][-1],
        "best_loss_with_outputs_above_0": floor,
        "least_output_weight_from_1": blocked[1].min(),
        "barrier": components(toy(1.0)).locked[0].barrier,
        "final_loss_from_sqrt_3": free[0][-1],
        "output_weight_from_sqrt_3": free[1][-1],
    }
    return Outcome(holds, measured, printed, _toy_figure(runs))


_TOY_STARTS = (("blocked", 1.0), ("free", math.sqrt(3)))


def _train_toy(theta_e: float, inputs: Floats, targets: Floats, rate: float, steps: int) -> tuple[Floats, Floats]:
    dag = toy(theta_e)
    theta = dag.theta.copy()
    losses, outputs = np.empty(steps), np.empty(steps)
    for step in range(steps):
        losses[step], slope = dag_gradient(dag, theta, inputs, targets, squared)
        outputs[step] = theta[5]
        theta = theta - rate * slope
    return losses, outputs


def _toy_figure(runs: dict[str, tuple[Floats, Floats]]) -> Figure:
    labels = {"blocked": "θ_e = 1", "free": "θ_e = √3"}
    loss = Panel([Series(run[0], label=labels[name]) for name, run in runs.items()], "loss", "step", "loss", log_y=True)
    weight = Panel(
        [Series(run[1], label=labels[name]) for name, run in runs.items()],
        "weight 4 -> 5",
        "step",
        "θ",
        horizontal=(0.0, 1.0),
    )
    caption = (
        "P0 Figure 2d: from θ_e = 1 the output weight stays above its barrier (up to step size), so the loss stays."
    )
    return Figure(caption, (loss, weight))


# Figures 8 and 9: four initialisations that differ in the last layer only


@dataclass(frozen=True)
class Four:
    """Losses and last weights of the four runs, by (sign of c, sign of the output weights)."""

    losses: dict[str, Floats]
    flipped: dict[str, int]
    locked: dict[str, int]
    drift: float


def four_runs(
    base: Mlp,
    inner: float,
    large: float,
    small: float,
    inputs: Floats,
    targets: Floats,
    rate: float,
    steps: int,
    loss: Loss = squared,
) -> Four:
    """Train from output weights `±large` (c < 0) and `±small` (c > 0); `inner` scales the weights before them."""
    matrices = [*base.weights[:-2], inner * base.weights[-2]]
    losses, flipped, locked, drift = {}, {}, {}, 0.0
    for balance_name, size in (("c<0", large), ("c>0", small)):
        for sign_name, sign in (("+", 1.0), ("-", -1.0)):
            name = f"{balance_name}, {sign_name}"
            start = Mlp([*matrices, np.full(base.weights[-1].shape, sign * size)])
            losses[name], end = descend(start, inputs, targets, loss, rate, steps)
            flipped[name] = int((np.sign(end.weights[-1]) != sign).sum())
            locked[name] = components(start).log2_components
            drift = largest(drift, float(np.abs(balance(end) - balance(start)).max()))
    return Four(losses, flipped, locked, drift)


def _outcome(
    four: Four, floor: float, learned: float, caption: str, data: dict[str, object], stand_in: str | None = None
) -> Outcome:
    """Only negative balance with negative signs may fail: it stays at the floor, the others go below `learned`."""
    bad = "c<0, -"
    ends = {name: float(losses[-1]) for name, losses in four.losses.items()}
    holds = (
        four.losses[bad].min() >= floor - 1e-9
        and four.flipped[bad] == 0
        and four.flipped["c<0, +"] == 0
        and four.flipped["c>0, -"] > 0
        and all(end < learned * floor for name, end in ends.items() if name != bad)
    )
    measured = data | {
        "final_loss": ends,
        "best_loss_with_outputs_below_0": floor,
        "output_weights_that_changed_sign": four.flipped,
        "locked_edges": four.locked,
        "largest_drift_of_balance": four.drift,
    }
    series = [Series(losses, label=name) for name, losses in four.losses.items()]
    panel = Panel(series, "training loss", "step", "loss", log_y=True, horizontal=(floor,))
    return Outcome(holds, measured, figure=Figure(caption, (panel,)), stand_in=stand_in)


@claim(
    "p0-figure-8",
    "Appendix A.9.1, Figure 8",
    "a 10-layer MLP learns x1 + x2 from four initialisations except from negative c with negative output weights",
    size=Size(
        "nine hidden layers of 20, 3,260 weights", "nine hidden layers of 250, half a million weights", "0.5 M weights"
    ),
    criterion="ours: learned is a loss below 5% of the zero function's; unable is a loss never below it",
    experiment=True,
)
def figure_8(full: bool) -> Outcome:
    """The sum of two inputs in [0, 1], by full-batch gradient descent; the paper's half million weights if full."""
    width, steps = (250, 300) if full else (20, 300)
    base = Architecture((2, *[width] * 9, 1)).initialise("he", seed=0)
    if not isinstance(base, Mlp):
        raise LawfulError("a layered network was expected")
    inputs = np.random.default_rng(0).uniform(0, 1, (128, 2))
    targets = inputs.sum(axis=1, keepdims=True)
    unit = 1 / math.sqrt(width)
    four = four_runs(base, 0.7 * unit, 1.8 * unit, 0.02 * unit, inputs, targets, 0.01, steps)
    caption = "P0 Figure 8: only c < 0 with negative output weights stays at the loss of the zero function (dashed)."
    floor = float((targets**2).mean())
    return _outcome(four, floor, 0.05, caption, {"parameters": base.parameters, "steps": steps})


@claim(
    "p0-figure-9",
    "Appendix A.9.1, Figure 9a",
    "the same on MNIST (is the digit 5 or more?), network 100-50-10: only negative c with negative output weights "
    "fails",
    size=Size("300 images, 300 steps", "up to 10,000 images, 1000 steps", "MNIST; steps and loss not stated"),
    criterion="ours: squared loss of labels 0 and 1 (a logistic one without output bias confines both signs); learned "
    "is a loss below half of the zero function's",
    experiment=True,
)
def figure_9(full: bool) -> Outcome:
    """scikit-learn's digits, or MNIST from the folder that LAWFUL_MNIST names; labels 0 and 1, squared loss.

    With a logistic loss and no output bias *both* signs are confined when c < 0, so labels are regressed.
    """
    inputs, targets, source = _digits(None if full else 300, 10_000)
    base = Architecture((inputs.shape[1], 100, 50, 10, 1)).initialise("he", seed=0)
    if not isinstance(base, Mlp):
        raise LawfulError("a layered network was expected")
    steps = 1000 if full else 300
    four = four_runs(base, 0.5, 1.0, 0.02, inputs, targets, 0.05, steps)
    caption = f"P0 Figure 9a on {source}: only c < 0 with negative output weights stays at the dashed line."
    floor = float((targets**2).mean())
    stand_in = None if source == "MNIST" else f"{source}; LAWFUL_MNIST names a folder with MNIST"
    return _outcome(four, floor, 0.5, caption, {"data": source, "samples": len(inputs), "steps": steps}, stand_in)


@claim(
    "p0-figure-9b",
    "Appendix A.9.1, Figure 9b",
    "on ViT features of cats and dogs (20 dimensions) an MLP 20-50-20 learns from four initialisations, except where "
    "c < 0 and the signs of the output weights do not allow for both classes",
    size=Size("300 samples, 300 steps", "all samples, 2000 steps", "25,000 pictures; steps and loss not stated"),
    criterion="ours: under squared loss only negative signs forbid a class, under logistic loss without output bias "
    "both do; learned is a loss below half of the least one that these signs allow",
    experiment=True,
)
def figure_9b(full: bool) -> Outcome:
    """Features from the file that LAWFUL_FEATURES names, or components of digits; both losses, as none is stated."""
    inputs, targets, stand_in = _features(None if full else 300)
    base = Architecture((inputs.shape[1], 20, 50, 20, 1)).initialise("he", seed=0)
    if not isinstance(base, Mlp):
        raise LawfulError("a layered network was expected")
    steps, ones = 2000 if full else 300, float(targets.mean())
    # the least loss with outputs of one sign: squared, one class at 0; logistic, one class at log 2
    floors = {"squared": {"+": 0.0, "-": ones}, "logistic": {"+": (1 - ones) * math.log(2), "-": ones * math.log(2)}}
    measured: dict[str, object] = {"samples": len(inputs), "steps": steps}
    holds, panels = True, []
    for name, loss, rate in (("squared", squared, 0.05), ("logistic", logistic, 0.2)):
        four = four_runs(base, 0.5, 1.0, 0.02, inputs, targets, rate, steps, loss)
        least = smallest(floor for floor in floors[name].values() if floor > 0)
        for start, losses in four.losses.items():
            floor = floors[name][start[-1]] if start.startswith("c<0") else 0.0
            holds &= bool(losses.min() >= floor - 1e-9) if floor > 0 else bool(losses[-1] < 0.5 * least)
            holds &= not start.startswith("c<0") or four.flipped[start] == 0
        measured[f"final_{name}_loss"] = {start: float(losses[-1]) for start, losses in four.losses.items()}
        measured[f"least_{name}_loss_by_sign"] = floors[name]
        series = [Series(losses, label=start) for start, losses in four.losses.items()]
        panels.append(Panel(series, f"{name} loss", "step", log_y=True, horizontal=(least,)))
    figure = Figure("P0 Figure 9b: c < 0 stays above what the signs of its output weights allow (dashed).", panels)
    return Outcome(holds, measured, figure=figure, stand_in=stand_in)


def _features(count: int | None) -> tuple[Floats, Floats, str | None]:
    """Given features of two classes, or 20 components of scikit-learn's digits, 5 or more."""
    from reproduction.singular_runs import feature_file

    given = feature_file()
    if given is not None:
        features, labels, stand_in = given[1], given[2] > 0, None
    else:
        from sklearn.datasets import load_digits

        images, digits = load_digits(return_X_y=True)
        centred = images - images.mean(axis=0)
        features, labels = centred @ np.linalg.svd(centred, full_matrices=False)[2][:20].T, digits >= 5
        stand_in = "20 components of scikit-learn digits, 5 or more; LAWFUL_FEATURES names a file of features"
    chosen = np.random.default_rng(0).permutation(len(features))[:count]
    return features[chosen] / features.std(), labels[chosen].astype(np.float64)[:, None], stand_in


def _digits(count: int | None, most: int) -> tuple[Floats, Floats, str]:
    folder = os.environ.get("LAWFUL_MNIST")
    if folder:
        images, labels = (_idx(Path(folder), name) for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"))
        inputs, source = images.reshape(len(images), -1) / 255.0, "MNIST"
    else:
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        inputs, source = images / 16.0, "scikit-learn digits"
    chosen = np.random.default_rng(0).permutation(len(inputs))[: count or most]
    return inputs[chosen], (labels[chosen] >= 5).astype(np.float64)[:, None], source


def _idx(folder: Path, name: str) -> NDArray[np.uint8]:
    """Read one of MNIST's files, gzipped or not."""
    file = next((path for path in (folder / name, folder / f"{name}.gz") if path.exists()), None)
    if file is None:
        raise LawfulError(f"LAWFUL_MNIST: {folder} has no {name} or {name}.gz")
    content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    try:
        sizes = np.frombuffer(content, ">u4", content[3], 4).astype(int)
        return np.frombuffer(content, np.uint8, -1, 4 + 4 * len(sizes)).reshape(sizes)
    except (IndexError, ValueError):
        raise LawfulError(f"{file}: not one of MNIST's files") from None


CLAIMS = (toy_dag, figure_8, figure_9, figure_9b)
