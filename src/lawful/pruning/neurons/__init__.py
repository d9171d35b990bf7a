"""Which single neurons of a layered network can go: decided exactly, with evidence either way."""
