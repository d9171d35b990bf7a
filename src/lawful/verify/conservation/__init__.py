"""Checkers of what training conserves."""
