"""The trust kernel: re-check a certificate with code that shares nothing with the code that made it.

This package imports `lawful.errors` and `lawful.outward` and nothing else of the project; rationals, integers or balls
decide everything. Of a certificate only the checker of its kind is loaded, and what that needs of `core`.
`docs/certificates` specifies every kind: what its keys mean, and why the check implies the sentence.

To audit what verdicts on graphs of neurons rest on, read in this order, each file after those that it imports:

1. `core/schema.py` (strict JSON, and cost counted before it is spent), `core/numbers.py` (one exact number type),
   `core/dag.py` (networks and their digests), `core/finding.py`, `core/tensors.py`, `core/binding.py` (what a
   certificate is about), and this file;
2. `invariant_set/`: `rebalance.py`, `balances.py` (locks), `components.py`, `path.py`, `singular.py`; then
   `papers/separation.py`;
3. `core/layers.py` (layers and the walk through regions), `fibers/agreement.py` and `same.py`, `pruning/neurons.py`;
4. `__main__.py`. `sentences.py` words what was checked, and no check rests on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple

from lawful.errors import CertificateError, LawfulError, NotACertificate
from lawful.verify.core.binding import load_certificate, match_digests
from lawful.verify.core.finding import Finding, Verified
from lawful.verify.core.schema import integer, items, parse, printable, time_limit

__all__ = ["KINDS", "OF_FILES", "Verified", "speaks_of_files", "verify"]


class CertificateKind(NamedTuple):
    """Where the checker of a kind stands in this package, and the version of its certificates that it reads."""

    checker: str
    version: int = 1
    by_digest: bool = False  # tensors may be held by their digests: then they are read from what was given


KINDS: Mapping[str, CertificateKind] = MappingProxyType(
    {
        "channel-pruning": CertificateKind("pruning.channels", 3, by_digest=True),
        "components": CertificateKind("invariant_set.components", 2),
        "distance": CertificateKind("bounds.distance"),
        "flow": CertificateKind("conservation.flow"),
        "geodesic": CertificateKind("papers.geodesic"),
        "identifiable": CertificateKind("fibers.identifiable", 2),
        "laws": CertificateKind("conservation.laws"),
        "laws-by-theorem": CertificateKind("conservation.theorem"),
        "laws-of-module": CertificateKind("conservation.module"),
        "monotone": CertificateKind("bounds.monotone"),
        "path": CertificateKind("invariant_set.path", 2),
        "pruning": CertificateKind("pruning.neurons", 2),
        "rebalance": CertificateKind("invariant_set.rebalance"),
        "regions": CertificateKind("fibers.region_count"),
        "removable": CertificateKind("fibers.removable"),
        "same": CertificateKind("fibers.same", 2),
        "singular": CertificateKind("invariant_set.singular"),
        "specification": CertificateKind("bounds.specification", 2),
        "truncation-separation": CertificateKind("papers.separation"),
    }
)
OF_FILES: Mapping[str, CertificateKind] = MappingProxyType(
    {
        "checkpoint-copy": CertificateKind("checkpoints.copy", 2),
        "outputs-differ": CertificateKind("checkpoints.outputs_differ", 2),
        "smooth-pair": CertificateKind("checkpoints.smooth_pair", 2),
    }
)  # kinds that speak of tensors in files: these have to be given
DAMAGE = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError)


def speaks_of_files(certificate: str | bytes) -> bool:
    """Whether a certificate is about tensors in files rather than networks; `NotACertificate` if it is none."""
    return str(parse(certificate).get("kind")) in OF_FILES


def verify(certificate: Any, *networks: Any) -> Verified:
    """The statement that a certificate proves, composed from facts checked here; no text of it is ever repeated.

    The certificate is an object as JSON has them, its text or bytes, a path, or a result with a method `certificate`.
    Networks, data `(x, y)` or `x`, and Leaky ResNets may follow: each must be one that it is about.

    Raises `CertificateError` with the first fact that fails (also when a network given is none that the certificate is
    about), `NotACertificate` if it is none at all or of another version, `Unsupported` if the check would take too
    long.

    >>> from lawful.invariant_set.certificate import certificate
    >>> from lawful.invariant_set import components
    >>> from lawful.network import Architecture
    >>> found = verify(certificate(components(Architecture.parse("2-2-1").to_dag(), [-3, 1])))
    >>> found.facts["locked"]
    [{'edge': (2, 4), 'at_least': Fraction(3, 1)}]
    """
    body = parse(load_certificate(certificate))
    for key in ("kind", "version", "about"):
        if key not in body:
            raise NotACertificate(f"not a certificate: {key!r} is missing")
    kind, about = body.pop("kind"), items(body.pop("about"), "about", most=16)
    if not isinstance(kind, str) or kind not in {*KINDS, *OF_FILES}:
        raise NotACertificate(f"not a certificate: its kind is none of {', '.join((*KINDS, *OF_FILES))}")
    checker = KINDS.get(kind) or OF_FILES[kind]
    _need_version(kind, integer(body.pop("version"), "version"), checker.version)
    try:
        check = import_module(f"lawful.verify.{checker.checker}").check
        with time_limit():
            finding: Finding = check(body, networks) if kind in OF_FILES or checker.by_digest else check(body)
        if about != list(finding.networks):
            raise CertificateError("the digests are not those of the networks in the certificate")
        digests = (*finding.networks, *finding.others)
        places = tuple(range(len(networks))) if kind in OF_FILES else match_digests(digests, networks)
    except LawfulError as error:
        # it may name a tensor, and a name may hold a line that looks like a verdict
        error.args = (printable(str(error)),)
        if isinstance(error, CertificateError):
            error.kind = kind
        raise
    except DAMAGE as error:
        raise NotACertificate(f"a damaged certificate of {kind}: {type(error).__name__}") from error
    from lawful.verify.sentences import SENTENCES

    statement = printable(SENTENCES[kind](finding.facts, finding.networks))
    return Verified(kind, statement, finding.facts, digests, places)


def _need_version(kind: str, stated: int, known: int) -> None:
    """A certificate of another version is neither right nor wrong: nothing in it is looked at."""
    if stated != known:
        age = "an older" if stated < known else "a newer"
        raise NotACertificate(
            f"a certificate of {kind} of another version ({stated}; this program reads {known}): make it again with "
            f"this program, or check it with {age} one"
        )
