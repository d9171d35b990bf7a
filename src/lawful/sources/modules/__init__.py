"""PyTorch modules and networks, both ways; nothing here loads PyTorch before a module is there."""
