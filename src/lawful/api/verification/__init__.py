"""Questions about all inputs of a box: specifications, instances files, and whether a certificate answers them."""
