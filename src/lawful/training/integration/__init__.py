"""Gradient flow integrated across kinks: DOP853 on a smooth piece, a restart at each kink, runs that can be resumed."""
