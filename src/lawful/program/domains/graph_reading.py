"""Programs as scalar graphs: what can be one, the end that is cut off, and what is said of the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from lawful.errors import Unsupported
from lawful.network import Dag, Mlp
from lawful.network.assemble import Assembly, Value, check_terms
from lawful.program.builder import Builder
from lawful.program.domains.interpret import interpret
from lawful.program.domains.scalar_graph import ScalarGraph
from lawful.program.passes.core import lower_convolution
from lawful.program.passes.rebuild import rebuild
from lawful.program.passes.tail import Tail, depends_on_input, split, starts
from lawful.program.program import Node, Program
from lawful.program.table import OperatorFamily

ROUNDS = "rounds to "  # how notes begin


@dataclass(frozen=True, eq=False)
class GraphReading:
    """The neurons of a program, the entries of its output, and the end that was cut off."""

    domain: ScalarGraph
    value: Value
    tail: Tail | None

    @property
    def casts(self) -> set[str]:
        """The types to which values are rounded on the way."""
        return {note.removeprefix(ROUNDS) for note in self.domain.program.notes if note.startswith(ROUNDS)}

    def find_entangled(self, network: Mlp | Dag, holder: str) -> tuple[str, ...]:
        """Why the graph's edges are not the parameters one by one; `holder` is what holds them."""
        twice = [f"{name} is used more than once" for name, times in self.domain.used.items() if times > 1]
        trained = self.domain.program.parameters
        used_size = sum(node.size for name, node in trained.items() if name in self.domain.used)
        reasons = (*self.domain.entangled, *twice)
        if not reasons and used_size != network.parameters:
            return (f"the {holder} holds {used_size:,} weights and its graph {network.parameters:,}",)
        return tuple(dict.fromkeys(reasons))


def read_graph(
    program: Program,
    batch: int,
    frozen: Collection[str] = (),
    hint: Callable[[str], str] | None = None,
    may_be_constant: bool = False,
) -> GraphReading:
    """The scalar graph of a program of one input, whose first axis counts samples if `batch` says how many.

    `frozen` are parameters that do not train, `hint` says what to do about a place that cannot be followed;
    `may_be_constant` lets an output ignore the input, for questions about the function alone.
    """
    parts = split(program, is_piecewise_linear)
    if isinstance(parts, Node):
        place = program.places.get(parts, parts.op)
        raise Unsupported(f"{place}: {_obstacle(parts, program, hint(place) if hint else '')}")
    head, tail = parts
    lowered, shape = _lower(head), program.inputs[0].shape
    domain = ScalarGraph(lowered, Assembly(shape[1:] if batch else shape), batch, frozen, may_be_constant)
    (output,) = lowered.outputs
    return GraphReading(domain, domain.result(output, interpret(lowered, domain)[output]), tail)


def is_piecewise_linear(node: Node, given: Collection[Node]) -> bool:
    """Whether the graph can follow a node, of whose operands those in `given` depend on the input."""
    varying = [operand for operand in node.inputs if operand in given]
    traits = node.traits
    if node.family is OperatorFamily.MOVEMENT:
        return True
    if node.family is OperatorFamily.ELEMENTWISE:
        bends = traits.degree == 1 and len(node.inputs) == 1
        return bends or (node.op == "cast" and node.kind == "f" and node.inputs[0].kind == "i")
    if node.family is OperatorFamily.ADDITION:
        return node.kind == "f"
    if node.family in (OperatorFamily.PRODUCT, OperatorFamily.CONTRACTION):
        return len(varying) == 1 and node.kind == "f"
    if node.family is OperatorFamily.REDUCTION:
        return node.kind == "f" and traits.degree == 1 and (traits.linear != "" or traits.shift == 1)
    if node.family is OperatorFamily.CHOICE:
        return node.kind == "f" and len(node.inputs) == 2 and traits.degree == 1 and traits.shift == 1
    return False


def unrolled_edges(program: Program) -> int:
    """How many edges the convolutions unroll into, by their sizes alone: taps that fall beside the picture are none."""
    total = 0
    for node in program.nodes:
        if node.op != "conv" or node["transposed"]:
            continue
        picture, kernel = (operand.shape for operand in node.inputs)
        count = kernel[0] * kernel[1]
        steps = (node["stride"], node["padding"], node["dilation"])
        for inside, taps, outside, step, before, apart in zip(
            picture[2:], kernel[2:], node.shape[2:], *steps, strict=True
        ):
            spots = np.arange(outside)[:, None] * step - before + np.arange(taps) * apart
            count *= int(((spots >= 0) & (spots < inside)).sum())
        total += int(count)
    return total


def _lower(program: Program) -> Program:
    check_terms(unrolled_edges(program))

    def rule(b: Builder, node: Node, operands: tuple[Node, ...]) -> Node | None:
        return lower_convolution(b, node, *operands) if node.op == "conv" else None

    return rebuild(program, rule) if any(node.op == "conv" for node in program.nodes) else program


def _obstacle(node: Node, program: Program, hint: str) -> str:
    """Why a node cannot be followed."""
    varying = depends_on_input(program)
    if node.family is OperatorFamily.OPAQUE:
        reason = node["detail"].rpartition(" (")[2].removesuffix(")")
        return f"is not supported{'' if reason == 'no entry' else f' ({reason})'}{hint and '; '}{hint}"
    bilinear = node.family in (OperatorFamily.PRODUCT, OperatorFamily.CONTRACTION)
    if (bilinear and all(operand in varying for operand in node.inputs)) or (
        node.op == "power" and node["exponent"] > 1
    ):
        return "multiplies two tensors that both depend on the input"
    if node.op == "cast":
        return "rounds to whole numbers"
    if any(operand.kind == "i" and operand in varying for operand in node.inputs):
        return "computes with whole numbers before they are cast to real ones"
    if starts(node):
        return f"is supported at the end of a network alone{hint and '; '}{hint}"
    return f"is not supported{hint and '; '}{hint}"
