"""Are two checkpoints related, and how: tests with a null that holds for networks trained apart on the same data.

Networks that learnt one task agree after alignment, so likeness alone is no evidence. `null` has the two null laws.
`places` tests whether units stand where those of the other stand: exact if either start was drawn at random, and what
alone says that two checkpoints are related. `held_out` tells whether tensors that were left out of the alignment agree
where no task demands it, in any coordinates. `verdict` puts both together, `layers` reads networks of layers without
tracing them, and `kinship` adds what was done to a relative.
"""
