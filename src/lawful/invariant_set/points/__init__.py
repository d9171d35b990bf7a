"""Points of `{x >= 0 : B x = c}` with chosen zeros: exact flows on the graph, evidence that an edge is free."""
