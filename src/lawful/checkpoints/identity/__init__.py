"""One hash for a whole orbit: it does not depend on the order of units, on their scales or on rotations of heads."""
