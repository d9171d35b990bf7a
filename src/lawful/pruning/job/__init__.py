"""Pruning to a size: score units, cut, repair by least squares, and measure on data that chose nothing."""
