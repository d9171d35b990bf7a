"""Checkers of invariant sets: components, paths, rebalanced weights, singular points."""
