"""Checkers of tensors in files."""
