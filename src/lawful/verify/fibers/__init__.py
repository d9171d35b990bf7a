"""Checkers of functions: same, identifiable, counted regions, removable neurons."""
