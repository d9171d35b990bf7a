"""The gradient flow of truncation maps: closed forms, velocities that jump, integration across jumps (P2)."""
