"""Which parameters are the same function (P4)."""
