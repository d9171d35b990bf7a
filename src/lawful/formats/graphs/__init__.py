"""Files that hold a graph: JSON graphs, `.nnet`, and the bytes of ONNX files."""
