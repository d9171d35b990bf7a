"""Claims about trainings that end in singular networks (P0 Figures 3, 5 to 7, 10 to 13)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from lawful.figure import COLOURS, Figure, Panel, Series
from lawful.invariant_set.singular.spectrum import SCORES, Score, pruning_curve
from lawful.network import Architecture, Mlp
from lawful.pruning.neurons.prune import prune
from lawful.types import Floats
from reproduction.claim import Outcome, Size, claim
from reproduction.claims.extremes import largest, smallest
from reproduction.singular_runs import (
    Runs,
    TrainingData,
    breast_cancer,
    breast_cancer_runs,
    feature_file,
    loss_on_test,
    split,
    train,
)

SHALLOW = "30-20-1 relu"
PLAIN = ("30-10-10-10-1 relu", "30-10-10-10-1 relu bias")
SIX = (SHALLOW, SHALLOW + " bias", *PLAIN, *(f"{text} skip(1,2)" for text in PLAIN))
LOW_LOSS = 0.3
READING = (
    "batches of 32 (not stated), strengths of L1 and L2 as factors of means over the parameters, proximal penalty steps"
)
PAPER_RUNS = "30 runs of 5000 epochs (50 runs in Figure 3)"
SHALLOW_SIZE = Size("3 runs of 100 steps", "30 runs of 5000 epochs", PAPER_RUNS)
DEEP_SIZE = Size("6 runs of 120 steps", "30 runs of 5000 epochs", "30 runs of 5000 epochs")
# The paper's small steps on raw features take minutes. Quick runs take large steps on standardised features, where deep
# networks need weaker penalties: at the paper's strengths they disconnect altogether before they learn.
QUICK_STRENGTH = {"nuclear": 0.005, "l1": 2.0, "l2": 4.0}
QUICK = "standardised features, full batches, large steps"
QUICK_DEEP = f"{QUICK}, a tenth to a fifth of the paper's strengths for deep networks"


def paper_runs(text: str, runs: int, epochs: int) -> Runs:
    """Breast Cancer as in A.8.1: raw features, SGD with step 0.001, the paper's strengths."""
    return breast_cancer_runs(text, runs, epochs, 1e-3, True, 32)


def shallow_runs(full: bool, text: str = SHALLOW) -> Runs:
    """Shallow networks, as in A.8.1 if full, else on a stand-in that takes a second."""
    return paper_runs(text, 30, 5000) if full else breast_cancer_runs(text, 3, 100, 1.0)


@lru_cache(maxsize=8)
def runs_of(text: str, full: bool) -> Runs:
    """One of the six architectures: as in A.8.1 if full, else many fewer and larger steps on standardised features."""
    if full:
        return paper_runs(text, 30, 5000)
    if text.startswith(SHALLOW):
        return breast_cancer_runs(text, 6, 100, 1.0)
    return train(Architecture.parse(text), breast_cancer(), runs=6, epochs=120, step=0.8, strength=QUICK_STRENGTH)


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
    "Figure 3c, Section 3.3, A.8.1",
    "the nuclear norm disconnects around 18 of the 20 neurons of a shallow network on Breast Cancer, and L1 similarly "
    "many; L2 and no penalty leave all neurons active",
    size=Size("2 runs of 1100 epochs", "30 runs of 5000 epochs", PAPER_RUNS),
    criterion=f"ours where the paper is silent: around 18 is 16 or more, similarly is 14 or more; {READING}",
    experiment=True,
)
def figure_3c(full: bool) -> Outcome:
    """Singular values below 0.001 at the end of the training that A.8.1 describes."""
    runs = paper_runs(SHALLOW, *((30, 5000) if full else (2, 1100)))
    null = dict(zip(runs.penalties, runs.null[:, :, -1], strict=True))
    holds = null["nuclear"].mean() >= 16 and null["l1"].mean() >= 14 and not null["l2"].any() and not null["none"].any()
    panel = Panel(curves(runs, runs.null / 20), "raw features, step 0.001", "epoch", "share", horizontal=(0.9,))
    figure = Figure("Share of null singular values during training.", [panel])
    return Outcome(bool(holds), {**ends(runs), "runs": runs.theta.shape[1]}, figure=figure)


@claim(
    "p0-figure-3d",
    "Figure 3d, Section 3.3",
    "networks at a singularity lose their disconnected neurons without any change; under L2 or no penalty every neuron "
    "that goes changes the function",
    size=SHALLOW_SIZE,
    criterion="ours: as many neurons as are disconnected, less two, go by their score while the mean test loss stays "
    f"within 1e-3 under the nuclear norm and L1, and moves by more under L2 and none; {READING}",
    experiment=True,
)
def figure_3d(full: bool) -> Outcome:
    """The test loss as neurons go by their score, and what `prune` can take exactly."""
    runs, data = shallow_runs(full), breast_cancer(raw=full)
    measured: dict[str, Any] = {}
    moves, holds, series = {}, True, []
    least = int(runs.null[[runs.penalties.index(name) for name in ("nuclear", "l1")], :, -1].min())
    for name in runs.penalties:
        removed, change, curve = [], 0.0, []
        for run in range(runs.theta.shape[1]):
            network = runs.of(name, run)
            pruning = prune(Mlp.from_dag(network))
            removed.append(pruning.neurons_before - pruning.neurons_after)
            gone = pruning.network.evaluate(data.test) - network.evaluate(data.test)
            change = largest(change, float(np.abs(gone).max()))
            holds &= pruning.bound == 0.0
            curve.append(pruning_curve(network, loss_on_test(data)).measured)
        holds &= change < 1e-9
        means = np.mean(curve, axis=0)
        moves[name] = float(np.abs(means[: max(least - 2, 0) + 1] - means[0]).max())
        measured[f"exactly_removed_{name}"] = round(float(np.mean(removed)), 2)
        series.append(Series(means, label=name))
    sparse, others = largest(moves["nuclear"], moves["l1"]), smallest(moves["l2"], moves["none"])
    holds &= least > 2 and sparse < 1e-3 < others
    figure = Figure("Test loss as neurons go.", [Panel(series, x="neurons pruned", y="test loss", log_y=True)])
    measured = {"neurons_pruned": max(least - 2, 0), "loss_moves_by": moves} | measured
    return Outcome(bool(holds), measured, figure=figure, stand_in=None if full else QUICK)


def pruning_rise(runs: Runs, name: str, score: Score, data: TrainingData, most: int = 30) -> Floats:
    """How much the test loss rises as neurons go one by one, its mean over the whole curve, for each low-loss run."""
    kept = np.flatnonzero(runs.train_loss[runs.penalties.index(name)] < LOW_LOSS)[:most]
    found = [pruning_curve(runs.of(name, run), loss_on_test(data), score).measured for run in kept]
    return np.array([float(curve.mean() - curve[0]) for curve in found])


@claim(
    "p0-figure-5",
    "Figure 5, A.8.1",
    "in six architectures the nuclear norm and L1 promote neuron sparsity; as neurons are pruned by either score they "
    "are the most robust, no penalty is the most fragile, and L2 lies between",
    size=DEEP_SIZE,
    criterion="ours: sparsity is more null singular values than under L2 and none; robustness is the mean rise of the "
    f"test loss over the whole pruning curve, over runs with a training loss below {LOW_LOSS}; {READING}",
    experiment=True,
)
def figure_5(full: bool) -> Outcome:
    """Null singular values at the end, and the order of the pruning curves by both scores."""
    data = breast_cancer(raw=full)
    measured: dict[str, Any] = {}
    sparse, robust, between, panels = 0, 0, 0, []
    for text in SIX:
        runs = runs_of(text, full)
        good = runs.train_loss < LOW_LOSS
        null = {
            name: round(float(runs.null[number, good[number], -1].mean()), 2) if good[number].any() else np.nan
            for number, name in enumerate(runs.penalties)
        }
        sparse += smallest(null["nuclear"], null["l1"]) > largest(null["l2"], null["none"])
        measured[f"{text}: null"] = null
        for score, function in SCORES.items():
            rise = {
                name: float(np.mean(pruning_rise(runs, name, function, data, 30 if full else 1)))
                for name in runs.penalties
            }
            measured[f"{text}: mean rise ({score})"] = {name: round(value, 4) for name, value in rise.items()}
            robust += largest(rise["nuclear"], rise["l1"]) < smallest(rise["l2"], rise["none"])
            between += rise["l2"] < rise["none"]
        panels.append(Panel(curves(runs, runs.null), text, "epoch", "null singular values"))
    cases = 2 * len(SIX)
    counts = {"sparse": f"{sparse} of {len(SIX)}", "nuclear_and_l1_most_robust": f"{robust} of {cases}",
              "l2_before_none": f"{between} of {cases}"}  # fmt: skip
    return Outcome(
        sparse == len(SIX) and robust == between == cases, counts | measured,
        figure=Figure("Null singular values in six architectures.", panels), stand_in=None if full else QUICK_DEEP,
    )  # fmt: skip


@claim(
    "p0-skips",
    "A.8.1, Figure 5",
    "skip connections make the pruning of neurons more challenging",
    size=DEEP_SIZE,
    criterion="ours: with a skip fewer neurons disconnect under the nuclear norm and under L1, with and without "
    "biases, each at the 5% level (one-sided Welch test over low-loss runs); a skip has weights of its own, from the "
    f"first hidden layer to the third (the paper says that it links the first and the second); {READING}",
    experiment=True,
)
def skips(full: bool) -> Outcome:
    """Disconnected neurons of 30 and the rise of the loss as neurons go, with and without the skip, with error bars."""
    data = breast_cancer(raw=full)
    measured: dict[str, Any] = {}
    harder = []
    for text in PLAIN:
        both = [runs_of(kind, full) for kind in (text, f"{text} skip(1,2)")]
        for name in ("nuclear", "l1"):
            number = both[0].penalties.index(name)
            null = [runs.null[number, runs.train_loss[number] < LOW_LOSS, -1].astype(float) for runs in both]
            rise = [pruning_rise(runs, name, SCORES["product"], data) for runs in both]
            fewer = stats.ttest_ind(null[1], null[0], equal_var=False, alternative="less")
            harder.append(bool(fewer.pvalue < 0.05))  # NaN, from too few runs, is no evidence
            bias = "with biases" if "bias" in text else "without biases"
            measured[f"{name}, {bias}"] = {
                "disconnected": _with_error(null[0]), "with_a_skip": _with_error(null[1]), "p": float(fewer.pvalue),
                "mean_rise": _with_error(rise[0]), "mean_rise_with_a_skip": _with_error(rise[1]),
            }  # fmt: skip
    measured["harder_with_a_skip"] = f"{sum(harder)} of {len(harder)}"
    return Outcome(all(harder), measured, stand_in=None if full else QUICK_DEEP)


def _with_error(values: Floats) -> str:
    """Mean, its standard error, and the number of runs."""
    if len(values) < 2:
        return f"{len(values)} runs"
    return f"{values.mean():.3g} ± {values.std(ddof=1) / np.sqrt(len(values)):.2g} ({len(values)} runs)"


@claim(
    "p0-figure-6-7",
    "Figures 6, 7, A.8.2",
    "nuclear norm and L1 drive many balances c_k to zero; without a penalty they only drift by discrete steps and "
    "remain more stable",
    size=SHALLOW_SIZE,
    criterion=f"ours: many is more than half, zero is below 1e-3; half the step makes about half the drift; {READING}",
    experiment=True,
)
def figure_6_7(full: bool) -> Outcome:
    """Balances and singular values of one run; the drift at half the step must be about half."""
    runs = shallow_runs(full)
    balances = {name: runs.balances[k, 0] for k, name in enumerate(runs.penalties)}
    zero = {name: int((np.abs(path[-1]) < 1e-3).sum()) for name, path in balances.items()}
    moved = {name: float(np.abs(path[-1] - path[0]).mean()) for name, path in balances.items()}
    drifts = []
    for factor in (1, 2):
        one = train(
            Architecture.parse(SHALLOW), breast_cancer(), runs=1, epochs=(400 if full else 60) * factor,
            step=0.2 / factor, penalties=("none",),
        )  # fmt: skip
        drifts.append(float(np.abs(one.balances[0, 0, -1] - one.balances[0, 0, 0]).max()))
    holds = (
        smallest(zero["nuclear"], zero["l1"]) > 10
        and zero["none"] <= 1
        and moved["none"] < smallest(moved["nuclear"], moved["l1"])
        and 1.5 < drifts[0] / drifts[1] < 2.7
    )
    panels = [
        Panel([Series(line, runs.moments) for line in recorded[k, 0].T], f"{what}, {name}", "epoch")
        for what, recorded in (("balances", runs.balances), ("singular values", runs.values))
        for k, name in enumerate(runs.penalties)
    ]
    measured = {"zero_balances": zero, "mean_change": moved, "drift": drifts[0], "drift_at_half_the_step": drifts[1]}
    figure = Figure("Balances and singular values of one run.", panels)
    return Outcome(bool(holds), measured, figure=figure, stand_in=None if full else QUICK)


@dataclass(frozen=True)
class FeatureTask:
    """A task on features, and the strengths that leave its accuracy as it is."""

    name: str
    data: TrainingData
    strength: dict[str, float]


def feature_tasks() -> list[FeatureTask]:
    """The file named by LAWFUL_FEATURES (.npz with `features` and `labels`), or digits as a stand-in."""
    given = feature_file()
    if given is not None:
        return [FeatureTask(given[0], split(given[1], given[2]), {"nuclear": 0.01, "l1": 16.0})]
    from sklearn.datasets import load_digits

    images, digits = load_digits(return_X_y=True)
    centred = images - images.mean(axis=0)
    features = centred @ np.linalg.svd(centred, full_matrices=False)[2][:16].T
    return [
        FeatureTask("zero or not", split(features, digits == 0), {"nuclear": 0.01, "l1": 16.0}),
        FeatureTask("odd or even", split(features, digits % 2), {"nuclear": 0.006, "l1": 9.0}),
    ]


@claim(
    "p0-figure-10-11",
    "Figures 10, 11, A.9.2",
    "on ViT and FaceNet features L1 prunes 80-90% and the nuclear norm 85-95% of 90 neurons without a significant "
    "loss of accuracy",
    size=Size("one run of 120 steps a task", "10 runs of 2000 steps a task", "cats and dogs, CelebA; runs not stated"),
    criterion="ours where the paper is silent: at least 80% under L1 and 85% under the nuclear norm; the accuracy "
    "within 0.03 of no penalty; network 20-50-20 with biases (90 neurons, about 2500 weights); strengths chosen by "
    "task",
    experiment=True,
)
def figure_10_11(full: bool) -> Outcome:
    """A 20-50-20 network on given features, or on a stand-in that is named as such."""
    measured: dict[str, Any] = {}
    shown, panels = [], []
    for task in feature_tasks():
        text = f"{task.data.train.shape[1]}-20-50-20-1 relu bias"
        runs = train(
            Architecture.parse(text), task.data, runs=10 if full else 1, epochs=2000 if full else 120,
            step=0.2 if full else 0.8, penalties=("nuclear", "l1", "none"), strength=task.strength,
        )  # fmt: skip
        null = runs.null[:, :, -1].mean(axis=1) / 90
        accuracy = runs.accuracy.mean(axis=1)
        measured[task.name] = {
            kind: {"pruned": round(float(n), 3), "accuracy": round(float(a), 3)}
            for kind, n, a in zip(runs.penalties, null, accuracy, strict=True)
        }
        shown.append(bool(null[0] >= 0.85 and null[1] >= 0.8 and accuracy[:2].min() > accuracy[2] - 0.03))
        panels.append(Panel(curves(runs, runs.null / 90), task.name, "epoch", "share of neurons pruned"))
    digits = "16 components of scikit-learn digits; LAWFUL_FEATURES names a file of features"
    figure = Figure("Neurons pruned during training.", panels)
    return Outcome(all(shown), {"shown": shown, **measured}, figure=figure, stand_in=None if feature_file() else digits)


def at_least(probability: float, neurons: int) -> Floats:
    """`P(N ≥ k)` for k = 0 … neurons, N binomial: neurons whose edges all drop by chance, in a shallow network."""
    terms = [comb(neurons, k) * probability**k * (1 - probability) ** (neurons - k) for k in range(neurons + 1)]
    return np.cumsum(terms[::-1])[::-1]


@claim(
    "p0-figure-12",
    "Figure 12",
    "dropping each edge at random as often as observed does not explain the number of pruned neurons, for the nuclear "
    "norm even less than for L1",
    size=SHALLOW_SIZE,
    criterion=f"ours: a chance below 1e-3 of the median number of pruned neurons; {READING}",
    experiment=True,
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
    holds = largest(chance.values()) < 1e-3 and chance["nuclear"] < chance["l1"]
    figure = Figure("Null model of pruned neurons.", panels)
    return Outcome(holds, measured, figure=figure, stand_in=None if full else QUICK)


@claim(
    "p0-figure-13",
    "Figure 13",
    "the nuclear norm separates the weights of pruned from those of active neurons; L1 leaves many zeros on active "
    "ones",
    size=SHALLOW_SIZE,
    criterion=f"ours: zero is below 1e-3; less than 5% of the weights of active neurons, or more than 20%; {READING}",
    experiment=True,
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
    figure = Figure("Weights of active and pruned neurons.", panels)
    return Outcome(bool(holds), measured, figure=figure, stand_in=None if full else QUICK)


CLAIMS = (figure_3c, figure_3d, figure_5, skips, figure_6_7, figure_10_11, figure_12, figure_13)
