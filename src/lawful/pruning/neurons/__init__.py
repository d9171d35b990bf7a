"""Pruning of graphs of scalar neurons: rules that change no output, and on a box those with a certified bound.

In comes a `Dag`; out comes a `Pruning`, the networks on the way and the evidence for each step.
"""
