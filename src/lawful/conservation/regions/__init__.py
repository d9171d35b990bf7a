"""Which activation patterns count: near given weights, on data, along a line of inputs, or everywhere."""
