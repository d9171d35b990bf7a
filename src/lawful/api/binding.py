"""Whether a verified statement answers the question that a user has: a specification, a box, a balance, a model.

The verifier says what it proved as facts; here they are compared with what the user's own file says, in rationals.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import gcd, lcm
from pathlib import Path
from typing import Any

from lawful.errors import CertificateError, LawfulError, Unsupported
from lawful.formats.queries.box import read_box
from lawful.formats.queries.joint_specification import JointSpecification, join
from lawful.formats.queries.specification import Specification, input_bounds, read_specification, regions

Facts = Mapping[str, Any]
HalfSpace = tuple[tuple[Fraction, ...], Fraction, bool]


def need_specification(kind: str, facts: Facts, file: Path) -> bool:
    """Refuse a statement that is not about a `.vnnlib` file; whether it answers it, or has only its box in common.

    An answer is about all of the file if nothing that it describes occurs, else about one input of it.
    """
    specification = read_specification(file)
    joint = join(specification) if len(specification.text.networks) > 1 else None
    if kind == "specification":
        _need_regions(facts, file, specification if joint is None else joint.specification)
        return True
    if joint is not None and _implies(kind, facts, joint):
        return True
    if joint is not None and kind == "monotone":
        raise CertificateError(f"the certificate is not about {file}: what it states does not answer that")
    box = _box(facts, str(file))
    low, high = input_bounds(file, len(box))
    _need_same_box(box, [(float(a), float(b)) for a, b in zip(low, high, strict=True)], str(file))
    return False


def _implies(kind: str, facts: Facts, joint: JointSpecification) -> bool:
    """Whether nothing that a file about two networks describes occurs if they are close, or one is monotone."""
    asked = regions(joint.specification, joint.inputs, joint.outputs)
    sides = [joint.of(name, "input") for name in joint.text.networks]
    outputs = len(joint.of(joint.text.networks[0], "output"))
    box = facts.get("box") or ()
    for region in asked:
        ends = list(zip(region.low, region.high, strict=True))
        if any(len(box) != len(side) or not _contains(box, [ends[place] for place in side]) for side in sides):
            return False
    if kind == "distance":
        within, upper = joint.tolerance(), facts.get("upper")
        near = "near" in facts or facts["norm"] != "inf" or set(facts["outputs"]) != set(range(outputs))
        return within is not None and upper is not None and upper <= within and not near
    growth = joint.growth()
    if kind != "monotone" or growth is None or "input" in facts or not joint.text.equal:
        return False
    directions, places = growth
    stated = dict.fromkeys(facts["rising"], True) | dict.fromkeys(facts["falling"], False)
    return directions.items() <= stated.items() and set(places) <= set(facts["outputs"])


def _need_regions(facts: Facts, file: Path, specification: Specification) -> None:
    """Every box of the file lies in one of the statement's with the same cases; or its input is what the file says."""
    inputs, outputs = facts["inputs"], facts["of_outputs"]
    try:
        asked = regions(specification, inputs, outputs)
    except LawfulError as error:
        raise CertificateError(f"the certificate is not about {file}: {error}") from None
    if "input" in facts:
        _need_described(specification, facts, file)
        return
    known = [
        (
            region.box,
            {
                frozenset(_primitive([*row.outputs, *row.inputs], row.bound, row.strict) for row in case)
                for case in region.cases
            },
        )
        for region in facts["regions"]
    ]
    for region in asked:
        theirs = {
            frozenset(
                _primitive([*row.outputs, *(row.inputs or [Fraction(0)] * inputs)], row.bound, row.strict)
                for row in case
            )
            for case in region.forbidden
        }
        sides = list(zip(region.low, region.high, strict=True))
        if not any(theirs == cases and _contains(box, sides) for box, cases in known):
            raise CertificateError(
                f"the certificate is not about {file}: that has {len(asked)} boxes, and one is other than stated"
            )


def _contains(box: Sequence[tuple[Fraction, Fraction]], sides: Sequence[tuple[Fraction, Fraction]]) -> bool:
    return all(low <= least and most <= high for (low, high), (least, most) in zip(box, sides, strict=True))


def _need_described(specification: Specification, facts: Facts, file: Path) -> None:
    """The input and its outputs are what the file describes, exactly."""
    if not specification.describes(facts["input"], facts["outputs"]):
        raise CertificateError(f"the certificate is not about {file}: its input and outputs are not forbidden there")


def _primitive(coefficients: Sequence[Fraction], bound: Fraction, strict: bool) -> HalfSpace:
    """A half-space times the positive number that makes its coefficients coprime integers."""
    scale = Fraction(lcm(*(a.denominator for a in coefficients)))
    scale /= gcd(*(int(a * scale) for a in coefficients)) or 1
    return tuple(a * scale for a in coefficients), bound * scale, strict


def need_box(facts: Facts, text: str) -> None:
    """Refuse a statement about another box than the one that was typed or is in a file."""
    box = _box(facts, f"--box {text}")
    low, high = read_box(text, len(box))
    _need_same_box(box, [(float(a), float(b)) for a, b in zip(low, high, strict=True)], f"--box {text}")


def _box(facts: Facts, name: str) -> list[tuple[Any, Any]]:
    if facts.get("box") is None:
        where = "about all inputs" if "box" in facts else "not about inputs of a box"
        raise CertificateError(f"the certificate is not about {name}: it is {where}")
    return list(facts["box"])


def _need_same_box(box: list[tuple[Any, Any]], asked: list[tuple[float, float]], name: str) -> None:
    if [tuple(side) for side in box] != [(Fraction(low), Fraction(high)) for low, high in asked]:
        raise CertificateError(f"the certificate is not about {name}: its box is another one")


def need_balance(facts: Facts, values: object, names: Sequence[str] | None, file: Path) -> None:
    """Refuse a statement about another balance than that of a file: a list in node order, or an object by name."""
    balance = facts.get("balance", facts.get("target"))
    if balance is None:
        raise CertificateError(f"the certificate is not about {file}: it is not about a balance")
    if isinstance(values, Mapping):
        if names is None or set(values) != set(names):
            raise CertificateError(f"the certificate is not about {file}: give the network whose nodes it names")
        values = [values[name] for name in names]
    if not isinstance(values, list) or [_number(value, file) for value in values] != [
        Fraction(value) for value in balance
    ]:
        raise CertificateError(f"the certificate is not about {file}: its balance is another one")


def _number(value: object, file: Path) -> Fraction:
    try:
        return Fraction(str(value)[:1000])
    except (ValueError, ZeroDivisionError):
        raise LawfulError(f"{file}: a balance is a list of numbers") from None


def need_model(
    certificate: bytes, facts: Mapping[str, Any], files: tuple[Path, Path], model: str, input_size: str | None
) -> None:
    """Refuse a certificate whose program is not that of the model with these files; PyTorch is asked for its export.

    The program that was checked is the certificate's. Here the model is exported and listed in the same way, with the
    same tensors as parameters; then both have one digest, or the statement is about another function. Which tensor of
    a file is which parameter has to be what the model says, too: two of one shape could be exchanged in both files.
    """
    # Here, because they load PyTorch: only a certificate of a module with its model needs it.
    from lawful.checkpoints.compare.certificate import list_program_of_model, sources_json
    from lawful.checkpoints.opening import open_checkpoints

    if facts.get("program") is None:
        raise CertificateError(f"the certificate has no program: nothing says that it is about {model}")
    pair = open_checkpoints(*files, model=model, input=input_size)
    stated = json.loads(certificate)
    program = list_program_of_model(stated, pair)
    if program is None:
        raise Unsupported(f"{model} cannot be exported as a program that certificates list")
    text = json.dumps(program, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    if hashlib.sha256(text.encode()).hexdigest() != facts["program"]:
        raise CertificateError(f"the program in the certificate is not that of {model}, or not for these sizes")
    if sources_json(pair, [name for name, *_ in stated["tensors"]]) != stated["tensors"]:
        raise CertificateError(f"the certificate takes tensors of the files for others than {model} does")
