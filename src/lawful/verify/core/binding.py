"""What a certificate is about: does a network, a table of data or a Leaky ResNet have one of its digests?"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lawful.errors import CertificateError, NotACertificate
from lawful.verify.core.dag import dag_of
from lawful.verify.core.finding import digest_of, short
from lawful.verify.core.schema import MOST_BYTES
from lawful.verify.core.tensors import GivenTensors


def load_certificate(certificate: Any) -> Mapping[str, Any] | str | bytes:
    """The object, text or bytes of a certificate, read from a regular file if a path is given."""
    if callable(getattr(certificate, "certificate", None)):
        certificate = certificate.certificate()
    if isinstance(certificate, str) and certificate.endswith(".json"):  # no JSON text ends like this
        certificate = Path(certificate)
    if isinstance(certificate, Path):
        try:
            with os.fdopen(os.open(certificate, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise NotACertificate(f"{certificate.name[:80]!r} is not a regular file")
                return file.read(MOST_BYTES + 1)
        except OSError as error:
            raise NotACertificate(f"{certificate.name[:80]!r} cannot be read: {error.strerror}") from None
    if not isinstance(certificate, (Mapping, str, bytes)):
        raise NotACertificate(f"a {type(certificate).__name__} is not a certificate")
    return certificate


def match_digests(digests: Sequence[str], given: Sequence[Any]) -> tuple[int, ...]:
    """Which of the certificate's digests each given thing has; each stands for one only."""
    free = list(range(len(digests)))
    places = []
    for number, thing in enumerate(given, 1):
        names = digests_of(thing)
        place = next((place for place in free if digests[place] in names), None)
        if place is None:
            name = getattr(thing, "text", f"network {number} of those given")
            raise CertificateError(f"the certificate is not about {name}: {_about(digests)}")
        free.remove(place)
        places.append(place)
    return tuple(places)


def _about(digests: Sequence[str]) -> str:
    """What it is about, in words."""
    return f"it is about {', '.join(map(short, digests))}" if digests else "it is about nothing that can be given"


def digests_of(thing: Any) -> tuple[str, ...]:
    """The digests that can stand for something.

    A graph with weights or without; a chain of layers, or all weights of a module; data alone or with targets; a Leaky
    ResNet; or what it says itself in `digests`.
    """
    if hasattr(thing, "digests"):
        return tuple(thing.digests)
    if hasattr(thing, "effective_depth"):
        from lawful.verify.papers.geodesic import leaky_digest  # its kind alone needs NumPy and balls

        return (leaky_digest(thing),)
    if isinstance(thing, tuple) or (hasattr(thing, "shape") and not hasattr(thing, "to_dag")):
        return data_digests(*thing) if isinstance(thing, tuple) else data_digests(thing)
    if hasattr(thing, "state_dict") and not hasattr(thing, "to_dag"):
        return GivenTensors(thing.state_dict()).digests
    dag = dag_of(thing)
    return dag.digest(), dag.digest(weights=False)


def data_digests(x: Any, y: Any = None) -> tuple[str, ...]:
    """Data as inputs alone, and with their targets or labels."""
    tables = [_table(part) for part in (x, y) if part is not None]
    return tuple(dict.fromkeys((digest_of("data", tables[0]), digest_of("data", *tables))))


def _table(values: Any) -> list[list[float]]:
    try:
        rows = values.tolist() if hasattr(values, "tolist") else list(values)
        return [[float(entry) for entry in row] if isinstance(row, (list, tuple)) else [float(row)] for row in rows]
    except (TypeError, ValueError) as error:
        raise NotACertificate("data are tables of numbers") from error
