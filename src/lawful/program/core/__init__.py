"""Straight-line programs: what certificates hold of a network, and arithmetic with them."""
