"""Where training can go: balances, components, paths, singularities and pruning (paper 0)."""
