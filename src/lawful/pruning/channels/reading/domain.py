"""Channels as a domain: a network's program as operations on channels, decided by families and traits.

Every entry of a value is a channel of an activation (`values`). Layers make new channels; functions of one number,
sums, products and normalisations by channel, pools and movements pass them on; what no rule follows is pinned. The
rules of each family are functions in a file of their own, which write to a `ChannelRecord`.
"""

from __future__ import annotations

from lawful.program.domains.interpret import AbstractDomain, interpret
from lawful.program.program import Node, Program
from lawful.pruning.channels.reading import arithmetic, functions, layers, movement, normalisation, pools
from lawful.pruning.channels.reading.completion import complete
from lawful.pruning.channels.reading.record import ChannelRecord
from lawful.pruning.channels.reading.values import Held, Value


def read_channels(program: Program, *, fixed: bool = False, still: bool = False) -> ChannelReading:
    """The operations on channels of a program.

    `fixed`: inner channels of attentions stay, for scores may be divided by a number that depends on how many there
    are. `still`: channels stay that movements take elsewhere, into parts or other axes, for those may say how many
    there are.
    """
    return ChannelReading(program, fixed=fixed, still=still)


class ChannelReading(ChannelRecord, AbstractDomain[Value]):
    """A program as operations on channels, with what is known of every value in `values`."""

    def __init__(self, program: Program, *, fixed: bool, still: bool) -> None:
        super().__init__(program, fixed=fixed, still=still)
        self.values = interpret(program, self, program.nodes)
        complete(self, self.values)

    def leaf(self, node: Node) -> Value:
        """Inputs have channels along their second axis, which stay."""
        return self.pin(node, [], "") if node.op == "input" else Held(node)

    def movement(self, node: Node, *sources: Value) -> Value:
        """Labels move."""
        return movement.move(self, node, sources)

    def elementwise(self, node: Node, *operands: Value) -> Value:
        """A function of each channel."""
        return functions.bend(self, node, operands)

    def choice(self, node: Node, *operands: Value) -> Value:
        """A bound by a number, or any function of one channel."""
        return functions.choose(self, node, operands)

    def comparison(self, node: Node, *operands: Value) -> Value:
        """A function of each channel."""
        return functions.compare(self, node, operands)

    def addition(self, node: Node, x: Value, y: Value) -> Value:
        """A shift by channel, or a sum of two activations."""
        return arithmetic.add(self, node, x, y)

    def product(self, node: Node, x: Value, y: Value) -> Value:
        """A scale by channel, or a product of two activations."""
        return arithmetic.multiply(self, node, x, y)

    def contraction(self, node: Node, x: Value, y: Value) -> Value:
        """A layer, or a part of an attention."""
        return layers.contract(self, node, x, y)

    def lookup(self, node: Node, *operands: Value) -> Value:
        """A table of embeddings."""
        return layers.look_up(self, node, operands)

    def reduction(self, node: Node, x: Value) -> Value:
        """A pool over positions."""
        return pools.reduce(self, node, x)

    def normalisation(self, node: Node, x: Value) -> Value:
        """A norm of each channel over positions, or a softmax of scores."""
        return normalisation.normalise(self, node, x)
