"""The ways to misuse `lawful`. Undecided is a result, never an error."""

from __future__ import annotations


class LawfulError(Exception):
    """Base of every error a user can cause; its message fits on one line."""


class InvalidNetwork(LawfulError):
    """The input is not a network: a cycle, a NaN, a file that lies."""


class Unsupported(LawfulError):
    """The input is fine, but this operation does not cover it."""


class CertificateError(LawfulError):
    """A certificate is rejected: a fact that it states does not hold, or it is not about the network given."""

    kind: str | None = None  # of the certificate, once it is known


class NotACertificate(LawfulError):
    """What came is no certificate at all: not JSON, another kind or version, a key too many, a number that is none."""
