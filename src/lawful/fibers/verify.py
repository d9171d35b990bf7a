"""Re-check a certificate of `same` with plain arithmetic; nothing here searches."""

from __future__ import annotations

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
        float(certificate["tolerance"])
        domain = _read_domain(certificate.get("box"), first.widths[0])
        verdict = certificate["verdict"]
        if verdict == "equal":
            _verify_equal(first, second, certificate["witness"], domain, certificate["within"])
        elif verdict == "different":
            _verify_different(first, second, certificate.get("counterexample"), domain)
        else:
            raise CertificateError(f"a certificate proves equal or different, not {str(verdict)[:40]!r}")
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError) as error:
        raise CertificateError(f"the certificate is damaged: {type(error).__name__} {error}") from None
    except CertificateError:
        raise
    except LawfulError as error:
        raise CertificateError(str(error)) from None


def _verify_different(first: Stack, second: Stack, found: Any, domain: Domain) -> None:
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
    if outputs[0] == outputs[1]:
        raise CertificateError("the outputs do not differ")


def _evaluate(stack: Stack, point: list[Fraction]) -> list[Fraction]:
    """The outputs at a point in plain fractions."""
    values = point
    for weight, bias, slope in zip(stack.weights, stack.biases, (*stack.slopes, 1.0), strict=True):
        summed = []
        for row, shift in zip(weight.tolist(), bias.tolist(), strict=True):
            terms = (_fraction(entry) * value for entry, value in zip(row, values, strict=True) if entry and value)
            summed.append(sum(terms, _fraction(shift)))
        values = [value if value > 0 else Fraction(slope) * value for value in summed]
    return values


def _fraction(value: Any) -> Fraction:
    return Fraction(int(value.p), int(value.q)) if isinstance(value, flint.fmpq) else Fraction(value)


def _verify_equal(first: Stack, second: Stack, witness: dict[str, Any], domain: Domain, within: dict[str, Any]) -> None:
    kind, value = within["kind"], Fraction(float(within["value"]))
    ends = []
    for stack, steps in ((first, witness["first"]), (second, witness["second"])):
        moved = stack.rational()
        for text in steps:
            step = _read_step(text)
            if isinstance(step, Quiet) and not (domain.bounded and domain.within(step.low, step.high)):
                raise CertificateError("a neuron was dropped as quiet on a box that does not contain the question's")
            moved = step.apply(moved, 0.0)
        ends.append(moved)
    ours, theirs = ends
    if (kind == "exactly") != (value == 0) or value < 0 or (kind == "weights" and value >= 1):
        raise CertificateError("the certificate does not say how far the networks agree")
    match witness["ending"], kind:
        case "weights", "exactly" | "weights":
            _check_rows(ours, theirs, len(ours.weights), value)
        case "normal form", "exactly" | "weights":
            _check_rows(ours, theirs, len(ours.weights) - 2, value)
            _check_heads(ours, theirs, witness["groups"], domain, value)
        case "regions", "exactly":
            check(witness["decisions"], ours, theirs, domain)
        case other:
            raise CertificateError(f"{str(other)[:40]!r} cannot be re-checked from a certificate: run `same` again")


def _check_rows(ours: Stack, theirs: Stack, layers: int, most: Fraction) -> None:
    """The first layers agree entry by entry, each within a share of the smaller of the two."""
    if ours.widths[: layers + 1] != theirs.widths[: layers + 1] or ours.slopes[:layers] != theirs.slopes[:layers]:
        raise CertificateError("the steps do not lead to networks of one shape")
    for layer in range(max(layers, 0)):
        _alike(ours.row(layer), theirs.row(layer), most, f"layer {layer + 1}: the weights differ after the steps")


def _check_heads(ours: Stack, theirs: Stack, groups: list[list[list[int]]], domain: Domain, most: Fraction) -> None:
    """Above the last common layer: one normal form on each side, and they agree entry by entry."""
    if ours.hidden != theirs.hidden:
        raise CertificateError("the steps do not lead to networks of one depth")
    forms = []
    for side, stack in enumerate((ours, theirs)):
        chosen = [[int(neuron) for where, neuron in group if where == side] for group in groups]
        forms.append(_form(stack, chosen, domain))
    (affine, bends), (other, others) = forms
    _alike(affine, other, most, "the affine parts differ")
    for mine, yours in zip(bends, others, strict=True):
        if mine is None or yours is None:
            _zero((mine or yours)[1], "the bends on a hyperplane do not cancel")  # type: ignore[index]
            continue
        _alike(mine[0], yours[0], most, "neurons of a group lie on different hyperplanes")
        _alike(mine[1], yours[1], most, "the bends on a hyperplane differ")


def _form(stack: Stack, groups: list[list[int]], domain: Domain) -> tuple[Array, list[tuple[Array, Array] | None]]:
    """The affine part of what stands above the last common layer, and per group its hyperplane and its bend."""
    layer = stack.hidden - 1
    if layer < 0:
        return stack.row(-1), [None] * len(groups)
    for below in range(layer):
        domain = domain.through(stack.row(below), stack.slopes[below])
    leak = flint.fmpq(*stack.slopes[layer].as_integer_ratio())
    rows, outs, bias = stack.row(layer), stack.weights[layer + 1], stack.biases[-1]
    affine = np.concatenate([np.outer(bias, np.zeros(rows.shape[1] - 1, dtype=int)), bias[:, None]], axis=1)
    unseen = set(range(len(rows)))
    bends: list[tuple[Array, Array] | None] = []
    for group in groups:
        if not unseen.issuperset(group) or len(set(group)) < len(group):
            raise CertificateError("a neuron is in two groups")
        unseen.difference_update(group)
        if not group:
            bends.append(None)
            continue
        size = sum(abs(item) for item in rows[group[0]][:-1])
        first = next(item for item in rows[group[0]] if item != 0)
        plane = rows[group[0]] / (size if first > 0 else -size)
        pivot = next(k for k, item in enumerate(plane) if item != 0)
        bend = bias * 0
        for neuron in group:
            factor = rows[neuron][pivot] / plane[pivot]
            _zero(rows[neuron] - factor * plane, "neurons of a group differ in direction")
            bend = bend + outs[:, neuron] * abs(factor) * (1 - leak)
            affine = affine + np.outer(outs[:, neuron] * (leak if factor > 0 else 1), rows[neuron])
        bends.append((plane, bend))
    for neuron in unseen:
        low, high = domain.range(rows[neuron])
        if not (low >= 0 or high <= 0):
            raise CertificateError("a neuron that bends is in no group")
        affine = affine + np.outer(outs[:, neuron] * (1 if low >= 0 and not high <= 0 else leak), rows[neuron])
    return affine, bends


def _alike(ours: Array, theirs: Array, most: Fraction, complaint: str) -> None:
    share = flint.fmpq(most.numerator, most.denominator)
    pairs = zip(ours.ravel(), theirs.ravel(), strict=True)
    if ours.shape != theirs.shape or any(a != b and abs(a - b) > share * min(abs(a), abs(b)) for a, b in pairs):
        raise CertificateError(complaint)


def _zero(values: Array, complaint: str) -> None:
    if any(value != 0 for value in values):
        raise CertificateError(complaint)


def _read_stack(network: dict[str, Any]) -> Stack:
    weights = tuple(_numbers(weight) for weight in network["weights"])
    biases = tuple(_numbers(bias) for bias in network["biases"])
    slopes = tuple(float(slope) for slope in network["slopes"])
    if not weights or len(biases) != len(weights) or len(slopes) != len(weights) - 1:
        raise CertificateError("a network in the certificate has layers missing")
    fits = all(
        bias.shape == weight.shape[:1] and weight.ndim == 2 for weight, bias in zip(weights, biases, strict=True)
    )
    if not fits or not all(below.shape[0] == above.shape[1] for below, above in pairwise(weights)):
        raise CertificateError("a network in the certificate has layers that do not fit")
    if not all(np.isfinite(floating(array)).all() for array in (*weights, *biases, np.array(slopes))):
        raise CertificateError("a network in the certificate has numbers that are not finite")
    return Stack(weights, biases, slopes)


def _numbers(values: Any) -> Array:
    """Floats, or rationals written as text."""
    found = np.array(values)
    if found.dtype.kind == "U":
        return np.asarray(np.vectorize(lambda text: _read(str(text)), otypes=[object])(found))
    return np.array(values, dtype=np.float64)


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
