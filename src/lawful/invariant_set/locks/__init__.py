"""Connected components: bottlenecks, cuts and the edges whose sign training cannot change (P0 Theorem 1)."""
