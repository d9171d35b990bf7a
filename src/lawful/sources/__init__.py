"""Whatever a user has becomes a network that says how it was read: the one door of every subcommand and function.

In: a path, text, a module, a state dict, an ONNX model. Out: `Mlp`, `Dag` or a module, each with its `Reading`; and the
way back: changed weights are written in the names, types and files that they came from.
"""
