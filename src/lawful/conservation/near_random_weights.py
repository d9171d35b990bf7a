"""Do the laws of φ suffice? How many laws training has near weights, near random ones and near well-chosen ones.

Every law of φ is a law of training, but near given weights only some activation patterns occur, and training may have
more. Rational weights at which exactly the laws of φ are left prove that the list is complete on an open set.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from lawful.conservation.closure.lie_closure import Watch, close
from lawful.conservation.count import count_laws
from lawful.conservation.fields.gradient import Gradients, Pieces
from lawful.conservation.law_count import LawCount
from lawful.conservation.regions.forced_gates import gate_mask, least_laws, sign_patterns
from lawful.conservation.regions.pattern_search import search_weights
from lawful.exact import PRIME, to_residues
from lawful.network import Dag, Role
from lawful.network.architecture import initialise
from lawful.network.dynamics import HeavyBall
from lawful.types import Floats

SIZES = ((60, 8, 12), (200, 4, 6), (1000, 1, 3))  # up to so many parameters: weights looked at, and further tries
STEPS = 400  # of bending neurons, for each of the further tries
MOST_SETS = 40  # of activation patterns that are all examined
SEEDS = 2
CENTRED = 256  # random inputs that centre neurons


@dataclass(frozen=True, eq=False)
class TrainingLaws:
    """Laws near random weights: how often each number was counted, where φ's laws suffice, what is known if nowhere.

    `near` maps a number of laws to how many of the random weights had it. `witness` is a proved count near rational
    weights which has exactly the laws of φ: they are complete on an open set. `always` are the fewest and the most
    laws near any weights whatever, if all sets of activation patterns that can occur were examined; `least` are
    explicit laws that training is proved to have near all weights, where some gates are bound whatever the weights.
    """

    near: dict[int, int]
    tried: int
    witness: LawCount | None = None
    always: tuple[int, int] | None = None
    least: int | None = None

    @property
    def shares(self) -> dict[int, float]:
        """The share of the random weights that had each number of laws."""
        total = sum(self.near.values())
        return {laws: count / total for laws, count in self.near.items()}


def training_laws(
    count: LawCount, *, weights: int | None = None, seed: int = 0, progress: Watch | None = None
) -> TrainingLaws | None:
    """Compare a φ-level count with the counts near random weights; None where there is nothing to compare.

    A few weights are PyTorch's default ones (`weights` asks for more or fewer); if none has exactly the laws of φ, a
    search looks for some that have.

    >>> found = training_laws(count_laws("2-3-3-1 relu"))
    >>> sorted(found.near.items()), found.witness.laws
    ([(6, 5), (9, 2), (10, 1)], 6)
    >>> training_laws(count_laws("1-2-2-1 relu")).always
    (5, 8)
    """
    dag = count.dag
    if dag is None or count.level != "phi" or isinstance(count.flow, HeavyBall) or not gate_mask(dag).any():
        return None
    limits = next((limit for limit in SIZES if dag.parameters <= limit[0]), (0, 0, 0))
    looked_at = limits[1] if weights is None else weights
    if not looked_at:
        return None
    starts = [initialise(dag, "torch", seed + number) for number in range(looked_at)]
    if dag.weights is not None:
        starts[0] = dag  # the weights that were given
    counts = []
    for number, start in enumerate(starts):
        counts.append(_near(count, start, seed))
        if progress is not None:
            progress("near random weights", number + 1, looked_at)
    near = dict(Counter(one.laws for one in counts))
    tried = len(counts)
    always = _two_patterns(count)
    best, place = min(zip(counts, starts, strict=True), key=lambda pair: pair[0].laws)
    least = least_laws(count)
    hopeless = not count.proved or (least or 0) > count.laws or (always is not None and always[0] > count.laws)
    while not hopeless and best.laws > count.laws and tried < looked_at + limits[2]:
        other = search_weights(_other_weights(place, seed, tried), count.dimensions[-1], seed + tried, STEPS)
        again = _near(count, other, seed)
        tried += 1
        if again.laws <= best.laws:
            best, place = again, other
    enough = count.proved and best.proved and best.laws == count.laws
    return TrainingLaws(near, tried, _witness(count, best) if enough else None, always, least)


def _near(count: LawCount, dag: Dag, seed: int) -> LawCount:
    return count_laws(dag, level="near", loss=count.loss, flow=count.flow, seed=seed)


def _witness(count: LawCount, near: LawCount) -> LawCount:
    """The count near the weights, with the laws of φ alone as its explicit ones: they hold at all weights."""
    region, dag = near.region, near.dag
    if region is None or dag is None:
        raise AssertionError("a count near weights has a region")
    free = np.where(dag.slopes == 1.0, 1.0, np.nan)
    return replace(
        near, known=count.known, independent=count.independent, architecture=count.architecture,
        region=replace(region, fixed=free, alike=None, on_data=None), claim="somewhere",
    )  # fmt: skip


def _other_weights(dag: Dag, seed: int, number: int) -> Dag:
    """New weights of few binary digits: all of them or, every second time, a quarter; then every neuron is centred.

    At random weights a deep neuron is often on for all inputs, or off. Its weights are moved along the mean signal (or
    its bias), so that about half of some random inputs switch it on: then many patterns occur.
    """
    rng = np.random.default_rng((seed, number))
    theta = rng.normal(size=dag.parameters)
    if number % 2:
        theta = np.where(rng.random(dag.parameters) < 0.25, theta, dag.theta)
    signals = np.zeros((len(dag.names), CENTRED))
    signals[dag.inputs] = rng.normal(size=(len(dag.inputs), CENTRED))
    if dag.constant is not None:
        signals[dag.constant] = 1.0
    for node in np.concatenate(dag.layers):
        if dag.roles[node] != Role.HIDDEN:
            continue
        edges = np.flatnonzero(dag.heads == node)
        tails = dag.tails[edges]
        read = theta[edges] @ signals[tails]
        aim = np.quantile(read, rng.uniform(0.3, 0.7))
        constant = dag.constant is not None and dag.constant in tails
        along = (tails == dag.constant).astype(float) if constant else signals[tails].mean(axis=1)
        if dag.slopes[node] != 1.0 and (along**2).sum() > 0:
            theta[edges] -= aim * along / (along**2).sum()
        theta[edges] = np.round(theta[edges] * 2**10) / 2**10
        read = theta[edges] @ signals[tails]
        signals[node] = np.where(read > 0, read, dag.slopes[node] * read)
    return dag.with_theta(np.round(theta * 2**10) / 2**10)


# Networks of one input without biases


def _two_patterns(count: LawCount) -> tuple[int, int] | None:
    """The fewest and most laws near any weights, for one input and no biases: x > 0 and x < 0 have a pattern each.

    Which pairs of patterns the weights realise does not matter: all that could be are counted.
    """
    dag = count.dag
    if dag is None or dag.constant is not None or len(dag.inputs) > 1 or count.loss != "full":
        return None
    if str(count.flow) != "gradient":
        return None
    patterns = sign_patterns(dag, MOST_SETS)
    if patterns is None:
        return None
    most = dag.parameters - count.independent
    dimensions = [_dimension(dag, gates[:, dag.hidden], most) for gates in patterns]
    return dag.parameters - max(dimensions), dag.parameters - min(dimensions)


def _dimension(dag: Dag, patterns: Floats, most: int) -> int:
    values, where = np.unique(patterns, return_inverse=True)
    gates = to_residues(values, PRIME)[where].reshape(patterns.shape)
    return max(close(Pieces(Gradients(dag, PRIME, seed), gates), most).dimensions[-1] for seed in range(SEEDS))
