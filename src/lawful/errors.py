"""The three ways to misuse `lawful`. Undecided is a result, never an error."""

from __future__ import annotations


class LawfulError(Exception):
    """Base of every error a user can cause; its message fits on one line."""


class InvalidNetwork(LawfulError):
    """The input is not a network: a cycle, a NaN, a file that lies."""


class Unsupported(LawfulError):
    """The input is fine, but this operation does not cover it."""


class CertificateError(LawfulError):
    """A certificate does not prove what it states."""
