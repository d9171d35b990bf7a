"""Can one hidden neuron go? Decided in rationals, with evidence either way; and the fewest neurons that are enough."""
