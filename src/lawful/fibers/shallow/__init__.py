"""One hidden layer: its unique normal form, its whole fiber, and every role its neurons can take (P4 Section 4)."""
