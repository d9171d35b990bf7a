"""From a start to a geodesic of a Leaky ResNet: the cost, L-BFGS with Newton corrections, and the paper's recipe."""
