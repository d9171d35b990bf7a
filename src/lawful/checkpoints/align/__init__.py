"""Alignment: the member of the orbit of B that is nearest to A, found one space at a time.

Permutations are assignment problems, rotations are Procrustes problems; tensors are loaded when they are needed.
"""
