"""Networks of zero loss that are built instead of trained: one layer collapses one cluster (P2 Section 3)."""
