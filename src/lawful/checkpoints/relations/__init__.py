"""Are two checkpoints related, and how: tests with a null that holds for networks trained apart on the same data.

Networks that learnt one task agree after alignment, so likeness alone is no evidence. `statistics` has both tests with
their null laws: whether units stand where those of the other stand, which alone says that two checkpoints are related,
and whether tensors that were left out of the alignment agree where no task demands it. `verdict` puts both together,
`kinship` adds what was done to a relative, and `block_matching` compares networks of other depths and sizes.
"""
