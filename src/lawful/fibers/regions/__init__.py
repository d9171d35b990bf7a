"""Linear regions of ReLU networks in exact arithmetic: cells, polytopes, pattern trees, comparisons with proofs."""
