"""What is left of the group, as spaces that are named by the parameters they move.

Matrices and scales along axes (`parameter_spaces`), constant directions that nothing sees (`shift_spaces`), means of
streams (`mean_spaces`), scales entry by entry (`torus_spaces`), and permutations that nothing tells apart
(`permutations`).
"""
