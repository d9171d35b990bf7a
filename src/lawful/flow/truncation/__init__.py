"""Training as motion of the data: truncation maps and their gradient flow (P2)."""
