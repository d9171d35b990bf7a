"""Splitting phases of neurons and halves of inputs, with optimised multipliers and a certificate for every *holds*."""
