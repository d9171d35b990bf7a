"""Claims of P4 about one hidden layer and the geometry of regions (Sections 2 to 4)."""

from __future__ import annotations

import numpy as np

from lawful.fibers import Domain, Stack, cells, normal_form
from lawful.fibers.random_members import hiding_network, random_network
from lawful.fibers.regions.count import draw_regions, polyhedral_complex, ridges
from lawful.fibers.shallow.fiber import layerwise_fiber
from lawful.fibers.shallow.normal_form import difference_form, nonnegative
from lawful.network import Mlp
from lawful.report.structure.fibers import complex_figure
from reproduction.claim import Outcome, Size, claim
from reproduction.claims.extremes import largest
from reproduction.formulas import fiber_dimension_at, nonnegative_rank


def probes(inputs: int, seed: int = 0, count: int = 2000) -> np.ndarray:
    """Inputs near and far."""
    rng = np.random.default_rng(seed)
    return np.concatenate([scale * rng.normal(size=(count, inputs)) for scale in (0.3, 3.0, 30.0)])


@claim(
    "p4-weights-determine",
    "Theorem 1, Lemma 7, Proposition 17",
    "gradient jumps across facets balance at every ridge and determine the function up to one affine map",
    size=Size("3 networks", "12 networks", "every network"),
)
def weights_determine(full: bool) -> Outcome:
    """Balance every ridge; then rebuild all affine maps from one region and the jumps alone."""
    worst = rebuilt = 0.0
    facets = crossings = 0
    for seed, widths in enumerate([(2, 4, 3, 2), (3, 3, 2, 1), (2, 3, 2, 2, 1)] * (4 if full else 1)):
        complex = polyhedral_complex(random_network(*widths, seed=seed))
        found = ridges(complex)
        facets, crossings = facets + len(complex.facets), crossings + len(found)
        worst = largest([worst, *(ridge.imbalance for ridge in found)])
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
        rebuilt = largest(rebuilt, float(largest(errors)))
    measured = {"facets": facets, "ridges": crossings, "worst_imbalance": worst, "worst_rebuilt_gradient": rebuilt}
    return Outcome(
        bool(worst < 1e-9 and rebuilt < 1e-9 and crossings > 0),
        measured,
        figure=complex_figure(*draw_regions(random_network(2, 3, 2, 1, seed=12), (-3.0, 3.0))),
    )


@claim(
    "p4-normal-form",
    "Lemma 2, C.2",
    "a network with one hidden layer has a unique hyperplane representation, for all parameters, generic or not",
    size=Size("200 pairs of at most 5 neurons", "1200 pairs of at most 5 neurons", "every one-layer network"),
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
    size=Size("9 sizes (k, n, m)", "9 sizes, five draws each", "every generic minimal parameter"),
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
            worst = largest(worst, float(np.abs(member.evaluate(points) - network.evaluate(points)).max() / scale))
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
    size=Size("9 sizes, two draws each", "9 sizes, ten draws each", "every generic minimal parameter"),
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
    size=Size("80 matrices", "400 matrices", "every matrix"),
)
def one_more_row(full: bool) -> Outcome:
    """In the plane a cone is simplicial iff the columns span less than a half-turn; in general r + 1 rows suffice."""
    rng = np.random.default_rng(0)
    wrong = counted = pointed = 0
    for _ in range(400 if full else 80):
        columns = rng.normal(size=(2, int(rng.integers(2, 6))))
        least = nonnegative_rank(columns)
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
    size=Size("8 networks 3-3-2-1", "40 networks 3-3-2-1", "every generic bottleneck"),
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


@claim(
    "p4-all-patterns",
    "Lemma 32",
    "with n1 <= d every activation pattern of a generic first layer occurs, once",
    size=Size("up to 6 neurons in R^6", "up to 10 neurons in R^12", "every n1 <= d"),
)
def all_patterns(full: bool) -> Outcome:
    """Enumerate the regions of first layers."""
    counts = {}
    for inputs, neurons in [(2, 2), (4, 3), (5, 5), (6, 6)] + ([(8, 8), (12, 10)] if full else []):
        keys = [cell.key for cell in cells(Stack.of(random_network(inputs, neurons, 1, seed=inputs)))]
        counts[f"{neurons} in R^{inputs}"] = (len(keys), len(set(keys)), 2**neurons)
    return Outcome(all(a == b == c for a, b, c in counts.values()), {name: value[0] for name, value in counts.items()})


CLAIMS = (
    weights_determine, unique_form, generic_fiber, fiber_dimension, one_more_row, visible, all_patterns,
)  # fmt: skip
