"""What can be asked of a program: domains of values, and the one loop that interprets a program in them."""
