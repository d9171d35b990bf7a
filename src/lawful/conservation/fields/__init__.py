"""Families of vector fields that training can follow: gradients, metrics, momentum, weight decay."""
