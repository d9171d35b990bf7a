"""The standard member of a fiber, and a short hash of it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from lawful.errors import Unsupported
from lawful.fibers.deep.genericity import MOST_MASKS, is_generic, masks
from lawful.fibers.deep.identification import subsets_with_sum
from lawful.fibers.deep.single_neuron import as_one_layer, is_ramp
from lawful.fibers.layers import Array, Stack, floating
from lawful.fibers.reduce import Reduced, head, simplify, standardise
from lawful.fibers.regions.domain import Domain
from lawful.fibers.reparametrisations import Reorder, Rescale
from lawful.fibers.same import SINGLE_TOLERANCE, default_tolerance, same, stack_of
from lawful.fibers.shallow.normal_form import NormalForm, minimal_network, normal_form
from lawful.fibers.verdict import Equal
from lawful.fibers.verdict import certificate as evidence
from lawful.network import Dag, Mlp
from lawful.result import Shown
from lawful.sources.files import Written, stored_as
from lawful.sources.opening import Source, open_graph
from lawful.sources.provenance import with_provenance
from lawful.types import Floats

# The evidence that a standard member of a fiber is on it: the symmetries that lead from the network to it.

ROUNDINGS = 8  # that an entry may carry once neurons are rescaled: its own, and those of the scales


def certificate(
    network: Mlp | Dag, found: Canonical, stored: Written | None = None, seconds: float = 60.0
) -> dict[str, Any]:
    """A certificate of `same` for the two: exactly, or weight by weight where the standard numbers are rounded.

    >>> from lawful.fibers.fingerprint import canonical
    >>> mlp = Mlp([[[4.0, 2.0], [1.0, -1.0]], [[1.0, -1.0]]])
    >>> proof = certificate(mlp, canonical(mlp))
    >>> proof["verdict"], proof["witness"]["ending"]
    ('equal', 'weights')

    If the representative was stored in a smaller type, the certificate is about the numbers in the file.
    """
    member, tolerance = found.network, found.tolerance
    if stored is not None and stored.rounding:
        if "," in stored.dtype:
            raise Unsupported(f"no certificate: {stored.path} rounds weights to several types ({stored.dtype})")
        member = member.with_theta(stored_as(member.theta, stored.dtype))
        tolerance = max(tolerance, ROUNDINGS * stored.relative)
    verdict = same(network, member, tolerance=tolerance, seconds=seconds)
    if not isinstance(verdict, Equal):
        raise Unsupported(
            f"no certificate: the representative is not proved to have the same function ({verdict.verdict})"
        )
    return evidence(verdict, network, member)


MOST_EXACT = 2_000  # parameters up to which a network is brought to its standard place in rationals
MOST_TURNED = 1_000  # sets of turned neurons among which the first is taken
SKETCH = 4  # projections kept of every block of the canonical form


@dataclass(frozen=True, eq=False)
class Canonical(Shown):
    """A representative that depends, in the regime where P4 proves it, on the function alone.

    `complete` says whether equal functions whose forms are complete are sure to have equal representatives: for one
    hidden layer (Lemma 2), which a first layer of one neuron is written as, and for three-layer bottlenecks that are
    proved to be generic (Section 6). Elsewhere it is unique only up to permutation and scaling.
    """

    network: Mlp
    regime: str
    complete: bool
    blocks: tuple[Floats, ...]
    tolerance: float


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """A hash of projections of the canonical form rounded to `digits` after the point, and the projections."""

    hash: str
    regime: str
    complete: bool
    digits: int
    sketch: Floats


def canonical(network: Source, *, tolerance: float | None = None) -> Canonical:
    """Simplify, scale rows to one, put hidden hyperplanes in place, sort neurons, and merge what is linear.

    >>> a = Mlp([[[1.0, 2.0], [3.0, -1.0]], [[1.0, -1.0]]], [[0.5, 0.0], [1.0]])
    >>> b = Mlp([[[6.0, -2.0], [0.5, 1.0]], [[-0.5, 2.0]]], [[0.0, 0.25], [1.0]])
    >>> bool(np.allclose(canonical(a).network.theta, canonical(b).network.theta)), canonical(a).regime
    (True, 'one hidden layer')
    """
    graph = open_graph(network)
    stack = stack_of(graph).floating()
    slack = default_tolerance(stack, stack) if tolerance is None else tolerance
    simple = simplify(Reduced(stack), slack)
    if graph.parameters <= MOST_EXACT:
        exactly = simplify(Reduced(stack.rational()), 0.0)
        # rationals, in which a zero stays zero, unless rounded weights are to be excused
        simple, slack = (exactly, 0.0) if exactly.stack.widths == simple.stack.widths else (simple, slack)
    reduced = standardise(simple, slack)
    if is_ramp(reduced.stack):  # bends in one direction: a function of one hidden layer, and canonical as that
        line = as_one_layer(reduced.stack)
        reduced = standardise(simplify(Reduced(line if reduced.stack.exact else line.floating()), slack), slack)
    for layer in range(1, reduced.stack.hidden):
        reduced = reduced.then(Reorder(layer, _sorted_rows(floating(reduced.stack.row(layer - 1)))), slack)
    stack = reduced.stack
    slack = default_tolerance(stack, stack) if tolerance is None else tolerance
    below = max(stack.hidden - 1, 0)
    relu_below = below > 0 and stack.slopes[below - 1] == 0.0
    domain = Domain.orthant(stack.widths[below]) if relu_below else Domain.space(stack.widths[below])
    form = normal_form(head(stack, below).floating(), domain, tolerance=slack)
    exact = normal_form(head(stack, below), domain, tolerance=0.0)
    top = _standard_top(form, exact, stack.hidden)
    if len(exact.visible) == len(form.visible) and stack.exact:
        form = exact
    stack = stack.floating()
    whole = Stack(
        (*stack.weights[:below], *top.weights),
        (*stack.biases[:below], *top.biases),
        (*stack.slopes[:below], *top.slopes),
    )
    regime, complete = _regime(stack, stack_of(graph))
    complete = complete and len(exact.visible) == len(form.visible)
    blocks = [stack.row(layer) for layer in range(below)] + _form_blocks(form)
    return with_provenance(Canonical(whole.to_mlp(), regime, complete, tuple(blocks), slack), graph)


def fingerprint(network: Source, *, digits: int | None = None) -> Fingerprint:
    """Equal functions get equal hashes where `complete` says so, up to numbers that rounding splits.

    What is hashed are sums of logarithms: every single entry counts by its own relative size, however small. They are
    rounded to 6 digits after the point for double precision, 2 for single. A hash is a name to look up, not a proof:
    two networks that share one may differ by less than its digits, and only `same` tells.
    """
    graph = open_graph(network)
    form = canonical(graph)
    places = (2 if form.tolerance >= SINGLE_TOLERANCE else 6) if digits is None else digits
    sketches = np.array([sketch_block(block, number) for number, block in enumerate(form.blocks)])
    words = [f"{value:.{places}f}" for value in sketches.sum(axis=0) + 0.0]
    shapes = [str(block.shape) for block in form.blocks]
    code = hashlib.sha256("|".join([*shapes, *words]).encode()).hexdigest()[:32]
    return with_provenance(Fingerprint(code, form.regime, form.complete, places, sketches.ravel()), graph)


class Library:
    """Fingerprints seen so far, found again by their projections whether or not rounding split a digit of the hash."""

    def __init__(self) -> None:
        self._sketches: dict[int, Floats] = {}
        self._places: dict[int, list[int]] = {}

    def add(self, found: Fingerprint, place: int) -> None:
        """Remember a fingerprint under a number."""
        size = len(found.sketch)
        places = self._places.setdefault(size, [])
        table = self._sketches.setdefault(size, np.zeros((16, size)))
        if len(places) == len(table):
            table = self._sketches[size] = np.concatenate([table, np.zeros_like(table)])
        table[len(places)] = found.sketch
        places.append(place)

    def find(self, found: Fingerprint) -> int | None:
        """The number of the first fingerprint with the same projections up to rounding."""
        places = self._places.get(len(found.sketch), [])
        table = self._sketches.get(len(found.sketch), np.zeros((0, len(found.sketch))))[: len(places)]
        near = np.flatnonzero((np.abs(table - found.sketch) <= 10.0**-found.digits).all(axis=1))
        return places[near[0]] if len(near) else None


def sketch_block(block: Floats, number: int) -> Floats:
    """Fixed combinations of the logarithms and the signs of a block's entries; rounding moves them little.

    Every block has factors of its own: as the sketches are added up, blocks of one size could else be exchanged.
    """
    flat = block.ravel()
    probes = np.random.default_rng([number, flat.size]).uniform(0.5, 1.5, size=(SKETCH, flat.size))
    with np.errstate(divide="ignore"):
        logs = np.log2(np.abs(flat))
    return np.asarray(probes @ np.where(np.isfinite(logs), logs, 0.0) + probes[::-1] @ (16.0 * np.sign(flat)))


def _standard_top(form: NormalForm, exact: NormalForm, hidden: int) -> Stack:
    """The last layers, chosen by the function alone.

    Each hyperplane has one neuron. Which of them are turned is chosen so that no linear part is left, if that can be:
    of all such sets the first, in a standard order of the hyperplanes.
    """
    if hidden == 0:
        return Stack((form.matrix,), (form.offset,), ())
    turned = _turn(exact)
    if turned is None or len(exact.visible) != len(form.visible):
        top = minimal_network(form)  # rounding shows as bends: what the network has must do
        if len(top.biases[0]) > len(form.visible):
            top = minimal_network(form, oriented=False)
    else:
        top = minimal_network(exact, turned=turned).floating()
    rows = np.abs(top.weights[0]).sum(axis=1)
    top = Rescale(1, tuple(1 / np.where(rows > 0, rows, 1.0))).apply(top)
    return Reorder(1, _sorted_rows(top.row(0))).apply(top)


def _turn(exact: NormalForm) -> frozenset[int] | None:
    """The neurons to turn so that nothing linear is left; none if something always is, None if that is not decided."""
    planes = exact.visible
    keys = [[(item.p, item.q) for item in group.hyperplane] for group in planes]
    order = sorted(range(len(planes)), key=lambda k: [Fraction(int(p), int(q)) for p, q in keys[k]])
    terms = [np.outer(planes[k].jump, planes[k].hyperplane[:-1]).ravel() for k in order]
    subsets = subsets_with_sum(terms, -exact.matrix.ravel(), MOST_TURNED)
    if subsets is None or len(subsets) == MOST_TURNED:
        return None
    return frozenset(order[k] for k in min(subsets)) if subsets else frozenset()


def _floats(values: Any) -> Floats:
    return floating(np.asarray(values))


def _sorted_rows(rows: Array) -> tuple[int, ...]:
    probe = np.random.default_rng(rows.shape[1]).uniform(0.5, 1.5, size=rows.shape[1])
    return tuple(int(k) for k in np.argsort(rows @ probe, kind="stable"))


def _form_blocks(form: NormalForm) -> list[Floats]:
    """The unique data of a normal form: sorted hyperplanes, their jumps, the affine map."""
    count, outputs = form.matrix.shape[1] + 1, len(form.offset)
    planes = _floats([group.hyperplane for group in form.visible]).reshape(-1, count)
    jumps = _floats([group.jump for group in form.visible]).reshape(-1, outputs)
    order = list(_sorted_rows(planes))
    affine = _floats(np.column_stack([form.matrix, form.offset]))
    noise = form.tolerance * np.column_stack([form.matrix_scale, form.offset_scale])
    return [planes[order], jumps[order], np.where(np.abs(affine) > noise, affine, 0.0)]


def _regime(stack: Stack, given: Stack) -> tuple[str, bool]:
    """What the form is worth, decided on the weights as they were given."""
    if stack.hidden <= 1:
        return "one hidden layer", True
    bottleneck = stack.hidden == 2 and stack.slopes == (0.0, 0.0) and 2 <= stack.widths[1] <= stack.widths[0]
    if bottleneck and given.hidden == 2 and masks(stack) <= MOST_MASKS:
        exact = simplify(Reduced(given.rational()), 0.0).stack
        if exact.widths == stack.widths and is_generic(exact).holds:
            return "generic three-layer bottleneck", True
    return "permutation and scaling only", False
