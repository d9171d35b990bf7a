"""ONNX files as networks: graphs of scalar weights, or modules that run the file's program; and written again."""
