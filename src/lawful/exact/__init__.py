"""Arithmetic modulo a prime: arrays, nested dual numbers, rank, nullspaces, rational reconstruction."""

from lawful.exact.elimination import batched_nullities, independent_rows, nullspace, rank
from lawful.exact.field import PRIME, Dual, check_prime, is_prime, rational, residues, to_residues

__all__ = [
    "PRIME",
    "Dual",
    "batched_nullities",
    "check_prime",
    "independent_rows",
    "is_prime",
    "nullspace",
    "rank",
    "rational",
    "residues",
    "to_residues",
]
