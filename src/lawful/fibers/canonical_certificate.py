"""The evidence that a standard member of a fiber is on it: the symmetries that lead from the network to it."""

from __future__ import annotations

from typing import Any

from lawful.errors import Unsupported
from lawful.fibers.fingerprint import Canonical
from lawful.fibers.same import same
from lawful.fibers.verdict import Equal
from lawful.fibers.verdict import certificate as evidence
from lawful.network import Dag, Mlp
from lawful.sources.files import Written, stored_as

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
