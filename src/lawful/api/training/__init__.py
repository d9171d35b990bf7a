"""Training: flows and optimisers, clusters in motion (`truncation`), Leaky ResNets and the files of their runs."""
