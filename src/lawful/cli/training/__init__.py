"""Subcommands that train or watch training: `flow`, `compare`, `drift`, `leaky`, `bottleneck`, truncations, sweeps."""
