"""Gauges read from the calls of an exported graph: what comparing checkpoints, which edits such graphs, still asks."""
