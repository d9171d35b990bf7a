"""The group that acts on the weights of an architecture without changing its function.

From the symmetries of a program to spaces of permutations, scales and matrices (`spaces`, `read_spaces`, `heads`),
each tried on the module before it is used (`trials`); and what a member of the group does to tensors (`axis_actions`).
"""
