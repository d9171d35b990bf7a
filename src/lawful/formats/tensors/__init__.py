"""Files that hold named arrays: `.safetensors`, `.pt`, `.npz`, and checkpoints in several files."""
