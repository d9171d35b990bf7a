"""Laws watched while a PyTorch model trains, in the loops that people run (Lightning, the Trainer, DDP, autocast)."""
