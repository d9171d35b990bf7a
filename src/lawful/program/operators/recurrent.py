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
            own = None if bias is None else b.slice(bias, 0, rows)
            new = b.add(part(x, "n"), b.linear(b.mul(reset, h), b.slice(weight, 0, rows), own))
        new = b.function("tanh", new)
        return [b.add(b.mul(b.sub(1.0, update), new), b.mul(update, h))]

    return step


def _plain_step(b: Builder, weight: Node, bias: Node | None, activation: str) -> Step:
    return lambda x, state: [b.function(activation, b.add(x, b.linear(state[0], weight, bias)))]


def _layers(
    b: Builder,
    x: Node,
    states: list[Node],
    params: Sequence[Node],
    has_biases: bool,
    num_layers: int,
    bidirectional: bool,
    make: Callable[[Node, Node | None], Step],
) -> tuple[Node, list[Node]]:
    """PyTorch's stack of layers: parameters (W_ih, W_hh, b_ih, b_hh) for each layer and direction."""
    ways, each = 2 if bidirectional else 1, 4 if has_biases else 2
    finals: list[list[Node]] = []
    for layer in range(num_layers):
        outputs = []
        for way in range(ways):
            at = layer * ways + way
            w_in, w_rec, *biases = params[at * each : (at + 1) * each]
            b_in, b_rec = biases if biases else (None, None)
            own = [b.reshape(b.slice(state, 0, slice(at, at + 1)), state.shape[1:]) for state in states]
            out, final = _run(b, b.linear(x, w_in, b_in), own, make(w_rec, b_rec), way == 1)
            outputs.append(out)
            finals.append(final)
        x = b.concatenate(outputs, -1) if ways == 2 else outputs[0]
    return x, [b.move(lambda *parts: np.stack(parts), *(final[k] for final in finals)) for k in range(len(states))]


def _steps_first(b: Builder, x: Node, batch_first: bool) -> Node:
    return b.permute(x, (1, 0, 2)) if batch_first and x.rank == 3 else x


def _recurrent(
    b: Builder,
    x: Node,
    states: list[Node],
    params: Sequence[Node],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    make: Callable[[Node, Node | None], Step],
) -> list[Node]:
    if train and dropout:
        raise Refused("a recurrent layer with dropout in training")
    if len(params) != num_layers * (2 if bidirectional else 1) * (4 if has_biases else 2):
        raise Refused("a recurrent layer with projections")
    out, finals = _layers(
        b, _steps_first(b, x, batch_first), states, params, has_biases, num_layers, bidirectional, make
    )
    return [_steps_first(b, out, batch_first), *finals]


@aten("lstm.input")
def lstm(
    b: Builder,
    x: Node,
    hx: Sequence[Node],
    params: Sequence[Node],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> list[Node]:
    """nn.LSTM."""
    return _recurrent(
        b,
        x,
        list(hx),
        params,
        has_biases,
        num_layers,
        dropout,
        train,
        bidirectional,
        batch_first,
        lambda w, bias: _lstm_step(b, w, bias, "ifgo"),
    )


@aten("gru.input")
def gru(
    b: Builder,
    x: Node,
    hx: Node,
    params: Sequence[Node],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> list[Node]:
    """nn.GRU."""
    return _recurrent(
        b,
        x,
        [hx],
        params,
        has_biases,
        num_layers,
        dropout,
        train,
        bidirectional,
        batch_first,
        lambda w, bias: _gru_step(b, w, bias, "rzn", True),
    )


def _register_plain(name: str, activation: str) -> None:
    @aten(f"{name}.input")
    def layer(
        b: Builder,
        x: Node,
        hx: Node,
        params: Sequence[Node],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> list[Node]:
        return _recurrent(
            b,
            x,
            [hx],
            params,
            has_biases,
            num_layers,
            dropout,
            train,
            bidirectional,
            batch_first,
            lambda w, bias: _plain_step(b, w, bias, activation),
        )


_register_plain("rnn_tanh", "tanh")
_register_plain("rnn_relu", "relu")

# ONNX: one layer, one or two directions, all of them along a first axis of the weights


def _onnx_recurrent(
    b: Builder,
    x: Node,
    w: Node,
    r: Node,
    bias: Node | None,
    lengths: Node | None,
    starts: Sequence[Node | None],
    hidden: int,
    direction: str,
    layout: int,
    make: Callable[[Node, Node | None], Step],
) -> list[Node]:
    if layout:
        x = b.permute(x, (1, 0, 2))
        starts = [None if each is None else b.permute(each, (1, 0, 2)) for each in starts]
    if lengths is not None and (known := b.value(lengths)) is not None and bool((known >= x.shape[0]).all()):
        lengths = None

    def pick(t: Node, way: int) -> Node:
        return b.reshape(b.slice(t, 0, slice(way, way + 1)), t.shape[1:])

    outputs, finals = [], []
    for way in range(w.shape[0]):
        own, half = (None, 0) if bias is None else (pick(bias, way), bias.shape[1] // 2)
        b_in, b_rec = (
            (None, None) if own is None else (b.slice(own, 0, slice(0, half)), b.slice(own, 0, slice(half, None)))
        )
        zero = b.constant(np.zeros((x.shape[1], hidden)))
        state = [zero if each is None else pick(each, way) for each in starts]
        backwards = direction == "reverse" or way == 1
        out, final = _run(b, b.linear(x, pick(w, way), b_in), state, make(pick(r, way), b_rec), backwards, lengths)
        outputs.append(out)
        finals.append(final)
    whole = b.move(lambda *parts: np.stack(parts, 1), *outputs)
    ends = [b.move(lambda *parts: np.stack(parts), *(f[k] for f in finals)) for k in range(len(starts))]
    if layout:
        return [b.permute(whole, (2, 0, 1, 3)), *(b.permute(end, (1, 0, 2)) for end in ends)]
    return [whole, *ends]


def _need_plain(activations: Any, usual: Sequence[str], ways: int) -> None:
    if activations is not None and list(activations) != list(usual) * ways:
        raise Refused(f"a recurrence with the activations {activations}")


@onnx("LSTM", weights=(1, 2, 3))
def _lstm(
    b: Builder,
    x: Node,
    w: Node,
    r: Node,
    bias: Node | None = None,
    lengths: Node | None = None,
    h: Node | None = None,
    c: Node | None = None,
    peepholes: Node | None = None,
    activations: Any = None,
    direction: str = "forward",
    hidden_size: int = 0,
    layout: int = 0,
) -> list[Node]:
    _need_plain(activations, ("Sigmoid", "Tanh", "Tanh"), w.shape[0])
    if peepholes is not None:
        raise Refused("LSTM with peepholes")
    return _onnx_recurrent(
        b,
        x,
        w,
        r,
        bias,
        lengths,
        [h, c],
        r.shape[2],
        direction,
        layout,
        lambda weight, own: _lstm_step(b, weight, own, "iofg"),
    )


@onnx("GRU", weights=(1, 2, 3))
def _gru(
    b: Builder,
    x: Node,
    w: Node,
    r: Node,
    bias: Node | None = None,
    lengths: Node | None = None,
    h: Node | None = None,
    activations: Any = None,
    direction: str = "forward",
    hidden_size: int = 0,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> list[Node]:
    _need_plain(activations, ("Sigmoid", "Tanh"), w.shape[0])
    return _onnx_recurrent(
        b,
        x,
        w,
        r,
        bias,
        lengths,
        [h],
        r.shape[2],
        direction,
        layout,
        lambda weight, own: _gru_step(b, weight, own, "zrn", bool(linear_before_reset)),
    )


@onnx("RNN", weights=(1, 2, 3))
def _rnn(
    b: Builder,
    x: Node,
    w: Node,
    r: Node,
    bias: Node | None = None,
    lengths: Node | None = None,
    h: Node | None = None,
    activations: Any = None,
    direction: str = "forward",
    hidden_size: int = 0,
    layout: int = 0,
) -> list[Node]:
    names = set(activations or ["Tanh"])
    if len(names) > 1 or not names <= {"Tanh", "Relu"}:
        raise Refused(f"a recurrence with the activations {activations}")
    function = names.pop().lower()
    return _onnx_recurrent(
        b,
        x,
        w,
        r,
        bias,
        lengths,
        [h],
        r.shape[2],
        direction,
        layout,
        lambda weight, own: _plain_step(b, weight, own, function),
    )
