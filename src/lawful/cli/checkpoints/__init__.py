"""Subcommands about checkpoints: `align`, `find`, `merge`, `canonical` and `rebalance` of modules."""
