"""Every claim of the five papers that this version can check."""

from __future__ import annotations

from importlib import import_module

from lawful.errors import LawfulError
from reproduction.claim import Claim

MODULES = (
    "network",
    "components",
    "components_locks",
    "components_training",
    "singular",
    "singular_training",
    "laws",
    "laws_theory",
    "laws_beyond",
    "flow",
    "flow_symmetries",
    "symmetry_counts",
    "symmetry_training",
    "truncation_maps",
    "truncation",
    "truncation_times",
    "truncation_limits",
    "truncation_lemmas",
    "leaky",
    "leaky_symmetries",
    "leaky_identity",
    "leaky_training",
    "leaky_steps",
    "fibers",
    "fibers_composition",
    "fibers_small_widths",
    "checkpoints",
)


def all_claims() -> tuple[Claim, ...]:
    """All claims, ordered by paper and name of module."""
    found = [claim for name in MODULES for claim in import_module(f"reproduction.claims.{name}").CLAIMS]
    return tuple(sorted(found, key=lambda claim: claim.paper))


def find(id: str) -> Claim:
    """The claim with this id."""
    for claim in all_claims():
        if claim.id == id:
            return claim
    raise LawfulError(f"no claim is called {id[:60]!r}: `lawful reproduce --list` names them")
