"""Assertions about networks for your own test suite: they fail with the evidence, and return the result.

An answer that is undecided fails too: a test that cannot tell must not be green.

>>> from lawful.testing import assert_same, assert_within
>>> assert_same("3-4-2 relu", "3-4-2 relu").verdict
'equal'
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lawful.api.bounds import check, distance
from lawful.api.conservation import laws
from lawful.api.same import same
from lawful.errors import CertificateError, NotACertificate

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from lawful.api.same import Sameness
    from lawful.bounds.property import PropertyCheck
    from lawful.bounds.result import Distance
    from lawful.conservation.law_count import LawCount
    from lawful.fibers.monotone import MonotoneCheck
    from lawful.sources.opening import Source
    from lawful.verify import Verified

__all__ = [
    "assert_conserves",
    "assert_different",
    "assert_holds",
    "assert_laws",
    "assert_same",
    "assert_verified",
    "assert_within",
]
__tracebackhide__ = True  # pytest shows the line of the test, not ours


def assert_same(first: Source, second: Source, *, exactly: bool = False, **options: Any) -> Sameness:
    """The two networks are the same function, up to rounding of single weights; with `exactly`, without any.

    Options are those of `lawful.same`: `tolerance=1e-6` for weights stored in float32, `model`, `input`, `box`, ...

    >>> from lawful import Mlp
    >>> one, two = (Mlp([[[scale], [1.0]], [[1.0 / scale, 1.0]]]) for scale in (1.0, 2.0))
    >>> assert_same(one, two, exactly=True).within.kind
    'exactly'
    """
    __tracebackhide__ = True
    found = same(first, second, **options)
    if found.verdict != "equal":
        raise AssertionError(f"not the same function\n{found}")
    kind = found.to_dict().get("within")
    if exactly and (kind.get("kind") if isinstance(kind, dict) else kind) != "exactly":
        raise AssertionError(f"the same function only up to rounding\n{found}")
    return found


def assert_different(first: Source, second: Source, **options: Any) -> Sameness:
    """The two networks differ at some input, which the result names.

    >>> from lawful import Mlp
    >>> assert_different(Mlp([[[1.0]]]), Mlp([[[2.0]]])).verdict
    'different'
    """
    __tracebackhide__ = True
    found = same(first, second, **options)
    if found.verdict != "different":
        raise AssertionError(f"not proved different\n{found}")
    return found


def assert_within(
    first: Source, second: Source, within: float, box: str | tuple[ArrayLike, ArrayLike], **options: Any
) -> Distance:
    """No input in the box moves an output by more than `within` from one network to the other.

    >>> assert_within("2-3-1 relu", "2-3-1 relu", 0.01, box="-1,1").status
    'proved'
    """
    __tracebackhide__ = True
    found = distance(first, second, box, within=within, **options)
    if found.status != "proved":
        raise AssertionError(f"not proved to be within {within}\n{found}")
    return found


def assert_holds(
    network: Source, specification: str | Path | None = None, **options: Any
) -> PropertyCheck | MonotoneCheck:
    """The network keeps a VNN-LIB specification, or is `monotone="+0,-1"` on a `box`.

    >>> from lawful import Mlp
    >>> assert_holds(Mlp([[[1.0, -1.0]]]), monotone="+0,-1", box="-1,1").status
    'holds'
    """
    __tracebackhide__ = True
    found = check(network, specification, **options)
    if found.status != "holds":
        raise AssertionError(f"{found.status}\n{found}")
    return found


def assert_laws(network: Source, number: int, **options: Any) -> LawCount:
    """Training conserves exactly so many independent quantities, proved.

    >>> assert_laws("3-4-2 relu", 4).laws
    4
    """
    __tracebackhide__ = True
    found = laws(network, **options)
    if found.laws != number or found.status != "proved":
        raise AssertionError(f"not proved to be {number}\n{found}")
    return found


def assert_conserves(run: Any, tolerance: float = 1e-6) -> None:
    """A run of `lawful.flow`, or a `lawful.Monitor`, whose laws drifted by at most `tolerance`.

    >>> from lawful.api.training.flows import flow
    >>> assert_conserves(flow("2-3-1 relu", until=0.2))
    """
    __tracebackhide__ = True
    drift = max((record["drift"] for record in run.records), default=0.0) if hasattr(run, "records") else run.max_drift
    if not drift <= tolerance:
        raise AssertionError(f"a conserved quantity drifted by {drift:.3g}, more than {tolerance:g}")


def assert_verified(certificate: Any, *networks: Any) -> Verified:
    """The certificate proves something, and proves it about these networks, in this order.

    >>> from lawful.invariant_set import components
    >>> from lawful.invariant_set.certificate import certificate
    >>> assert_verified(certificate(components("2-2-1 relu"))).kind
    'components'
    """
    __tracebackhide__ = True
    from lawful.verify import verify

    try:
        found: Verified = verify(certificate, *networks)
    except (CertificateError, NotACertificate) as error:
        raise AssertionError(f"not verified: {error}") from error
    return found
