"""Checkers of runs of training."""
