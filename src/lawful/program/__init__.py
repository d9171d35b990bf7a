"""A network read once, as a program of one table of operators; every question is an interpretation of it.

What comes in: a PyTorch module, an ONNX file, layers or a line of text (`frontends`). What it becomes: a `Program`,
nodes of the operators in `operators`, all sizes known, in one normal form (`builder`), so that what is spelled in two
ways is the same program. What goes out: whatever a domain computes node by node (`domains`: values,
dependences, intervals), another program (`passes`), or a module or file again (`backends`).
"""

from lawful.program import operators as operators
from lawful.program.builder import Builder
from lawful.program.program import Node, Program
from lawful.program.table import Refused

__all__ = ["Builder", "Node", "Program", "Refused"]
