"""What only one paper needs: `truncation` (P2), `leaky` (P3)."""
