"""Checkers of smaller networks of channels."""
