"""Runs of training, truncations, residual streams and sweeps as text, JSON and pages."""
