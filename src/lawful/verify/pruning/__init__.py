"""Checkers of smaller networks of neurons."""
