"""The trust kernel: re-check a certificate with code that shares nothing with the code that made it.

This room imports `lawful.errors` and nothing else of the project; rationals, integers or balls decide everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from lawful.errors import CertificateError, LawfulError, NotACertificate
from lawful.verify.bounds import distance, monotone, property
from lawful.verify.channels import pruning as channel_pruning
from lawful.verify.checkpoints import copy as checkpoint_copy
from lawful.verify.checkpoints import outputs_differ, smooth_pair
from lawful.verify.conservation import laws
from lawful.verify.conservation import module as laws_module
from lawful.verify.conservation import theorem as laws_theorem
from lawful.verify.core.binding import matched, opened
from lawful.verify.core.finding import Finding, Verified
from lawful.verify.core.schema import VERSION, listed, on_the_clock, parse, printable, whole
from lawful.verify.fibers import identifiable, region_count, removable, same
from lawful.verify.invariant_set import components, path, rebalance, singular
from lawful.verify.papers import geodesic, separation
from lawful.verify.pruning import neurons as pruning
from lawful.verify.training import flow

__all__ = ["KINDS", "Verified", "speaks_of_files", "verify"]

KINDS: Mapping[str, Callable[[dict[str, Any]], Finding]] = MappingProxyType(
    {
        "channel-pruning": channel_pruning.check,
        "components": components.check,
        "distance": distance.check,
        "flow": flow.check,
        "geodesic": geodesic.check,
        "identifiable": identifiable.check,
        "laws": laws.check,
        "laws-by-theorem": laws_theorem.check,
        "laws-of-module": laws_module.check,
        "monotone": monotone.check,
        "path": path.check,
        "property": property.check,
        "pruning": pruning.check,
        "rebalance": rebalance.check,
        "regions": region_count.check,
        "removable": removable.check,
        "same": same.check,
        "singular": singular.check,
        "truncation-separation": separation.check,
    }
)
OF_FILES = {
    "checkpoint-copy": checkpoint_copy.check,
    "outputs-differ": outputs_differ.check,
    "smooth-pair": smooth_pair.check,
}  # kinds that speak of tensors in files: these have to be given
DAMAGE = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError)


def speaks_of_files(certificate: str | bytes) -> bool:
    """Whether a certificate is about tensors in files rather than networks; `NotACertificate` if it is none."""
    return str(parse(certificate).get("kind")) in OF_FILES


def verify(certificate: Any, *networks: Any) -> Verified:
    """The statement that a certificate proves, composed from facts checked here; no text of it is ever repeated.

    The certificate is an object as JSON has them, its text or bytes, a path, or a result with a method `certificate`.
    Networks, data `(x, y)` or `x`, and Leaky ResNets may follow: each must be one that it is about.

    Raises `CertificateError` with the first fact that fails (also when a network given is none that the certificate is
    about), `NotACertificate` if it is none at all, `Unsupported` if the check would take too long.

    >>> from lawful.invariant_set.certificate import certificate
    >>> from lawful.invariant_set import components
    >>> from lawful.network import Architecture
    >>> found = verify(certificate(components(Architecture.parse("2-2-1").to_dag(), [-3, 1])))
    >>> found.facts["locked"]
    [{'edge': (2, 4), 'at_least': Fraction(3, 1)}]
    """
    body = parse(opened(certificate))
    for key in ("kind", "version", "about"):
        if key not in body:
            raise NotACertificate(f"not a certificate of version {VERSION}: {key!r} is missing")
    kind, about = body.pop("kind"), listed(body.pop("about"), "about", most=16)
    if not isinstance(kind, str) or kind not in {*KINDS, *OF_FILES}:
        raise NotACertificate(f"not a certificate: its kind is none of {', '.join((*KINDS, *OF_FILES))}")
    if whole(body.pop("version"), "version") != VERSION:
        raise NotACertificate(f"this program reads certificates of version {VERSION} only")
    try:
        with on_the_clock():
            found = OF_FILES[kind](body, networks) if kind in OF_FILES else KINDS[kind](body)
        if about != list(found.networks):
            raise CertificateError("the digests are not those of the networks in the certificate")
        given = tuple(range(len(networks))) if kind in OF_FILES else matched((*found.networks, *found.others), networks)
    except CertificateError as error:
        error.kind = kind
        raise
    except LawfulError:
        raise
    except DAMAGE as error:
        raise NotACertificate(f"a damaged certificate of {kind}: {type(error).__name__}") from error
    return Verified(kind, printable(found.statement), found.facts, (*found.networks, *found.others), given)
