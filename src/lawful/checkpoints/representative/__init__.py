"""Another member of the orbit of a checkpoint: the smallest norm, the best ranges for quantisation, a standard form."""
