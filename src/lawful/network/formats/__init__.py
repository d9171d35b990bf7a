"""Networks and data in files: one file per format, both ways; sizes are checked before memory is taken."""
