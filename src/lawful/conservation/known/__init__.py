"""Explicit laws: those a graph gives away, polynomial and logarithmic ones found by linear algebra, flow boxes."""
