"""Claims of P4: which parameters are the same function."""

from __future__ import annotations

import time
from itertools import combinations

import numpy as np

from lawful.fibers import Domain, Equal, Stack, cells, flip, normal_form, same, translate
from lawful.fibers.bottleneck import (
    bottleneck_fiber,
    identifiable,
    identifiable_volume,
    sampled_volume,
    volume_bounds,
)
from lawful.fibers.disguise import disguise, hiding_network, random_network
from lawful.fibers.layerwise import fiber_dimension_at, layerwise_fiber, nonnegative_rank_bounds
from lawful.fibers.nonlocal_example import not_localisable
from lawful.fibers.polyhedral import polygon, polyhedral_complex, ridges, segment
from lawful.fibers.recover import neighbours_on_the_fiber
from lawful.fibers.shallow import difference_form, nonnegative
from lawful.fibers.symmetry import flip_matrix
from lawful.network import Mlp
from lawful.report.fibers import complex_figure
from lawful.report.figure import Figure, Panel, Series
from lawful.study.claim import Outcome, claim


def probes(inputs: int, seed: int = 0, count: int = 2000) -> np.ndarray:
    """Inputs near and far."""
    rng = np.random.default_rng(seed)
    return np.concatenate([scale * rng.normal(size=(count, inputs)) for scale in (0.3, 3.0, 30.0)])


def distance(first: Mlp, second: Mlp, seed: int = 0) -> float:
    """Largest relative difference of two functions on many inputs."""
    points = probes(first.widths[0], seed)
    ours = first.evaluate(points)
    return float(np.abs(ours - second.evaluate(points)).max() / max(float(np.abs(ours).max()), 1e-300))


@claim(
    "p4-weights-determine",
    "Theorem 1, Lemma 7, Proposition 17",
    "gradient jumps across facets balance at every ridge and determine the function up to one affine map",
)
def weights_determine(full: bool) -> Outcome:
    """Balance every ridge; then rebuild all affine maps from one region and the jumps alone."""
    worst = rebuilt = 0.0
    facets = crossings = 0
    for seed, widths in enumerate([(2, 4, 3, 2), (3, 3, 2, 1), (2, 3, 2, 2, 1)] * (4 if full else 1)):
        complex = polyhedral_complex(random_network(*widths, seed=seed))
        found = ridges(complex)
        facets, crossings = facets + len(complex.facets), crossings + len(found)
        worst = max([worst, *(ridge.imbalance for ridge in found)])
        maps = {0: complex.regions[0].matrix}
        while len(maps) < len(complex.regions):
            before = len(maps)
            for facet in complex.facets:
                off, on = facet.regions
                jump = np.outer(facet.weight, facet.normal)
                if off in maps and on not in maps:
                    maps[on] = maps[off] + jump
                elif on in maps and off not in maps:
                    maps[off] = maps[on] - jump
            if len(maps) == before:
                break
        errors = [np.abs(maps[place] - region.matrix).max() for place, region in enumerate(complex.regions)]
        rebuilt = max(rebuilt, float(max(errors)))
    measured = {"facets": facets, "ridges": crossings, "worst_imbalance": worst, "worst_rebuilt_gradient": rebuilt}
    return Outcome(bool(worst < 1e-9 and rebuilt < 1e-9 and crossings > 0), measured, figure=_picture())


def _picture() -> Figure:
    """Figure 1 of the paper, left: bent hyperplanes of a network in the plane."""
    domain = Domain.box(2, -3.0, 3.0)
    complex = polyhedral_complex(random_network(2, 3, 2, 1, seed=12), domain)
    visible = {id(facet) for facet in complex.visible()}
    lines = [(facet.neuron[0], id(facet) in visible, segment(complex, facet)) for facet in complex.facets]
    polygons = [polygon(region, domain) for region in complex.regions]
    return complex_figure(polygons, [(a, b, c) for a, b, c in lines if c is not None], domain)


@claim(
    "p4-normal-form",
    "Lemma 2, C.2",
    "a network with one hidden layer has a unique hyperplane representation, for all parameters, generic or not",
)
def unique_form(full: bool) -> Outcome:
    """Small integer weights (nothing generic): exact normal forms agree exactly when the functions do."""
    rng = np.random.default_rng(0)
    wrong = equal = different = 0
    for _ in range(600 if full else 100):
        inputs, hidden = int(rng.integers(1, 4)), int(rng.integers(1, 6))
        first = _integer_layer(rng, inputs, hidden)
        split = rng.integers(0, hidden)
        weight, out = first.weights
        bias = np.array(first.biases[0])
        twin = Mlp(
            [np.concatenate([weight, 2 * weight[[split]]]), np.column_stack([out, 0.5 * out[:, split]])],
            [np.append(bias, 2 * bias[split]), None],
        )
        half = Mlp([twin.weights[0], twin.weights[1] * np.where(np.arange(hidden + 1) == split, 0.0, 1.0)], twin.biases)
        for other in (half, _integer_layer(rng, inputs, hidden)):
            points = np.concatenate([rng.integers(-4, 5, size=(200, inputs)), 7.3 * rng.normal(size=(200, inputs))])
            agree = bool(np.abs(first.evaluate(points) - other.evaluate(points)).max() < 1e-9)
            zero = difference_form(Stack.of(first), Stack.of(other), None, 0.0).residual == 0
            wrong += zero != agree
            equal, different = equal + zero, different + (not zero)
    return Outcome(wrong == 0 and equal > 0 and different > 0, {"equal": equal, "different": different, "wrong": wrong})


def _integer_layer(rng: np.random.Generator, inputs: int, hidden: int) -> Mlp:
    draw = [rng.integers(-2, 3, size=shape) for shape in ((hidden, inputs), (1, hidden), (hidden,))]
    return Mlp(draw[:2], [draw[2], None])


def orthant_head(linear: int, bending: int, inputs: int, outputs: int, seed: int) -> Mlp:
    """A generic minimal network on the orthant with so many linear neurons."""
    rng = np.random.default_rng(seed)
    weight, bias = rng.normal(size=(linear + bending, inputs)), rng.normal(size=linear + bending)
    weight[:linear], bias[:linear] = np.abs(weight[:linear]), np.abs(bias[:linear])
    weight[linear:, 0], bias[linear:] = np.abs(weight[linear:, 0]), -np.abs(bias[linear:])
    return Mlp([weight, rng.normal(size=(outputs, linear + bending))], [bias, rng.normal(size=outputs)])


SIZES = ((0, 3, 2), (1, 3, 2), (2, 4, 3), (2, 2, 3), (3, 3, 3), (1, 3, 1), (2, 4, 2), (2, 3, 1), (3, 5, 2))


@claim(
    "p4-fiber-generic",
    "Proposition (1), C.3",
    "the generic minimal fiber is the disjoint union of sets F_S over the orientations S of the nonlinear neurons",
)
def generic_fiber(full: bool) -> Outcome:
    """Sample every component that is not empty; each sample is the same function, with exactly its own orientation."""
    worst, samples, mixed = 0.0, 0, 0
    for seed, (linear, inputs, outputs) in enumerate(SIZES * (5 if full else 1)):
        network = orthant_head(linear, 3, inputs, outputs, seed)
        fiber = layerwise_fiber(network, Domain.orthant(inputs))
        points = np.abs(probes(inputs, seed, 200))
        scale = np.abs(network.evaluate(points)).max()
        seen = set()
        for component in fiber.components():
            if component.dimension is None:
                continue
            member = fiber.sample(component.flipped, seed)
            worst = max(worst, float(np.abs(member.evaluate(points) - network.evaluate(points)).max() / scale))
            seen.add(_orientation(member, fiber.domain))
            samples += 1
        live = sum(component.dimension is not None for component in fiber.components())
        mixed += len(seen) != live
    return Outcome(worst < 1e-9 and mixed == 0, {"samples": samples, "worst_change": worst, "not_disjoint": mixed})


def _orientation(network: Mlp, domain: Domain) -> frozenset[tuple[float, ...]]:
    """The oriented hyperplanes of a network's bending neurons, rounded."""
    form = normal_form(network, domain)
    rows = np.column_stack([network.weights[0], np.array(network.biases[0])])
    found = []
    for group in form.visible:
        row = rows[group.neurons[0]]
        found.append(tuple(np.round(row / np.abs(row[:-1]).sum(), 8)))
    return frozenset(found)


@claim(
    "p4-fiber-dimension",
    "Theorem 4.2, C.4",
    "k linear neurons, n inputs, m outputs: dimension k^2, n^2, m^2 (if pointed) or m(m+1)+n, in four cases",
)
def fiber_dimension(full: bool) -> Outcome:
    """Measure the dimension at sampled parameters as the corank of the factorisation map; count empty components."""
    wrong = 0
    table = {}
    for linear, inputs, outputs in SIZES:
        empty = live = 0
        for seed in range(10 if full else 2):
            fiber = layerwise_fiber(orthant_head(linear, 3, inputs, outputs, seed), Domain.orthant(inputs))
            for component in fiber.components():
                if component.dimension is None:
                    empty += 1
                    continue
                live += 1
                wrong += fiber_dimension_at(fiber.sample(component.flipped, seed), fiber) != component.dimension
        table[f"k={linear} n={inputs} m={outputs}"] = (
            f"case {fiber.case}: {fiber.dimension}, {live} live, {empty} empty"
        )
        wrong += (fiber.case in (2, 4) and empty > 0) or (fiber.case == 3 and live == 0)
    return Outcome(wrong == 0, table | {"wrong": wrong})


@claim(
    "p4-nonnegative-rank",
    "Propositions 28, 29",
    "rank <= rank+ <= rank + 1, with rank+ = rank exactly if the columns lie in one simplicial cone",
)
def nonnegative_rank(full: bool) -> Outcome:
    """In the plane a cone is simplicial iff the columns span less than a half-turn; in general r + 1 rows suffice."""
    rng = np.random.default_rng(0)
    wrong = counted = pointed = 0
    for _ in range(400 if full else 80):
        columns = rng.normal(size=(2, int(rng.integers(2, 6))))
        least, _ = nonnegative_rank_bounds(columns)
        angles = np.sort(np.arctan2(columns[1], columns[0]))
        gap = np.append(np.diff(angles), angles[0] + 2 * np.pi - angles[-1]).max()
        cone = gap > np.pi  # in the plane: all columns within a half-plane, so inside a simplicial cone
        wrong += least != (2 if cone else 3)
        counted, pointed = counted + 1, pointed + bool(cone)
        left, right = rng.normal(size=(4, 3)), rng.normal(size=(3, 6))
        outer, inner = nonnegative(left, right)
        wrong += inner.shape[0] != 4 or bool((inner < 0).any()) or not np.allclose(outer @ inner, left @ right)
    return Outcome(wrong == 0 and 0 < pointed < counted, {"matrices": counted, "in_one_cone": pointed, "wrong": wrong})


@claim(
    "p4-visible",
    "Theorem of Section 3, B.6",
    "a first-layer hyperplane on which some second-layer neuron is active is visible; only hidden ones are not",
)
def visible(full: bool) -> Outcome:
    """Over random bottlenecks: the hyperplanes with a visible facet are exactly those that are not hidden."""
    wrong = hidden = anchored = 0
    for seed in range(40 if full else 8):
        network = (
            hiding_network(3, 3, 2, 1, neuron=seed % 3, seed=seed)
            if seed % 2
            else random_network(3, 3, 2, 1, seed=seed)
        )
        complex = polyhedral_complex(network)
        shown = {facet.neuron[1] for facet in complex.visible() if facet.neuron[0] == 0}
        for i in range(3):
            facets = complex.bent_hyperplane((0, i))
            active = any((network.activations(facet.point[None])[2] > 1e-9).any() for facet in facets)
            wrong += active != (i in shown)
            hidden, anchored = hidden + (not active), anchored + active
    return Outcome(wrong == 0 and hidden > 0, {"anchored": anchored, "hidden": hidden, "wrong": wrong})


@claim("p4-all-patterns", "Lemma 32", "with n1 <= d every activation pattern of a generic first layer occurs, once")
def all_patterns(full: bool) -> Outcome:
    """Enumerate the regions of first layers."""
    counts = {}
    for inputs, neurons in [(2, 2), (4, 3), (5, 5), (6, 6)] + ([(8, 8), (12, 10)] if full else []):
        keys = [cell.key for cell in cells(Stack.of(random_network(inputs, neurons, 1, seed=inputs)))]
        counts[f"{neurons} in R^{inputs}"] = (len(keys), len(set(keys)), 2**neurons)
    return Outcome(all(a == b == c for a, b, c in counts.values()), {name: value[0] for name, value in counts.items()})


@claim(
    "p4-translation",
    "Section 5",
    "a hidden hyperplane can move by any t that keeps the second biases negative; beyond, the function changes",
)
def translation(full: bool) -> Outcome:
    """Shift to just before the limit and just past it, bottleneck or not."""
    kept, broken = 0.0, np.inf
    for seed, widths in enumerate([(4, 4, 3, 2), (5, 3, 1, 1), (2, 5, 3, 1), (6, 6, 4, 2)] * (10 if full else 2)):
        network = hiding_network(*widths, neuron=1, seed=seed)
        lowest = float((np.array(network.biases[1]) / network.weights[1][:, 1]).max())
        for shift in (0.9999 * lowest, 1.0, 20.0):
            kept = max(kept, distance(network, translate(network, 1, shift), seed))
        biases = [np.array(bias) for bias in network.biases]
        biases[0][1] += 3 * lowest
        biases[1] -= 3 * lowest * network.weights[1][:, 1]
        broken = min(broken, distance(network, Mlp(network.weights, biases), seed))
    return Outcome(kept < 1e-9 and broken > 1e-9, {"change_within": kept, "least_change_past_the_limit": broken})


@claim("p4-flips", "Section 5", "for one second-layer neuron the matrices F_S form a group and keep the function")
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
        worst = max([worst, *(distance(network, flip(network, 1, chosen), seed) for chosen in subsets)])
    return Outcome(
        law == 0 and worst < 1e-9, {"group_law_failures": law, "subsets": len(subsets), "worst_change": worst}
    )


@claim(
    "p4-complete",
    "Section 6",
    "a generic bottleneck fiber holds nothing but permutation, scaling, translation, flips and linear changes",
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
        outside = sum(not fiber.contains(other, 1e-6) for other in found.reached)
        measured[name] = (
            f"tangent {found.dimension}, predicted {fiber.dimension}; {len(found.reached)} reached, {outside} outside"
        )
        wrong += outside + (found.dimension != fiber.dimension) + (len(found.reached) == 0)
    return Outcome(wrong == 0, measured)


@claim(
    "p4-identifiable",
    "Theorem 5",
    "a generic bottleneck is identifiable iff no row of [W2|b2] is all negative or all positive and none is hidden",
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
    return Outcome(
        wrong == 0,
        {"patterns": 64, "identifiable": yes, "predicted": int(identifiable_volume(2, 2) * 64), "wrong": wrong},
    )


@claim(
    "p4-volume",
    "Corollary of Theorem 5",
    "the share of identifiable parameters lies between the printed bounds; exactly (1-2^-n1)^n2 - n1 2^-(n1+1)n2",
)
def volume(full: bool) -> Outcome:
    """Exact formula, both bounds and Monte Carlo over several widths."""
    samples = 400_000 if full else 40_000
    holds = True
    worst = 0.0
    table = {}
    for first, second in ((1, 1), (2, 1), (2, 3), (3, 2), (4, 4), (6, 8), (10, 16)):
        exact, (low, high) = identifiable_volume(first, second), volume_bounds(first, second)
        drawn = sampled_volume(first, second, samples, seed=first)
        spread = max(float(exact * (1 - exact)), 1e-6) ** 0.5 / samples**0.5
        worst = max(worst, abs(drawn - float(exact)) / spread)
        holds &= low <= exact <= high and abs(drawn - float(exact)) < 5 * spread
        table[f"n1={first} n2={second}"] = f"{float(low):.4f} <= {float(exact):.4f} <= {float(high):.4f}"
    return Outcome(bool(holds), table | {"worst_standard_deviations": worst})


@claim(
    "p4-equivalence",
    "E.3",
    "equivalence of generic bottleneck parameters is decided in polynomial time",
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
    }
    return Outcome(bool(holds) and not found.rescaling, measured)


CLAIMS = (
    weights_determine, unique_form, generic_fiber, fiber_dimension, nonnegative_rank, visible, all_patterns,
    translation, flips, complete, sign_criterion, volume, equivalence, not_local,
)  # fmt: skip
