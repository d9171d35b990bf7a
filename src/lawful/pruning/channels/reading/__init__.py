"""A network's program read as operations on channels: one file for each idea, joined by `domain`."""
