"""How many directions the fields of training reach: Lie brackets, their ranks, and how likely a rank is too small.

In: a family of vector fields over residues, balls or floats. Out: dimensions of the closure and a
witness (P1 Lemma 3.2).
"""
