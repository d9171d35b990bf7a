"""Recurrent layers, written out step by step: sizes are known, and so is the number of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lawful.program.builder import Builder
from lawful.program.program import Node
from lawful.program.table import Refused, aten, onnx

MOST_STEPS = 256  # beyond this a program has many thousands of nodes, and every domain pays for each
Step = Callable[[Node, list[Node]], list[Node]]
Make = Callable[[Builder, Node, Node | None], Step]


def _run(
    b: Builder, x: Node, state: list[Node], step: Step, backwards: bool, lengths: Node | None = None
) -> tuple[Node, list[Node]]:
    """The outputs of all steps, stacked, and the last state; x has its steps first.

    Beyond the length of a sample its state stays and its outputs are 0: read backwards, it starts at its last entry.
    """
    if x.shape[0] > MOST_STEPS:
        raise Refused(f"a recurrence of {x.shape[0]} steps (at most {MOST_STEPS})")
    outputs: list[Any] = [None] * x.shape[0]
    for t in range(x.shape[0])[::-1] if backwards else range(x.shape[0]):
        new = step(b.reshape(b.slice(x, 0, slice(t, t + 1)), x.shape[1:]), state)
        if lengths is None:
            state = new
            outputs[t] = state[0]
        else:
            inside = b.reshape(b.elementwise("gt", lengths, t), (lengths.size, 1))
            state = [b.where(inside, one, other) for one, other in zip(new, state, strict=True)]
            outputs[t] = b.where(inside, new[0], 0.0)
    return b.move(lambda *parts: np.stack(parts), *outputs), state


def _lstm_step(b: Builder, weight: Node, bias: Node | None, order: str) -> Step:
    """c ← f c + i g, h ← o tanh(c); x comes multiplied already."""

    def step(x: Node, state: list[Node]) -> list[Node]:
        h, c = state
        gates = b.add(x, b.linear(h, weight, bias))
        size = gates.shape[-1] // 4
        part = {name: b.slice(gates, -1, slice(k * size, (k + 1) * size)) for k, name in enumerate(order)}
        keep, enter, leave = (b.function("sigmoid", part[name]) for name in "fio")
        c = b.add(b.mul(keep, c), b.mul(enter, b.function("tanh", part["g"])))
        return [b.mul(leave, b.function("tanh", c)), c]

    return step


def _gru_step(b: Builder, weight: Node, bias: Node | None, order: str, reset_after: bool) -> Step:
    """h ← (1 - z) n + z h, with the reset gate before or after the recurrent product."""

    def step(x: Node, state: list[Node]) -> list[Node]:
        h = state[0]
        size = h.shape[-1]

        def part(gates: Node, name: str) -> Node:
            at = order.index(name)
            return b.slice(gates, gates.rank - 1, slice(at * size, (at + 1) * size))

        inner = b.linear(h, weight, bias)
        update, reset = (b.function("sigmoid", b.add(part(x, name), part(inner, name))) for name in "zr")
        if reset_after:
            new = b.add(part(x, "n"), b.mul(reset, part(inner, "n")))
        else:
            at = order.index("n")
            rows = slice(at * size, (at + 1) * size)
            shift = None if bias is None else b.slice(bias, 0, rows)
            new = b.add(part(x, "n"), b.linear(b.mul(reset, h), b.slice(weight, 0, rows), shift))
        new = b.function("tanh", new)
        return [b.add(b.mul(b.sub(1.0, update), new), b.mul(update, h))]

    return step


def _plain_step(b: Builder, weight: Node, bias: Node | None, activation: str) -> Step:
    return lambda x, state: [b.function(activation, b.add(x, b.linear(state[0], weight, bias)))]


def _register(name: str, make: Make) -> None:
    """PyTorch's stack of layers: parameters (W_ih, W_hh, b_ih, b_hh) for each layer and direction."""

    @aten(f"{name}.input")
    def stack(b: Builder, x: Node, hx: Any, params: Sequence[Node], has_biases: bool, num_layers: int, dropout: float,
              train: bool, bidirectional: bool, batch_first: bool) -> list[Node]:  # fmt: skip
        if train and dropout:
            raise Refused("a recurrent layer with dropout in training")
        ways, count = 2 if bidirectional else 1, 4 if has_biases else 2
        if len(params) != num_layers * ways * count:
            raise Refused("a recurrent layer with projections")
        starts: list[Node] = [hx] if isinstance(hx, Node) else list(hx)
        x, finals = _steps_first(b, x, batch_first), []
        for layer in range(num_layers):
            outputs = []
            for way in range(ways):
                at = layer * ways + way
                w_in, w_rec, *biases = params[at * count : (at + 1) * count]
                b_in, b_rec = biases or (None, None)
                state = [_pick(b, start, at) for start in starts]
                out, final = _run(b, b.linear(x, w_in, b_in), state, make(b, w_rec, b_rec), way == 1)
                outputs.append(out)
                finals.append(final)
            x = b.concatenate(outputs, -1)
        return [_steps_first(b, x, batch_first), *_stack_states(b, finals)]


def _steps_first(b: Builder, x: Node, batch_first: bool) -> Node:
    return b.permute(x, (1, 0, 2)) if batch_first and x.rank == 3 else x


def _pick(b: Builder, x: Node, at: int) -> Node:
    """One slice along the first axis, which goes."""
    return b.reshape(b.slice(x, 0, slice(at, at + 1)), x.shape[1:])


def _stack_states(b: Builder, finals: Sequence[Sequence[Node]]) -> list[Node]:
    return [b.move(lambda *parts: np.stack(parts), *states) for states in zip(*finals, strict=True)]


_register("lstm", lambda b, weight, bias: _lstm_step(b, weight, bias, "ifgo"))
_register("gru", lambda b, weight, bias: _gru_step(b, weight, bias, "rzn", True))
_register("rnn_tanh", lambda b, weight, bias: _plain_step(b, weight, bias, "tanh"))
_register("rnn_relu", lambda b, weight, bias: _plain_step(b, weight, bias, "relu"))


def _register_onnx(name: str, states: int, usual: tuple[str, ...], choose: Callable[[Any, int], Make]) -> None:
    """ONNX's one layer, in one or two directions, all of them along a first axis of the weights."""

    @onnx(name, weights=(1, 2, 3))
    def layer(b: Builder, x: Node, w: Node, r: Node, bias: Node | None = None, lengths: Node | None = None,
              h: Node | None = None, c: Node | None = None, peepholes: Node | None = None, activations: Any = None,
              direction: str = "forward", hidden_size: int = 0, layout: int = 0, linear_before_reset: int = 0,
              ) -> list[Node]:  # fmt: skip
        named = list(activations or usual * w.shape[0])
        if named != named[: len(usual)] * w.shape[0] or (name != "RNN" and tuple(named[: len(usual)]) != usual):
            raise Refused(f"a recurrence with the activations {activations}")
        if peepholes is not None:
            raise Refused("LSTM with peepholes")
        starts = [h, c][:states]
        if layout:
            x = b.permute(x, (1, 0, 2))
            starts = [None if start is None else b.permute(start, (1, 0, 2)) for start in starts]
        if lengths is not None and (known := b.value(lengths)) is not None and bool((known >= x.shape[0]).all()):
            lengths = None
        make, outputs, finals = choose(named[0], linear_before_reset), [], []
        for way in range(w.shape[0]):
            both = None if bias is None else _pick(b, bias, way)
            half = slice(0, r.shape[1]), slice(r.shape[1], None)
            b_in, b_rec = (None if both is None else b.slice(both, 0, part) for part in half)
            zero = b.constant(np.zeros((x.shape[1], r.shape[2])))
            state = [zero if initial is None else _pick(b, initial, way) for initial in starts]
            step = make(b, _pick(b, r, way), b_rec)
            backwards = direction == "reverse" or way == 1
            out, final = _run(b, b.linear(x, _pick(b, w, way), b_in), state, step, backwards, lengths)
            outputs.append(out)
            finals.append(final)
        whole, ends = b.move(lambda *parts: np.stack(parts, 1), *outputs), _stack_states(b, finals)
        if layout:
            return [b.permute(whole, (2, 0, 1, 3)), *(b.permute(end, (1, 0, 2)) for end in ends)]
        return [whole, *ends]


def _choose_plain(activation: str, _: int) -> Make:
    if activation not in ("Tanh", "Relu"):
        raise Refused(f"a recurrence with the activation {activation}")
    return lambda b, weight, bias: _plain_step(b, weight, bias, activation.lower())


_register_onnx(
    "LSTM",
    2,
    ("Sigmoid", "Tanh", "Tanh"),
    lambda *_: lambda b, weight, bias: _lstm_step(b, weight, bias, "iofg"),
)
_register_onnx(
    "GRU",
    1,
    ("Sigmoid", "Tanh"),
    lambda _, after: lambda b, weight, bias: _gru_step(b, weight, bias, "zrn", bool(after)),
)
_register_onnx("RNN", 1, ("Tanh",), _choose_plain)
