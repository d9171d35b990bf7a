"""How a network is pruned: as a graph of neurons, by the channels of its program, or as a job to a given size."""
