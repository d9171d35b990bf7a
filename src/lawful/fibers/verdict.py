"""The three answers to *are these the same function?*, and the certificate of each."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from lawful.bounds.result import Distance
from lawful.bounds.result import certificate as distance_certificate
from lawful.errors import Unsupported
from lawful.fibers.counterexample import Counterexample
from lawful.fibers.regions.domain import Domain
from lawful.fibers.reparametrisations import SymmetryStep
from lawful.network import Dag, Mlp
from lawful.network.digest import digest, network_record
from lawful.result import Shown, truth_of


@dataclass(frozen=True)
class EqualityWitness:
    """Steps that keep each function and lead both networks to one place.

    There they agree weight by weight (`ending` is "weights"); or below their last hidden layer, and above it their
    normal forms agree: `groups` lists the neurons (0 or 1 for the network, number) that share a hyperplane; or their
    affine maps agree on all common regions, in exact arithmetic by a proof made of `decisions`; or `distance` bounds
    how far their outputs are apart ("boxes").
    """

    first: tuple[SymmetryStep, ...]
    second: tuple[SymmetryStep, ...]
    ending: str
    residual: float
    groups: tuple[tuple[tuple[int, int], ...], ...] = ()
    regions: int | None = None
    decisions: tuple[Any, ...] | None = None
    distance: Distance | None = None


@dataclass(frozen=True)
class Within:
    """What *equal* means: "exactly"; "weights", each within a relative `value`; "outputs", each within `value`."""

    kind: Literal["exactly", "weights", "outputs"]
    value: float


@dataclass(frozen=True)
class Equal(Shown):
    """The same function on the whole domain, `within` what it says; `tolerance` is what was asked for."""

    method: str
    witness: EqualityWitness
    domain: Domain
    tolerance: float
    seconds: float = 0.0
    within: Within = Within("exactly", 0.0)
    verdict: str = field(default="equal", init=False)

    def __bool__(self) -> bool:
        return truth_of(self.verdict, "")


@dataclass(frozen=True)
class Different(Shown):
    """An input on which the outputs differ, replayed exactly; or shapes that cannot agree."""

    method: str
    reason: str
    counterexample: Counterexample | None
    domain: Domain | None
    tolerance: float
    seconds: float = 0.0
    verdict: str = field(default="different", init=False)

    def __bool__(self) -> bool:
        return truth_of(self.verdict, self.reason)


@dataclass(frozen=True)
class Undecided(Shown):
    """Neither a proof nor a counterexample was found; `reason` says what was tried."""

    method: str
    reason: str
    domain: Domain
    tolerance: float
    seconds: float = 0.0
    verdict: str = field(default="undecided", init=False)

    def __bool__(self) -> bool:
        return truth_of(self.verdict, self.reason)


Verdict = Equal | Different | Undecided


def is_certified(verdict: Verdict) -> bool:
    """Whether the verdict has evidence that `lawful verify` can re-check.

    All do but an undecided one.
    """
    return not isinstance(verdict, Undecided)


def certificate(verdict: Verdict, first: Mlp | Dag, second: Mlp | Dag) -> dict[str, Any]:
    """Everything `lawful verify` needs: both networks, the verdict and its evidence."""
    if not is_certified(verdict):
        raise Unsupported(f"this verdict ({verdict.verdict}) has no evidence that can be re-checked")
    if isinstance(verdict, Equal) and verdict.witness.distance is not None:
        return distance_certificate(verdict.witness.distance, first, second)
    domain = verdict.domain
    box = None if domain is None or not domain.bounded else [domain.low.tolist(), domain.high.tolist()]
    counterexample = verdict.counterexample if isinstance(verdict, Different) else None
    return {
        "kind": "same",
        "version": 2,
        "about": [digest(network) for network in (first, second)],
        "networks": [mlp_json(net) if isinstance(net, Mlp) else network_record(net) for net in (first, second)],
        "box": box,
        "verdict": verdict.verdict,
        "within": asdict(verdict.within) if isinstance(verdict, Equal) else None,
        "witness": _evidence(verdict.witness) if isinstance(verdict, Equal) else None,
        "counterexample": None if counterexample is None else {"input": _input(counterexample)},
    }


def _input(found: Counterexample) -> list[Any]:
    """The input as floats, or as fractions where no floats show the difference."""
    return found.point.tolist() if found.exact is None else [str(value) for value in found.exact]


def mlp_json(network: Mlp) -> dict[str, Any]:
    """A network as lists of floats; JSON keeps every bit of them."""
    return {
        "weights": [weight.tolist() for weight in network.weights],
        "biases": [None if bias is None else bias.tolist() for bias in network.biases],
        "slopes": list(network.slopes),
    }


def _evidence(witness: EqualityWitness) -> dict[str, Any]:
    """The part of a witness that `lawful verify` reads: what it can work out itself is left out."""
    record = witness_json(witness)
    for step in (*record["first"], *record["second"]):
        if step["do"] == "quiet":  # its value is constant on the box
            del step["low"], step["high"]
            step["do"] = "drop"
    return {key: value for key, value in record.items() if key not in ("residual", "regions")}


def witness_json(witness: EqualityWitness) -> dict[str, Any]:
    """A witness as JSON, for a certificate or a report."""
    record: dict[str, Any] = {
        "first": [step_json(step) for step in witness.first],
        "second": [step_json(step) for step in witness.second],
        "ending": witness.ending,
        "residual": witness.residual,
    }
    if witness.ending == "normal form":
        record["groups"] = [[list(member) for member in group] for group in witness.groups]
    if witness.regions is not None:
        record["regions"] = witness.regions
    if witness.distance is not None:
        bounds = {"lower": witness.distance.lower_float, "upper": float(witness.distance.upper)}
        record |= {"boxes": witness.distance.boxes} | bounds
    if witness.decisions is not None:
        record["decisions"] = list(witness.decisions)
    return record


def step_json(step: SymmetryStep) -> dict[str, Any]:
    """A step as JSON: its name under `do`, rationals as text.

    >>> from lawful.fibers.reparametrisations import Reorder
    >>> step_json(Reorder(1, (2, 0, 1)))
    {'do': 'reorder', 'layer': 1, 'order': [2, 0, 1]}
    """
    record: dict[str, Any] = {"do": type(step).__name__.lower()}
    for key, value in asdict(step).items():  # type: ignore[call-overload]
        record[key] = [_plain(item) for item in value] if isinstance(value, tuple) else _plain(value)
    return record


def _plain(value: Any) -> Any:
    return value if isinstance(value, int) else float(value) if isinstance(value, float) else str(value)
