"""Benchmarks: ours beside the naive way, as ratios from one run."""
