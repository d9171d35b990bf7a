"""Subcommands about one network as it stands: laws, symmetries, components, pruning, fibers, bounds on a box."""
