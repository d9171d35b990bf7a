"""Several hidden layers: what the function determines of the parameters, and how many directions stay free."""
