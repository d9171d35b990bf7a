"""Sentences about neurons that can go against plain enumeration of inputs and of stand-ins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
from degenerate_networks import agree, describe, networks, points, rank, sums, values, without
from falsification import Trial

from lawful.network import Mlp
from lawful.pruning.neurons.prune import prune
from lawful.pruning.removable.activity import settle
from lawful.pruning.removable.smallest import smallest_equivalent
from lawful.report.structure.network import summary_text
from lawful.report.structure.pruning import decided_sentence, pruning_text, smallest_sentence
from lawful.sentences import pruning as says
from lawful.sources.summary import summarise


def replaceable(network: Mlp, layer: int, neuron: int) -> bool:
    """Whether some small stand-in keeps the outputs at all inputs tried (fractions for the last hidden layer)."""
    width = network.widths[layer + 1]
    if layer == len(network.weights) - 2:
        if not network.weights[-1][:, neuron].any():
            return True
        rows = [[max(v, Fraction(0)) for v in each[layer]] for each in values(network)]
        others = [[*(v for k, v in enumerate(row) if k != neuron), Fraction(1)] for row in rows]
        return rank(others) == rank([[*other, row[neuron]] for other, row in zip(others, rows, strict=True)])
    choices = product((0, 1, -1, 2), repeat=width - 1)
    constants = [Fraction(k, 2) for k in range(-4, 9)]
    few = points(network)[:: max(1, len(points(network)) // 40)]
    before = [sums(network, point)[-1] for point in few]
    for chosen in choices:
        for constant in constants:
            other = without(network, layer, neuron, chosen, constant)
            if all(sums(other, p)[-1] == y for p, y in zip(few, before, strict=True)) and agree(network, other):
                return True
    return False


def all_needed() -> Iterator[Trial]:
    for network in networks(24, seed=1):
        pruning = prune(network, decide=2.0)
        left = pruning.network
        if not isinstance(left, Mlp) or not pruning.neurons_after or pruning.rounding:
            continue
        needed = not any(
            replaceable(left, layer, neuron) for layer, width in enumerate(left.widths[1:-1]) for neuron in range(width)
        )
        yield Trial(describe(left), decided_sentence(pruning) == says.all_needed(pruning.neurons_after), needed)
        # the same words about the network before would be false where something went
        gone = pruning.neurons_after < pruning.neurons_before
        yield Trial(f"before: {describe(network)}", False, not gone)


def some_needed() -> Iterator[Trial]:
    """As if time had ended after half of the neurons: those called needed are."""
    for network in networks(16, seed=2, widths=((1, 2, 2, 1), (2, 2, 1))):
        pruning = prune(network, decide=2.0)
        found, left = pruning.decided, pruning.network
        if found is None or not isinstance(left, Mlp) or len(found.needed) < 2:
            continue
        first, *others = found.needed
        halved = replace(found, needed={first: found.needed[first]}, undecided=dict.fromkeys(others, "no time"))
        places = {name: (layer, k) for layer, names in enumerate(found.layers) for k, name in enumerate(names)}
        words = decided_sentence(replace(pruning, decided=halved))
        said = words == says.some_needed(1, len(others), "no time")
        yield Trial(describe(left), said, not replaceable(left, *places[first]))
    silent = Mlp([[[1.0], [2.0]], [[1.0, 0.0]]], [[0.0, 1.0], [0.0]])
    yield Trial("said of a silent neuron", False, not replaceable(silent, 0, 1))


def same_function() -> Iterator[Trial]:
    for network in networks(24, seed=3):
        pruning = prune(network, decide=1.0)
        if pruning.rounding or not isinstance(pruning.network, Mlp):
            continue
        said = says.same_function(says.EVERYWHERE, 0.0, "") in pruning_text(pruning, None, None)
        yield Trial(describe(network), said, agree(network, pruning.network))
        broken = without(network, 0, 0)
        yield Trial(f"first neuron gone: {describe(network)}", False, agree(network, broken))


def moves_at_most() -> Iterator[Trial]:
    rng = np.random.default_rng(4)
    for seed in range(4):
        network = Mlp([rng.normal(size=(5, 2)), rng.normal(size=(1, 5))], [rng.normal(size=5), rng.normal(size=1)])
        pruning = prune(network, tolerance=0.3, box=(-1.0, 1.0), seconds=1.0)
        text = pruning_text(pruning, None, None)
        inside = np.random.default_rng(seed).uniform(-1, 1, size=(4000, 2))
        moved = float(np.abs(network.evaluate(inside) - pruning.network.evaluate(inside)).max())
        stated = text.split("no output moves by more than ")[-1].split()[0] if "moves" in text else "0"
        yield Trial(f"{seed}: {stated}", "no output moves by more than" in text, moved <= float(stated) + 1e-12)
        yield Trial(f"{seed}: half of what moves", False, moved <= moved / 2)
    for value in (0.203236675, 1.0005, 1e-17):
        yield Trial(f"{value}", True, Fraction(says.moves_at_most(value, "").split()[-1]) >= Fraction(value))


def compared() -> Iterator[Trial]:
    for value in (0.203236675, 1.0 / 3.0, 2.0**-40, 7e9):
        stated = says.compared(value).split("at most ")[1].split()[0]
        yield Trial(f"{value} as {stated}", True, Fraction(stated) >= Fraction(value))
        yield Trial(f"{value} to nearest", False, Fraction(f"{value:.1g}") > Fraction(value))


def activities(network: Mlp) -> list[tuple[bool, bool]]:
    """Of every hidden neuron, whether its sum is ever positive, and whether it is ever negative."""
    seen = values(network)
    return [
        (any(each[layer][k] > 0 for each in seen), any(each[layer][k] < 0 for each in seen))
        for layer, width in enumerate(network.widths[1:-1])
        for k in range(width)
    ]


def of_summary(which: str) -> Iterator[Trial]:
    for network in networks(32, seed=5):
        found = settle(summarise(network), network, seconds=1.0)
        text, sides = summary_text(found), activities(network)
        names = [f"h{layer + 1}.{k}" for layer, width in enumerate(network.widths[1:-1]) for k in range(width)]
        dead = {name for name, (on, _) in zip(names, sides, strict=True) if not on}
        linear = {name for name, (on, off) in zip(names, sides, strict=True) if on and not off}
        said, true = {
            "none_dead": (says.none_dead() in text, not dead),
            "none_linear": (says.none_linear() in text, not linear),
            "some_dead": (bool(found.dead), set(found.dead or ()) == dead),
            "some_linear": (bool(found.linear), set(found.linear or ()) == linear),
        }[which]
        yield Trial(describe(network), said, true)
    yield Trial("another list", False, False)


def smallest() -> Iterator[Trial]:
    """One input: every break point has a neuron, and each of the two ends has its slope; counted by hand."""
    for network in networks(30, seed=6, widths=((1, 2, 1), (1, 3, 1), (1, 4, 1))):
        found = smallest_equivalent(network)
        said = found.exact and smallest_sentence(found) == says.smallest(found.lower, 1)
        yield Trial(describe(network), said, found.lower == fewest(network))
        yield Trial(f"one less: {describe(network)}", False, found.lower - 1 == fewest(network))


def smallest_bounds() -> Iterator[Trial]:
    for network in networks(24, seed=7, widths=((1, 2, 1), (1, 3, 1), (1, 2, 2, 1), (1, 1, 1, 1))):
        known = prune(network, decide=1.0).neurons_after
        found = smallest_equivalent(network, known)
        if len(network.weights) == 2:
            yield Trial(describe(network), False, found.lower <= fewest(network) <= found.upper)
            continue
        slopes = [sums(network, (Fraction(k) + Fraction(1, 16),))[-1] for k in range(-40, 41)]
        moving = len({tuple(each) for each in slopes}) > 1
        true = found.lower <= known and (found.lower == 0 or moving) and found.upper == known
        yield Trial(describe(network), not found.exact, true)
    assert says.smallest_bounds(2, 3, 2).endswith("2 to 3")
    yield Trial("0 neurons of |x|", False, False)


def fewest(network: Mlp) -> int:
    """The fewest ReLU neurons of a function of one number: a neuron a break, unless no choice of sides has the slopes.

    With one neuron a break of jump J, its side adds J to the slope at the right end, or −J at the left: the slopes at
    the left end that can be had are sums −Σ_S J. One more neuron, doubling a break, makes any slope; without a break
    a slope that is not 0 takes two.
    """
    grid = [Fraction(k, 2) for k in range(-6, 7)]  # weights of 0, 1, 2 and biases up to 4 bend at halves alone
    heights = [sums(network, (x,))[-1][0] for x in grid]
    slopes = [(b - a) * 2 for a, b in pairwise(heights)]
    jumps = [b - a for a, b in pairwise(slopes) if a != b]
    left = slopes[0]
    if not jumps:
        return 0 if left == 0 else 2
    possible = {-sum(chosen, Fraction(0)) for chosen in product(*((Fraction(0), jump) for jump in jumps))}
    return len(jumps) + (0 if left in possible else 1)


FALSIFIERS = {
    "pruning.all_needed": all_needed,
    "pruning.compared": compared,
    "pruning.moves_at_most": moves_at_most,
    "pruning.none_dead": lambda: of_summary("none_dead"),
    "pruning.none_linear": lambda: of_summary("none_linear"),
    "pruning.same_function": same_function,
    "pruning.smallest": smallest,
    "pruning.smallest_bounds": smallest_bounds,
    "pruning.some_dead": lambda: of_summary("some_dead"),
    "pruning.some_linear": lambda: of_summary("some_linear"),
    "pruning.some_needed": some_needed,
}
