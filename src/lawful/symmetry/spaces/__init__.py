"""What is left of the group, as spaces that are named by the parameters they move.

Matrices, scales along axes, constant directions that nothing sees and means of streams (`parameter_spaces`), scales
entry by entry (`torus_spaces`), and permutations that nothing tells apart (`permutations`).
"""
