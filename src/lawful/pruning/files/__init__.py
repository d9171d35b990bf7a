"""Pruned models as files that their own runtime loads: ONNX files, exported modules, Hugging Face folders."""
