"""Readers: whatever holds a network becomes a `Program`."""
