"""Residual streams of any network: its blocks, their neurons, and the instruments of P3 read at every block."""
