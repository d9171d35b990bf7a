"""Checkers of smaller networks: of neurons, and of channels."""
