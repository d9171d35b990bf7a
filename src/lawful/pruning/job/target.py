"""What a pruning job is asked for: a share of the parameters, of the multiplications or of the time, or an accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lawful.errors import LawfulError

Kind = Literal["params", "flops", "latency", "accuracy"]
NAMES: dict[str, Kind] = {
    "params": "params", "parameters": "params", "flops": "flops", "macs": "flops", "latency": "latency",
    "accuracy": "accuracy",
}  # fmt: skip


@dataclass(frozen=True)
class Target:
    """How much is to be left: at most a share of the cost, or at least a share of the original's accuracy."""

    kind: Kind
    share: float

    def __str__(self) -> str:
        return f"{self.kind}:{self.share:g}"

    @property
    def cost(self) -> Literal["params", "flops"]:
        """The cost by which units are compared."""
        return "params" if self.kind == "params" else "flops"


def read_target(text: str) -> Target:
    """Read `params:0.5`, `flops:40%` or `accuracy:99%`.

    >>> read_target("params:50%"), read_target("macs:0.4")
    (Target(kind='params', share=0.5), Target(kind='flops', share=0.4))
    """
    name, _, number = text.partition(":")
    kind = NAMES.get(name.strip().lower())
    try:
        share = float(number.strip().removesuffix("%")) / (100 if number.strip().endswith("%") else 1)
    except ValueError:
        share = -1.0
    if kind is None or not 0 < share <= 1:
        raise LawfulError(
            f"a target is params:0.5, flops:40%, latency:0.7 or accuracy:99%, not {text[:40]!r}: "
            "a share above 0, at most 1"
        )
    return Target(kind, share)
