"""Claims of P4 at the smallest widths: one first-layer neuron, and neurons of one hidden layer that face each other."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np

from lawful.errors import CertificateError
from lawful.fibers import Stack
from lawful.fibers.deep.bottleneck import identifiable_volume
from lawful.fibers.deep.identifiability import certificate, identifiable
from lawful.fibers.deep.single_neuron import falls, reverse
from lawful.fibers.same import same
from lawful.fibers.shallow.roles import role_assignments
from lawful.network import Mlp
from lawful.verify import verify
from reproduction.claim import Erratum, Outcome, Size, claim

Ramp = tuple[tuple[int, int, int], ...]  # weight, bias and output weight of every second-layer neuron


def _ramp(neurons: Ramp) -> Mlp:
    """`x → Σ v relu(a relu(x) + c)`."""
    weights, biases, outs = zip(*neurons, strict=True)
    return Mlp([[[1.0]], np.array(weights, dtype=float)[:, None], [list(map(float, outs))]], [[0.0], biases, [0.0]])


def _ramps(width: int) -> list[Mlp]:
    """Generic networks 1-1-n2-1 of small integers, one for every sign pattern of `[W2 | b2]` up to order."""
    sizes = [(1, 2, 1), (2, 3, 3), (1, 5, 5)][:width]
    signs = list(product(product((-1, 1), repeat=2), repeat=width))
    return [
        _ramp(tuple((a * s, c * t, v) for (a, c, v), (s, t) in zip(sizes, pattern, strict=True))) for pattern in signs
    ]


@claim(
    "p4-width-one",
    "Theorem 5, Section 6 and the corollary, for n1 = 1",
    "a first layer of one neuron is reversed if every row of [W2|b2] is (-, +); volume 2^-n2 - 2*4^-n2",
    erratum=Erratum(
        "a generic parameter, n1 <= d, is identifiable unless a row of [W2|b2] is all negative or all positive, or a "
        "hyperplane is hidden",
        "for n1 = 1 also not if every row is (-, +): the first layer reversed has the same function; with a linear "
        "second-layer neuron the first layer can also be hidden",
        "exact comparison of twins for every sign pattern; all small integer networks by function",
    ),
    size=Size("n2 = 1, 2", "n2 = 1 to 3", "every n1 <= d"),
)
def width_one(full: bool) -> Outcome:
    """Every sign pattern of [W2|b2] for one to three second-layer neurons: answers, twins, certificates and volume."""
    wrong = twins = twins_called_identifiable = 0
    shares = {}
    for width in (1, 2, 3) if full else (1, 2):
        networks = _ramps(width)
        yes = 0
        for network in networks:
            answer = identifiable(network)
            yes += answer.identifiable is True
            try:
                verify(certificate(network, answer))
            except CertificateError:
                wrong += 1
            if falls(Stack.of(network)):
                twin = reverse(Stack.of(network)).to_mlp()
                twins += same(network, twin, exact=True).verdict == "equal"
                wrong += answer.identifiable is not False
                printed = all((row < 0).any() and (row > 0).any() for row in Stack.of(network).row(1))
                twins_called_identifiable += printed
        shares[width] = Fraction(yes, len(networks))
        wrong += shares[width] != identifiable_volume(1, width)
    measured = {
        "patterns": sum(4**width for width in shares),
        "shares": {f"n2={width}": str(share) for width, share in shares.items()},
        "twins": twins,
        "wrong": wrong,
    }
    return Outcome(wrong == 0 and twins == len(shares), measured, printed_holds=twins_called_identifiable == 0)


ROWS = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
BIASES = [0.0, 0.0, -1.0, 0.0]
OUTPUTS = [[1.0, 2.0, 1.0, 2.0], [3.0, -1.0, 5.0, -1.0]]


@claim(
    "p4-facing",
    "C.2, Definition 22",
    "two neurons that face each other can move together to another hyperplane; all assignments of roles are enumerated",
    size=Size("40 random layers", "200 random layers", "every network of one hidden layer"),
)
def facing(full: bool) -> Outcome:
    """A pair with two outputs and its twin; then random small layers, each against all members that roles give it."""
    network = Mlp([ROWS, OUTPUTS], [BIASES, [0.0, 0.0]])
    answer = identifiable(network)
    twins = [twin.to_mlp() for twin in answer.twins]
    equal = sum(same(network, twin, exact=True).verdict == "equal" for twin in twins)
    proved = verify(certificate(network, answer)).facts
    rng = np.random.default_rng(0)
    members = wrong = 0
    for _ in range(200 if full else 40):
        rows = rng.integers(-1, 2, size=(4, 2)).astype(float)
        bias = rng.integers(-1, 2, size=4).astype(float)
        rows[1], bias[1] = -rows[0], -bias[0]
        layer = Mlp([rows, rng.integers(-2, 3, size=(2, 4)).astype(float)], [bias, None])
        roles = role_assignments(Stack.of(layer))
        wrong += not roles.found  # the network's own roles are among them
        for assignment in roles.found[:8]:
            member = roles.member(assignment)
            members += 1
            wrong += _gap(layer, member) != 0
    measured = {"twins": len(twins), "equal": equal, "count": answer.count, "members": members, "wrong": wrong}
    counted = proved.get("complete") is True and answer.count == 2 == 1 + equal
    return Outcome(bool(counted and not wrong and answer.identifiable is False), measured)


def _gap(layer: Mlp, member: Stack) -> Fraction:
    """How far two networks differ, in fractions, at points of a grid."""
    grid = [np.array(point, dtype=float) / 2 for point in product(range(-5, 6, 2), repeat=2)]
    first = Stack.of(layer)
    pairs = [zip(first.exact_outputs(x), member.exact_outputs(x), strict=True) for x in grid]
    return max(abs(a - b) for pair in pairs for a, b in pair)


CLAIMS = (width_one, facing)
