"""Re-check a certificate of `same` with plain arithmetic; nothing here searches."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import flint
import numpy as np

from lawful.errors import CertificateError, LawfulError
from lawful.fibers.domain import Domain
from lawful.fibers.region_proof import check
from lawful.fibers.stack import Array, Stack, floating
from lawful.fibers.symmetry import Collapse, Drop, Flip, Merge, Quiet, Reorder, Rescale, SymmetryStep, Translate

STEPS: dict[str, type] = {
    kind.__name__.lower(): kind for kind in (Reorder, Rescale, Drop, Quiet, Merge, Collapse, Translate, Flip)
}


def verify(certificate: dict[str, Any]) -> None:
    """Raise `CertificateError` unless the certificate proves its verdict about the two networks it carries."""
    try:
        first, second = (_read_stack(network) for network in certificate["networks"])
        tolerance = float(certificate["tolerance"])
        domain = _read_domain(certificate.get("box"), first.widths[0])
        verdict = certificate["verdict"]
        if verdict == "equal":
            _verify_equal(first, second, certificate["witness"], domain, tolerance)
        elif verdict == "different":
            _verify_different(first, second, certificate.get("counterexample"), domain, tolerance)
        else:
            raise CertificateError(f"a certificate proves equal or different, not {str(verdict)[:40]!r}")
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError) as error:
        raise CertificateError(f"the certificate is damaged: {type(error).__name__} {error}") from None
    except CertificateError:
        raise
    except LawfulError as error:
        raise CertificateError(str(error)) from None


def _verify_different(first: Stack, second: Stack, found: Any, domain: Domain, tolerance: float) -> None:
    if found is None:
        if first.widths[0] == second.widths[0] and first.widths[-1] == second.widths[-1]:
            raise CertificateError("the sizes agree, and there is no input on which the outputs differ")
        return
    point = [Fraction(float(value)) for value in found["input"]]
    if not domain.contains([float(value) for value in point]):
        raise CertificateError("the input lies outside the box")
    outputs = [_evaluate(stack, point) for stack in (first, second)]
    if [[str(value) for value in values] for values in outputs] != found["exact_outputs"]:
        raise CertificateError("the networks do not have the stated outputs at this input")
    sizes = [_evaluate(stack, point, size=True) for stack in (first, second)]
    layers = max(len(first.weights), len(second.weights))
    slack = Fraction(tolerance) * layers * Fraction(999_999, 1_000_000)  # the finder rounded this bound
    if not any(abs(a - b) > slack * max(p, q) for a, b, p, q in zip(*outputs, *sizes, strict=True)):
        raise CertificateError("the outputs differ by no more than the tolerance excuses")


def _evaluate(stack: Stack, point: list[Fraction], *, size: bool = False) -> list[Fraction]:
    """The outputs at a point, or with `size` the sum of absolute values of all their terms, in plain fractions."""
    measure: Callable[[Any], Any] = abs if size else lambda value: value
    values = [measure(value) for value in point]
    for weight, bias, slope in zip(stack.weights, stack.biases, (*stack.slopes, 1.0), strict=True):
        summed = []
        for row, shift in zip(weight.tolist(), bias.tolist(), strict=True):
            total = measure(Fraction(shift))
            for entry, value in zip(row, values, strict=True):
                if entry and value:
                    total += measure(Fraction(entry)) * value
            summed.append(total)
        gain = max(Fraction(1), abs(Fraction(slope)))
        values = [value * gain if size else value if value > 0 else Fraction(slope) * value for value in summed]
    return values


def _verify_equal(first: Stack, second: Stack, witness: dict[str, Any], domain: Domain, tolerance: float) -> None:
    exact = tolerance == 0
    ends = []
    for stack, steps in ((first, witness["first"]), (second, witness["second"])):
        moved = stack.rational() if exact else stack
        for text in steps:
            step = _read_step(text)
            if isinstance(step, Quiet) and not (domain.bounded and domain.within(step.low, step.high)):
                raise CertificateError("a neuron was dropped as quiet on a box that does not contain the question's")
            moved = step.apply(moved, tolerance)
        ends.append(moved)
    ours, theirs = ends
    match witness["ending"]:
        case "weights":
            _check_rows(ours, theirs, len(ours.weights), tolerance)
        case "normal form":
            _check_rows(ours, theirs, len(ours.weights) - 2, tolerance)
            _check_heads(ours, theirs, witness["groups"], domain, tolerance)
        case "regions" if exact:
            check(witness["decisions"], ours, theirs, domain)
        case other:
            raise CertificateError(f"{str(other)[:40]!r} cannot be re-checked from a certificate: run `same` again")


def _check_rows(ours: Stack, theirs: Stack, layers: int, tolerance: float) -> None:
    """The first layers agree entry by entry, relative to the largest entry of each row."""
    if ours.widths[: layers + 1] != theirs.widths[: layers + 1] or ours.slopes[:layers] != theirs.slopes[:layers]:
        raise CertificateError("the steps do not lead to networks of one shape")
    for layer in range(max(layers, 0)):
        for number, (mine, yours) in enumerate(zip(ours.row(layer), theirs.row(layer), strict=True)):
            gaps, sizes = np.abs(floating(mine - yours)), np.maximum(np.abs(floating(mine)), np.abs(floating(yours)))
            if tolerance == 0:
                wrong = any(item != 0 for item in mine - yours)
            else:
                apart = max(gaps[:-1], default=0.0) > tolerance * max(sizes[:-1], default=0.0)
                wrong = apart or gaps[-1] > tolerance * max(sizes) or not np.isfinite(sizes).all()
            if wrong:
                raise CertificateError(f"layer {layer + 1}, neuron {number}: the weights differ after the steps")


def _check_heads(ours: Stack, theirs: Stack, groups: list[list[list[int]]], domain: Domain, tolerance: float) -> None:
    """Above the last common layer: on every hyperplane the bends cancel, and so does what remains affine."""
    if ours.hidden != theirs.hidden:
        raise CertificateError("the steps do not lead to networks of one depth")
    layer = ours.hidden - 1
    for below in range(layer):
        domain = domain.through(ours.row(below), ours.slopes[below])
    sides = (ours, theirs) if layer >= 0 else ()
    affine = ours.row(-1) - theirs.row(-1) if layer < 0 else _constant(ours, theirs, layer)
    size = np.abs(floating(affine))
    unseen = {(side, neuron) for side, stack in enumerate(sides) for neuron in range(len(stack.weights[layer]))}
    for group in groups:
        members = [(int(side), int(neuron)) for side, neuron in group]
        if not unseen.issuperset(members) or len(set(members)) < len(members):
            raise CertificateError("a neuron is in two groups")
        unseen.difference_update(members)
        lead = sides[members[0][0]].row(layer)[members[0][1]]
        pivot = int(np.argmax(np.abs(floating(lead))))
        jump, bulk = affine[:, 0] * 0, size[:, 0] * 0
        for side, neuron in members:
            row, out, leak = _neuron(sides, layer, side, neuron)
            factor = row[pivot] / lead[pivot]
            _near(row - factor * lead, np.abs(floating(row)).max(), tolerance, "neurons of a group differ in direction")
            jump, bulk = jump + out * abs(factor) * (1 - leak), bulk + np.abs(floating(out * factor))
            share = leak if factor > 0 else 1  # relu(−z) = relu(z) − z, and a leaky neuron keeps `leak z`
            affine = affine + np.outer(out * share, row)
            size = size + np.outer(np.abs(floating(out)), np.abs(floating(row)))
        _near(jump, bulk.max(initial=0.0), tolerance, "the bends on a hyperplane do not cancel")
    for side, neuron in unseen:
        row, out, leak = _neuron(sides, layer, side, neuron)
        low, high = domain.range(row)
        if not (low >= 0 or high <= 0):
            raise CertificateError("a neuron that bends is in no group")
        gain = 1 if low >= 0 and not high <= 0 else leak
        affine = affine + np.outer(out * gain, row)
        size = size + np.outer(np.abs(floating(out)), np.abs(floating(row)))
    _near(affine[:, :-1].ravel(), size[:, :-1].max(initial=0.0), tolerance, "the linear parts differ")
    _near(affine[:, -1], size[:, -1].max(initial=0.0), tolerance, "the constant parts differ")


def _constant(ours: Stack, theirs: Stack, layer: int) -> Array:
    width = ours.weights[layer].shape[1]
    bias = ours.biases[-1] - theirs.biases[-1]
    return np.concatenate([np.outer(bias, np.zeros(width, dtype=int)), bias[:, None]], axis=1)


def _neuron(sides: tuple[Stack, ...], layer: int, side: int, neuron: int) -> tuple[Array, Array, Any]:
    stack = sides[side]
    slope = stack.slopes[layer]
    leak = flint.fmpq(*slope.as_integer_ratio()) if stack.exact else slope
    out = stack.weights[layer + 1][:, neuron]
    return stack.row(layer)[neuron], out if side == 0 else -out, leak


def _near(values: Array, size: float, tolerance: float, complaint: str) -> None:
    wrong = (
        any(v != 0 for v in values)
        if tolerance == 0
        else not float(np.abs(floating(values)).max(initial=0.0)) <= tolerance * size < np.inf
    )
    if wrong:
        raise CertificateError(complaint)


def _read_stack(network: dict[str, Any]) -> Stack:
    weights = tuple(np.array(weight, dtype=np.float64) for weight in network["weights"])
    biases = tuple(np.array(bias, dtype=np.float64) for bias in network["biases"])
    slopes = tuple(float(slope) for slope in network["slopes"])
    if not weights or len(biases) != len(weights) or len(slopes) != len(weights) - 1:
        raise CertificateError("a network in the certificate has layers missing")
    fits = all(
        bias.shape == weight.shape[:1] and weight.ndim == 2 for weight, bias in zip(weights, biases, strict=True)
    )
    if not fits or not all(below.shape[0] == above.shape[1] for below, above in pairwise(weights)):
        raise CertificateError("a network in the certificate has layers that do not fit")
    if not all(np.isfinite(array).all() for array in (*weights, *biases, np.array(slopes))):
        raise CertificateError("a network in the certificate has numbers that are not finite")
    return Stack(weights, biases, slopes)


def _read_domain(box: Any, inputs: int) -> Domain:
    return Domain.space(inputs) if box is None else Domain.box(inputs, box[0], box[1])


def _read_step(step: dict[str, Any]) -> SymmetryStep:
    known = STEPS.get(str(step.get("do")))
    if known is None:
        raise CertificateError(f"unknown step {str(step.get('do'))[:40]!r}")
    values = {key: _read(value) for key, value in step.items() if key != "do"}
    found: SymmetryStep = known(**values)
    return found


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_read(item) for item in value)
    if isinstance(value, str):
        fraction = Fraction(value)
        return flint.fmpq(fraction.numerator, fraction.denominator)
    return value
