"""Results about one network as text, JSON and pages: laws, symmetries, components, fibers, pruning, bounds."""
