"""Where training can go: balance, components, paths and rebalancing of the invariant set (paper 0)."""
