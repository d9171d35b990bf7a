"""Claims about trainings that end in singular networks (P0 Figures 3, 5 to 7, 10 to 13)."""

from __future__ import annotations

import os
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.errors import LawfulError
from lawful.figure import COLOURS, Figure, Panel, Series
from lawful.network import Architecture, Mlp
from lawful.pruning.prune import prune
from lawful.singular.scores import SCORES, pruning_curve
from lawful.study.claim import Outcome, claim
from lawful.study.singular_runs import (
    Runs,
    TrainingData,
    breast_cancer,
    breast_cancer_runs,
    loss_on_test,
    split,
    train,
)
from lawful.types import Floats

SHALLOW = "30-20-1 relu"
DEEP = ("30-10-10-10-1 relu", "30-10-10-10-1 relu bias", "30-10-10-10-1 relu skip(1,2)")
SIX = (SHALLOW, SHALLOW + " bias", *DEEP, "30-10-10-10-1 relu bias skip(1,2)")
# At the paper's strengths deep networks on standardised features disconnect altogether before they learn.
DEEP_STRENGTH = {"nuclear": 0.005, "l1": 2.0, "l2": 4.0}
LOW_LOSS = 0.3
STANDARDISED = "standardised features, full-batch steps"


def shallow_runs(full: bool, text: str = SHALLOW) -> Runs:
    """Shallow networks on Breast Cancer: 30 runs as in the paper, or three."""
    return breast_cancer_runs(text, 30, 2000) if full else breast_cancer_runs(text, 3, 100, 1.0)


def curves(runs: Runs, recorded: NDArray[Any]) -> list[Series]:
    """Mean of something recorded (penalty, run, moment), and a band from the 5th to the 95th of a hundred runs."""
    series: list[Series] = []
    for name, values, colour in zip(runs.penalties, recorded, COLOURS, strict=False):
        low, high = np.percentile(values, (5, 95), axis=0)
        series.append(Series(values.mean(axis=0), runs.moments, label=name, colour=colour))
        series.append(Series(low, runs.moments, style="band", upper=high, colour=colour))
    return series


def ends(runs: Runs) -> dict[str, Any]:
    """Null singular values and test accuracy at the end, by penalty."""
    measured: dict[str, Any] = {}
    for number, name in enumerate(runs.penalties):
        measured[f"null_{name}"] = round(float(runs.null[number, :, -1].mean()), 2)
        measured[f"accuracy_{name}"] = round(float(runs.accuracy[number].mean()), 3)
    return measured


@claim(
    "p0-figure-3c",
    "Figure 3c",
    "nuclear norm and L1 null most singular values of a shallow network (about 18 of 20); L2 and nothing null none",
)
def figure_3c(full: bool) -> Outcome:
    """Standardised features; beside it the paper's own setting (raw features, step 0.001) is measured and reported."""
    runs = shallow_runs(full)
    raw = breast_cancer_runs(SHALLOW, 30, 5000, 1e-3, True) if full else breast_cancer_runs(SHALLOW, 2, 60, 1e-3, True)
    null = dict(zip(runs.penalties, runs.null[:, :, -1], strict=True))
    holds = null["nuclear"].mean() >= 16 and null["l1"].mean() >= 14 and not null["l2"].any() and not null["none"].any()
    moved = np.abs(raw.theta - raw.initial).max() / np.abs(raw.initial).max()
    measured = {"setting": STANDARDISED, **ends(runs), "runs": runs.theta.shape[1]}
    measured |= {f"raw_{key}": value for key, value in ends(raw).items()} | {"raw_largest_move": round(float(moved), 3)}
    panels = [
        Panel(curves(one, one.null / 20), title, "epoch", "null singular values", horizontal=(0.9,))
        for one, title in ((runs, "standardised"), (raw, "raw, step 0.001"))
    ]
    return Outcome(bool(holds), measured, figure=Figure("Share of null singular values during training.", panels))


@claim(
    "p0-figure-3d",
    "Figure 3d",
    "networks at a singularity lose their disconnected neurons without any change; others change at once",
)
def figure_3d(full: bool) -> Outcome:
    """Prune exactly what is disconnected with a certificate, and draw the loss as neurons go by their score."""
    runs, data = shallow_runs(full), breast_cancer()
    measured: dict[str, Any] = {}
    holds = True
    series = []
    for number, name in enumerate(runs.penalties):
        removed, change, curve = [], 0.0, []
        for run in range(runs.theta.shape[1]):
            network = runs.of(name, run)
            pruning = prune(Mlp.from_dag(network))
            removed.append(pruning.neurons_before - pruning.neurons_after)
            change = max(change, float(np.abs(pruning.network.evaluate(data.test) - network.evaluate(data.test)).max()))
            holds &= pruning.bound == 0.0
            if run < (30 if full else 2):
                curve.append(pruning_curve(network, loss_on_test(data)).measured)
        null = runs.null[number, :, -1]
        sparse = name in ("nuclear", "l1")
        holds &= bool((np.array(removed) >= null - 1).all()) if sparse else max(removed) == 0
        holds &= change < 1e-9
        means = np.mean(curve, axis=0)
        first = np.abs(np.diff(means))[0]
        holds &= first < 1e-9 if sparse else first > 1e-9
        measured |= {f"lossless_{name}": round(float(np.mean(removed)), 2), f"first_step_{name}": float(first)}
        series.append(Series(means, label=name))
    figure = Figure("Test loss as neurons go.", [Panel(series, x="neurons pruned", y="test loss", log_y=True)])
    return Outcome(bool(holds), measured, figure=figure)


def deep_runs(text: str, full: bool) -> Runs:
    """One of the six architectures; deep ones at a tenth to a fifth of the paper's strengths."""
    if text.startswith(SHALLOW):
        return shallow_runs(full, text)
    runs, epochs, step = (30, 2000, 0.2) if full else (2, 120, 0.8)
    return train(Architecture.parse(text), breast_cancer(), runs=runs, epochs=epochs, step=step, strength=DEEP_STRENGTH)


@claim(
    "p0-figure-5",
    "Figure 5",
    "in six architectures nuclear norm and L1 promote neuron sparsity and pruning robustness, L2 and nothing do not",
)
def figure_5(full: bool) -> Outcome:
    """Null singular values at the end, and both scores' pruning curves, over runs that reached a low loss."""
    data, measure = breast_cancer(), loss_on_test(breast_cancer())
    measured: dict[str, Any] = {"tested_on": len(data.test), "deep_strengths": DEEP_STRENGTH}
    holds = True
    panels = []
    for text in SIX:
        runs = deep_runs(text, full)
        good = runs.train_loss < LOW_LOSS
        sparsity: dict[str, float] = {}
        for number, name in enumerate(runs.penalties):
            kept = np.flatnonzero(good[number])
            if not len(kept):
                continue
            sparsity[name] = float(runs.null[number, kept, -1].mean())
            for score, function in SCORES.items():
                changes = [
                    np.ptp(pruning_curve(runs.of(name, run), measure, function, len(runs.dag.hidden) // 5).measured)
                    for run in kept[: 30 if full else 1]
                ]
                change = float(np.mean(changes))
                measured[f"{text}: {name}: loss moves, a fifth pruned ({score})"] = change
                holds &= change < 1e-9 if name in ("nuclear", "l1") else change > 1e-9
        measured[f"{text}: null"] = sparsity
        fifth = len(runs.dag.hidden) / 5
        holds &= sparsity.keys() == set(runs.penalties) and min(sparsity["nuclear"], sparsity["l1"]) >= fifth
        holds &= sparsity.get("l2") == 0 and sparsity.get("none") == 0
        panels.append(Panel(curves(runs, runs.null), text, "epoch", "null singular values"))
    return Outcome(bool(holds), measured, figure=Figure("Null singular values in six architectures.", panels))


@claim(
    "p0-figure-6-7",
    "Figures 6, 7",
    "nuclear norm and L1 drive most balances to zero; without a penalty they drift only by the size of the steps",
)
def figure_6_7(full: bool) -> Outcome:
    """Balances and singular values of one run; the drift at half the step must be about half."""
    runs = shallow_runs(full)
    zero = {name: int((np.abs(runs.balances[k, 0, -1]) < 1e-3).sum()) for k, name in enumerate(runs.penalties)}
    drifts = []
    for factor in (1, 2):
        one = train(
            Architecture.parse(SHALLOW), breast_cancer(), runs=1, epochs=(400 if full else 60) * factor,
            step=0.2 / factor, penalties=("none",),
        )  # fmt: skip
        drifts.append(float(np.abs(one.balances[0, 0, -1] - one.balances[0, 0, 0]).max()))
    holds = zero["nuclear"] >= 15 and zero["l1"] >= 14 and zero["none"] <= 1 and 1.5 < drifts[0] / drifts[1] < 2.7
    panels = [
        Panel([Series(line, runs.moments) for line in recorded[k, 0].T], f"{what}, {name}", "epoch")
        for what, recorded in (("balances", runs.balances), ("singular values", runs.values))
        for k, name in enumerate(runs.penalties)
    ]
    measured = {"zero_balances": zero, "drift": drifts[0], "drift_at_half_the_step": drifts[1]}
    return Outcome(bool(holds), measured, figure=Figure("Balances and singular values of one run.", panels))


def feature_tasks() -> list[tuple[str, TrainingData]]:
    """The file named by LAWFUL_FEATURES (.npz with `features` and `labels`), or digits as a stand-in."""
    given = os.environ.get("LAWFUL_FEATURES")
    if given:
        with np.load(given, allow_pickle=False) as arrays:
            if "features" not in arrays or "labels" not in arrays:
                raise LawfulError(f"{given}: needs the arrays features and labels")
            return [(given, split(arrays["features"], arrays["labels"]))]
    from sklearn.datasets import load_digits

    images, digits = load_digits(return_X_y=True)
    centred = images - images.mean(axis=0)
    features = centred @ np.linalg.svd(centred, full_matrices=False)[2][:16].T
    return [
        ("stand-in: 16 components of digits, zero or not", split(features, digits == 0)),
        ("stand-in: 16 components of digits, odd or even", split(features, digits % 2)),
    ]


@claim(
    "p0-figure-10-11",
    "Figures 10, 11",
    "on feature tasks most of 90 neurons are pruned at equal accuracy, by L1 and by the nuclear norm",
)
def figure_10_11(full: bool) -> Outcome:
    """A 30-30-30 network on given features, or on a stand-in that is named as such."""
    measured: dict[str, Any] = {}
    holds = True
    panels = []
    for name, data in feature_tasks():
        text = f"{data.train.shape[1]}-30-30-30-1 relu bias"
        runs = train(
            Architecture.parse(text), data, runs=10 if full else 1, epochs=2000 if full else 120,
            step=0.2 if full else 0.8, penalties=("nuclear", "l1", "none"), strength={"nuclear": 0.005, "l1": 8.0},
        )  # fmt: skip
        null = runs.null[:, :, -1].mean(axis=1) / 90
        accuracy = runs.accuracy.mean(axis=1)
        measured[name] = {
            kind: {"pruned": round(float(n), 3), "accuracy": round(float(a), 3)}
            for kind, n, a in zip(runs.penalties, null, accuracy, strict=True)
        }
        holds &= null[:2].min() > 0.5 and null[2] == 0 and accuracy[:2].min() > accuracy[2] - 0.03
        panels.append(Panel(curves(runs, runs.null / 90), name, "epoch", "share of neurons pruned"))
    return Outcome(bool(holds), measured, figure=Figure("Neurons pruned during training.", panels))


def at_least(probability: float, neurons: int) -> Floats:
    """`P(N ≥ k)` for k = 0 … neurons, N binomial: neurons whose edges all drop by chance, in a shallow network."""
    terms = [comb(neurons, k) * probability**k * (1 - probability) ** (neurons - k) for k in range(neurons + 1)]
    return np.cumsum(terms[::-1])[::-1]


@claim(
    "p0-figure-12",
    "Figure 12",
    "dropping each edge at random as often as observed does not explain the number of pruned neurons",
)
def figure_12(full: bool) -> Outcome:
    """The null model is exact: a neuron of a shallow network goes when all its edges do."""
    runs = shallow_runs(full, SHALLOW + " bias")
    degree = 30 + 1 + 1
    measured: dict[str, Any] = {}
    panels = []
    chance = {}
    for name in ("nuclear", "l1"):
        number = runs.penalties.index(name)
        at_neurons = runs.theta[number][
            :, np.isin(runs.dag.tails, runs.dag.hidden) | np.isin(runs.dag.heads, runs.dag.hidden)
        ]
        dropped = float((np.abs(at_neurons) < 1e-3).mean())
        pruned = int(np.median(runs.null[number, :, -1]))
        curve = at_least(dropped**degree, 20)
        chance[name] = float(curve[pruned])
        measured[name] = {"dropped_edges": round(dropped, 4), "pruned_neurons": pruned, "chance": chance[name]}
        series = [Series(np.maximum(curve, 1e-300), label="null model")]
        panels.append(Panel(series, name, "at least k neurons", "probability", log_y=True, vertical=(pruned,)))
    holds = max(chance.values()) < 1e-3 and chance["nuclear"] < chance["l1"]
    return Outcome(holds, measured, figure=Figure("Null model of pruned neurons.", panels))


@claim(
    "p0-figure-13",
    "Figure 13",
    "the nuclear norm separates the weights of pruned from those of active neurons; L1 leaves zeros on active ones",
)
def figure_13(full: bool) -> Outcome:
    """The share of weights below 0.001 that sit on active neurons, and the largest weight on a pruned one."""
    runs = shallow_runs(full, SHALLOW + " bias")
    dag = runs.dag
    measured: dict[str, Any] = {}
    panels = []
    for name in ("nuclear", "l1"):
        theta = np.abs(runs.theta[runs.penalties.index(name)])
        norms = np.stack([theta[:, (dag.heads == v) | (dag.tails == v)].max(axis=1) for v in dag.hidden], axis=1)
        neuron = {int(v): k for k, v in enumerate(dag.hidden)}
        at = np.array([neuron.get(int(h), neuron.get(int(t), -1)) for t, h in zip(dag.tails, dag.heads, strict=True)])
        owned = at >= 0
        active = norms[:, at[owned]] >= 1e-3
        weights = theta[:, owned]
        on_active, on_pruned = weights[active], weights[~active]
        measured[name] = {
            "zeros_on_active_neurons": round(float((on_active < 1e-3).mean()), 4),
            "largest_on_pruned": float(on_pruned.max(initial=0.0)),
        }
        bins = np.linspace(-12, 1, 40)
        series = [
            Series(np.histogram(np.log10(np.maximum(part, 1e-12)), bins)[0], bins[:-1], label, "steps")
            for label, part in (("active", on_active), ("pruned", on_pruned))
        ]
        panels.append(Panel(series, name, "log10 |weight|", "count"))
    holds = measured["nuclear"]["zeros_on_active_neurons"] < 0.05 < 0.2 < measured["l1"]["zeros_on_active_neurons"]
    return Outcome(bool(holds), measured, figure=Figure("Weights of active and pruned neurons.", panels))


CLAIMS = (figure_3c, figure_3d, figure_5, figure_6_7, figure_10_11, figure_12, figure_13)
