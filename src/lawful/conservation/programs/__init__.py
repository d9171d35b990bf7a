"""A module as the straight-line program of a proof, and identities of such programs.

In: a `lawful.program.Program`. Out: steps over a number type (residues, balls, floats) that a certificate can hold.
"""
