"""Checkers of what only a paper needs."""
