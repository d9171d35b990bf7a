"""Claims of P4 about composed layers: hiding, bottlenecks, equivalence (Sections 5 to 7)."""

from __future__ import annotations

import time
from itertools import combinations

import numpy as np

from lawful.fibers import Equal, flip, translate
from lawful.fibers.deep.bottleneck import (
    BottleneckFiber,
    bottleneck_fiber,
    identifiable_volume,
)
from lawful.fibers.deep.identifiability import identifiable
from lawful.fibers.random_members import disguise, hiding_network, not_localisable, random_network
from lawful.fibers.regions.count import draw_regions
from lawful.fibers.same import same
from lawful.figure import Figure, Panel, Series
from lawful.network import Mlp
from lawful.report.structure.fibers import complex_figure
from reproduction.claim import Outcome, Size, claim
from reproduction.claims.extremes import largest
from reproduction.claims.fibers import probes
from reproduction.formulas import flip_matrix, sampled_volume, volume_bounds
from reproduction.recover import neighbours_on_the_fiber


def distance(first: Mlp, second: Mlp, seed: int = 0) -> float:
    """Largest relative difference of two functions on many inputs."""
    points = probes(first.widths[0], seed)
    ours = first.evaluate(points)
    return float(np.abs(ours - second.evaluate(points)).max() / largest(float(np.abs(ours).max()), 1e-300))


@claim(
    "p4-translation",
    "Section 5",
    "a hidden hyperplane can move by any t that keeps the second biases negative; beyond, a bottleneck changes",
    size=Size("8 networks", "40 networks", "every hiding network"),
)
def translation(full: bool) -> Outcome:
    """Shift up to the limit, bottleneck or not; past it, `same` finds an input for every bottleneck."""
    kept, moved, changed = 0.0, 0, 0
    for seed, widths in enumerate([(4, 4, 3, 2), (5, 3, 1, 1), (2, 5, 3, 1), (6, 6, 4, 2)] * (10 if full else 2)):
        network = hiding_network(*widths, neuron=1, seed=seed)
        lowest = float((np.array(network.biases[1]) / network.weights[1][:, 1]).max())
        for shift in (0.9999 * lowest, 1.0, 20.0):
            kept = largest(kept, distance(network, translate(network, 1, shift), seed))
        if widths[1] > widths[0]:
            continue  # only a bottleneck is sure to show the rest
        biases = [np.array(bias) for bias in network.biases]
        biases[0][1] += 1.5 * lowest
        biases[1] -= 1.5 * lowest * network.weights[1][:, 1]
        moved += 1
        changed += same(network, Mlp(network.weights, biases)).verdict == "different"
    measured = {"change_within": kept, "moved_past_the_limit": moved, "of_these_different": changed}
    return Outcome(kept < 1e-9 and changed == moved, measured, figure=_two_places())


def _two_places() -> Figure:
    """Figure 2 of the paper: a hidden hyperplane before and after a translation, in grey, and what stays."""
    weights = [[[1.0, 0.2], [-0.3, 1.0]], [[1.0, -0.8], [1.2, -0.5]], [[1.0, 1.0]]]
    network = Mlp(weights, [[0.5, 0.3], [-1.0, -2.0], [0.0]])
    pictures = [complex_figure(*draw_regions(each, (-4.0, 4.0))) for each in (network, translate(network, 0, 1.5))]
    return Figure("A hidden hyperplane (grey) moves, the function stays", [picture.panels[0] for picture in pictures])


@claim(
    "p4-flips",
    "Section 5",
    "for one second-layer neuron the matrices F_S form a group and keep the function",
    size=Size("width 4, 4 networks", "width 4, 20 networks", "every width"),
)
def flips(full: bool) -> Outcome:
    """All subsets at width 4: the group law exactly, the function to round-off."""
    subsets = [chosen for size in range(4) for chosen in combinations((0, 2, 3), size)]
    law = sum(
        bool((flip_matrix(4, 1, a) @ flip_matrix(4, 1, b) != flip_matrix(4, 1, tuple(sorted({*a} ^ {*b})))).any())
        for a in subsets
        for b in subsets
    )
    worst = 0.0
    for seed in range(20 if full else 4):
        network = hiding_network(4, 4, 1, 2, neuron=1, seed=seed)
        worst = largest([worst, *(distance(network, flip(network, 1, chosen), seed) for chosen in subsets)])
    return Outcome(
        law == 0 and worst < 1e-9, {"group_law_failures": law, "subsets": len(subsets), "worst_change": worst}
    )


@claim(
    "p4-complete",
    "Section 6",
    "a generic bottleneck fiber holds nothing but permutation, scaling, translation, flips and linear changes",
    size=Size(
        "three networks, 12 searches each", "three networks, 60 searches each", "every generic bottleneck with n1 >= 2"
    ),
)
def complete(full: bool) -> Outcome:
    """Walk inside fibers and look around: the tangent space has the predicted dimension, and descents end on it."""
    measured = {}
    wrong = 0
    networks = {
        "anchored": random_network(3, 3, 3, 1, seed=7),
        "hiding, n2 = 2": hiding_network(3, 3, 2, 1, seed=1),
        "hiding, n2 = 1": hiding_network(3, 3, 1, 1, seed=1),
    }
    for name, network in networks.items():
        fiber = bottleneck_fiber(network)
        found = neighbours_on_the_fiber(network, tries=60 if full else 12, seed=0)
        outside = sum(not _on(fiber, other) for other in found.reached)
        measured[name] = (
            f"tangent {found.dimension}, predicted {fiber.dimension}; {len(found.reached)} reached, {outside} outside"
        )
        wrong += outside + (found.dimension != fiber.dimension) + (len(found.reached) == 0)
    return Outcome(wrong == 0, measured)


def _on(fiber: BottleneckFiber, other: Mlp) -> bool:
    """Whether a parameter is on the fiber; one on its edge, where a translation ends, is once it is translated back."""
    if fiber.contains(other, 1e-6):
        return True
    if fiber.hidden is None:
        return False
    first, second, last = (np.array(bias) for bias in other.biases)
    first[fiber.hidden] += 0.1
    second -= 0.1 * other.weights[1][:, fiber.hidden]
    return fiber.contains(Mlp(other.weights, [first, second, last]), 1e-6)


@claim(
    "p4-identifiable",
    "Theorem 5",
    "a generic bottleneck with n1 >= 2 is identifiable iff no row of [W2|b2] is all negative or all positive and none "
    "is hidden (n1 = 1: p4-width-one)",
    size=Size("all 64 sign patterns at 2-2-2-1", "all 64 sign patterns at 2-2-2-1", "every generic bottleneck"),
    criterion="ours: a fiber of dimension 0 stands for identifiable; discrete twins are searched by p4-complete, "
    "p4-width-one",
)
def sign_criterion(full: bool) -> Outcome:
    """Every sign pattern of [W2|b2] at widths 2-2-2-1: compare with the dimension and components of the fiber."""
    base = random_network(2, 2, 2, 1, seed=4)
    sizes = np.abs(np.column_stack([base.weights[1], np.array(base.biases[1])]))
    wrong = yes = 0
    for number in range(2**6):
        signs = np.array([1.0 if number >> k & 1 else -1.0 for k in range(6)]).reshape(2, 3)
        rows = signs * sizes
        network = Mlp([base.weights[0], rows[:, :2], base.weights[2]], [base.biases[0], rows[:, 2], base.biases[2]])
        answer = identifiable(network).identifiable
        other = neighbours_on_the_fiber(network, tries=0, seed=0).dimension
        wrong += bool(answer) != (other == 0)
        yes += bool(answer)
    predicted = int(identifiable_volume(2, 2) * 64)
    measured = {"patterns": 64, "identifiable": yes, "predicted": predicted, "wrong": wrong}
    return Outcome(wrong == 0 and yes == predicted, measured)


@claim(
    "p4-volume",
    "Corollary of Theorem 5",
    "for n1 >= 2 the share of identifiable parameters lies between the printed bounds; exactly it is "
    "(1-2^-n1)^n2 - n1 2^-(n1+1)n2 (n1 = 1: p4-width-one)",
    size=Size("6 sizes, 40,000 draws each", "6 sizes, 400,000 draws each", "every n1, n2"),
)
def volume(full: bool) -> Outcome:
    """Exact formula, both bounds and Monte Carlo over several widths."""
    samples = 400_000 if full else 40_000
    holds = True
    worst = 0.0
    table = {}
    for first, second in ((2, 1), (2, 3), (3, 2), (4, 4), (6, 8), (10, 16)):
        exact, (low, high) = identifiable_volume(first, second), volume_bounds(first, second)
        drawn = sampled_volume(first, second, samples, seed=first)
        spread = largest(float(exact * (1 - exact)), 1e-6) ** 0.5 / samples**0.5
        worst = largest(worst, abs(drawn - float(exact)) / spread)
        holds &= low <= exact <= high and abs(drawn - float(exact)) < 5 * spread
        table[f"n1={first} n2={second}"] = f"{float(low):.4f} <= {float(exact):.4f} <= {float(high):.4f}"
    return Outcome(bool(holds), table | {"worst_standard_deviations": worst})


@claim(
    "p4-equivalence",
    "E.3",
    "equivalence of generic bottleneck parameters is decided in polynomial time",
    size=Size("widths 8 to 256", "widths 8 to 1024", "every width"),
    criterion="ours: all verdicts right, and processor time that grows slower than the fourth power of the width",
    experiment=True,
)
def equivalence(full: bool) -> Outcome:
    """Disguised copies are equal, moved hyperplanes different, at growing width; the time grows like a small power."""
    widths = [8, 16, 32, 64, 128, 256] + ([512, 1024] if full else [])
    seconds, wrong = [], 0
    for width in widths:
        sizes = (width, width, max(width * 3 // 4, 1), 10)
        network = hiding_network(*sizes, neuron=1, seed=width)
        plain = random_network(*sizes, seed=width)
        start = time.process_time()
        wrong += not isinstance(same(network, disguise(network, seed=1)), Equal)
        wrong += not isinstance(same(plain, disguise(plain, seed=1)), Equal)
        biases = [np.array(bias) for bias in network.biases]
        biases[0][1] += 0.1
        wrong += same(network, Mlp(network.weights, biases)).verdict != "different"
        seconds.append(time.process_time() - start)
    power = float(np.polyfit(np.log(widths[-4:]), np.log(seconds[-4:]), 1)[0])
    curve = Panel(
        [Series(seconds, widths, "three questions", "line"), Series(seconds, widths, "", "points")],
        "deciding equivalence", "width", "seconds", log_x=True, log_y=True,
    )  # fmt: skip
    figure = Figure(f"Seconds for three questions of equivalence against width; slope {power:.1f}", [curve])
    measured = {"widths": widths, "seconds": [round(s, 4) for s in seconds], "power": power, "wrong": wrong}
    return Outcome(wrong == 0 and power < 4, measured, figure=figure)


@claim(
    "p4-not-localisable",
    "Section 7, F.1",
    "pairs of consecutive layers can be identifiable while the whole network is not",
    size=Size("one network", "one network", "one construction"),
)
def not_local(full: bool) -> Outcome:
    """Build the network, test both pairs by Theorem 5, and move it along a fiber of the whole."""
    found = not_localisable(seed=0)
    holds = found.lower.identifiable and found.upper.identifiable and found.change < 1e-10 and found.moved > 1e-3
    measured = {
        "lower_pair_identifiable": found.lower.identifiable,
        "upper_pair_identifiable": found.upper.identifiable,
        "weights_moved_by": found.moved,
        "function_changed_by": found.change,
        "is_a_rescaling": found.rescaling,
        "proved": f"{found.verdict.verdict} by {found.verdict.method}",
    }
    return Outcome(bool(holds) and not found.rescaling and isinstance(found.verdict, Equal), measured)


CLAIMS = (translation, flips, complete, sign_criterion, volume, equivalence, not_local)
