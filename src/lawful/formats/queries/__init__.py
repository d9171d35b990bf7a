"""What a user asks about, from files: boxes, data sets, metrics, VNN-LIB specifications."""
