"""What is trained: a network or module with data and loss as a function of its parameters, its kinks located."""
