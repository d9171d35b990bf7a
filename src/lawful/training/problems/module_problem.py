"""Any PyTorch module and loss as a training problem, its activation pattern held still by intercepting the calls.

Idea: every function with a kink is written with ReLUs (`piecewise.py`), and each ReLU multiplies by a gate that it is
given instead of looking at a sign: loss and gradient are smooth in θ while gates stand still. From the third
evaluation on the calls are recorded and replayed, which leaves out the module's own code. Invariant: a replay is used
only if it gave the same numbers as the module once; at the gates of the point itself the gradient is that of autograd.
Cost: one forward and one backward pass for each evaluation.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from lawful.errors import LawfulError, Unsupported
from lawful.sources.modules.classes import check_labels, class_rows, classes_axis, vocabulary_of
from lawful.sources.modules.functional_call import as_taken, call_with
from lawful.sources.modules.trained_field import refuse_special_parameters
from lawful.training.problems.losses import LossValue, check_data, find_loss
from lawful.training.problems.piecewise import rewritten, unlocated_call
from lawful.types import Floats, Indices

# Calls of a PyTorch function, recorded once and replayed: no module code, no autograd, no dispatch to modes.


Tensors = Sequence[torch.Tensor]
ATEN = torch.ops.aten
QUICK: dict[Any, Any] = {  # the same calls, past the dispatcher's own Python
    ATEN.t.default: torch.t, ATEN.mm.default: torch.mm, ATEN.bmm.default: torch.bmm, ATEN.addmm.default: torch.addmm,
    ATEN.mul.Tensor: torch.mul, ATEN.add.Tensor: torch.add, ATEN.sub.Tensor: torch.sub,
    ATEN.sum.dim_IntList: torch.sum,
}  # fmt: skip


def record_calls(function: Callable[..., Sequence[torch.Tensor]], examples: Tensors) -> Callable[..., Tensors] | None:
    """The same function of tensors of these sizes as a list of ATen calls, backward passes included.

    None where the calls cannot be known beforehand: a branch that depends on values, a number taken out of a tensor, a
    change in place of something that is not an argument.

    >>> def slope(x):
    ...     x = x.detach().requires_grad_()
    ...     return torch.autograd.grad(x.sin().sum(), [x])
    >>> replay = record_calls(slope, [torch.zeros(3)])
    >>> torch.allclose(replay(torch.ones(3))[0], torch.ones(3).cos())
    True
    >>> record_calls(lambda x: [x if x.sum() > 0 else -x], [torch.ones(3)]) is None
    True
    """
    try:
        module: Any = make_fx(function)(*examples)
    except Exception:  # the module's own code runs, and tracing refuses in many ways
        return None
    if any(_changes(node) and _lasting(node.args[0]) for node in module.graph.nodes):
        return None
    for node in list(module.graph.nodes):
        _simplify(node, module.graph)
    module.graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output") or _changes(node))
    module.recompile()
    forward: Callable[..., Tensors] = module.forward
    return forward


def _changes(node: fx.Node) -> bool:
    """Whether a call changes its first argument in place."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _lasting(node: Any) -> bool:
    """Whether a value lives in a tensor that is not made anew by every replay: an argument or a buffer."""
    while isinstance(node, fx.Node) and node.op == "call_function" and _looks_into(node):
        node = node.args[0]
    return not (isinstance(node, fx.Node) and node.op == "call_function")


def _looks_into(node: fx.Node) -> bool:
    """Whether a call returns a view of its first argument, or that argument."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and any(result.alias_info is not None for result in schema.returns)


def _simplify(node: fx.Node, graph: fx.Graph) -> None:
    """Leave out what changes nothing, and call by the quickest way."""
    if node.op != "call_function":
        return
    source: Any = node.args[0] if node.args else None
    same = isinstance(source, fx.Node) and _shape(node) == _shape(source)
    if node.target is ATEN.detach.default or (node.target in (ATEN.view.default, ATEN.expand.default) and same):
        node.replace_all_uses_with(source)
        graph.erase_node(node)
    elif node.target is ATEN.t.default and source.target in (ATEN.t.default, torch.t):
        node.replace_all_uses_with(source.args[0])
        graph.erase_node(node)
    elif not node.kwargs and node.target in QUICK:
        node.target = QUICK[node.target]


def _shape(node: fx.Node) -> tuple[int, ...] | None:
    value = node.meta.get("val")
    return tuple(value.shape) if isinstance(value, torch.Tensor) else None


RECORD_AFTER = 3  # evaluations of one size: a recording takes as long as fifty of them


class _Gates(TorchFunctionMode):
    """Replaces each ReLU by a product with its gates (the true ones if none are given), and notes its input.

    Other functions with kinks are first rewritten with ReLUs; `unlocated_call` names those for which that is not known.
    """

    def __init__(self, gates: Iterable[torch.Tensor] | None) -> None:
        super().__init__()
        self.gates = None if gates is None else iter(gates)
        self.heights, self.values, self.slopes = list[torch.Tensor](), list[torch.Tensor](), list[float]()
        self.names, self.unlocated = list[str](), set[str]()

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        options = options or {}
        result = rewritten(function, arguments, options, lambda name: partial(self._gate, name))
        if result is not None:
            return result
        name = unlocated_call(function, arguments)
        if name is not None:
            self.unlocated.add(name)
        return function(*arguments, **options)

    def _gate(self, name: str, height: torch.Tensor, slope: float = 0.0) -> torch.Tensor:
        self.names.append(name)
        self.heights.append(height)
        gate = (height > 0).to(height.dtype) if self.gates is None else next(self.gates)
        self.values.append(height * (gate if slope == 0.0 else slope + (1.0 - slope) * gate))
        self.slopes.append(slope)
        return self.values[-1]


class ModuleProblem:
    """The loss of any module, its kinks located: those of ReLUs and of functions that ReLUs can express.

    Those are clamps, hard sigmoids, absolute values, maxima, max pooling and the like (`problems.piecewise`). Other
    kinks are met by smaller steps, and `unlocated` names the functions that have them. `loss` is `mse`, `bce`, `ce`
    (classes are axis 1 of the output, as in PyTorch, or the last axis of a module that reads token ids) or a callable
    `(outputs, y) -> scalar tensor`. The module is copied to float64.
    """

    def __init__(self, module: torch.nn.Module, x: Any, y: Any, loss: str | Callable[..., Any] = "mse") -> None:
        refuse_special_parameters(module)
        self.module = copy.deepcopy(module).double()
        trained = {name: value for name, value in self.module.named_parameters() if value.requires_grad}
        if not trained:
            raise LawfulError("the module has no parameters that train")
        self._shapes = {name: value.shape for name, value in trained.items()}
        self.start = np.concatenate([value.detach().numpy().ravel() for value in trained.values()])
        self.loss = loss
        inputs, raw = check_data(x, y)
        self.targets = raw
        self.x = as_taken(self.module, inputs)
        self.y: torch.Tensor | None = None if isinstance(loss, str) else torch.as_tensor(np.asarray(y))
        self._tokens = vocabulary_of(self.module, self.x.shape[1:]) is not None
        self._met: dict[torch.Size, list[tuple[str, tuple[int, ...]]]] = {}  # by the size of x
        self._tapes: dict[Any, int | _Tape] = {}  # evaluations so far, then a recording
        self._together = True  # whether several gradients can be taken in one backward pass
        self.unlocated: tuple[str, ...] = ()
        self._check()

    def _check(self) -> None:
        """Run twice: shapes fit, the loss is a scalar, no dropout makes the answers differ; then twice untouched."""
        first, second = self.evaluate(self.start), self.evaluate(self.start)
        with torch.no_grad():
            weights = self._weights(torch.as_tensor(self.start))
            plain, again = (self._loss(self._outputs(weights, self.x), self.y) for _ in range(2))
        # Dropout of few numbers may drop the same ones twice.
        if first.loss != second.loss or (plain != again and plain.isfinite()):
            raise Unsupported("the module answers differently each time: call .eval() before taking its flow")
        if not abs(plain.item() - first.loss) <= 1e-9 * max(1.0, abs(first.loss)) and np.isfinite(first.loss):
            raise Unsupported("the module changes a tensor in place (relu_): take its flow without inplace calls")

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.x)

    @property
    def _calls(self) -> list[tuple[str, tuple[int, ...]]]:
        """The functions with kinks that an evaluation meets, and the shapes of what they are given."""
        if self.x.shape not in self._met:
            self.heights(self.start)
        return self._met[self.x.shape]

    def rows(self, samples: Indices) -> ModuleProblem:
        """The same problem on some of the samples."""
        twin = copy.copy(self)
        twin.x, twin.targets = self.x[torch.as_tensor(samples)], self.targets[samples]
        twin.y = None if self.y is None else self.y[torch.as_tensor(samples)]
        return twin

    def label(self, gate: int) -> tuple[int, str]:
        """Sample and neuron of a gate: the function, the number of the ReLU that stands for it, and the unit in it."""
        for call, (name, shape) in enumerate(self._calls, 1):
            size = math.prod(shape)
            if gate < size:
                sample, unit = divmod(gate, size // (shape or (1,))[0])
                return sample, f"{name}{call}.{unit}"
            gate -= size
        raise IndexError(gate)

    def heights(self, theta: Floats, gates: Floats | None = None) -> Floats:
        """Pre-activations under a fixed pattern, or under the true one."""
        return _numbers(self._run_taped(_heights, theta, gates))

    def evaluate(self, theta: Floats, gates: Floats | None = None) -> LossValue:
        """Loss, gradient and heights by autograd."""
        loss, *outputs = self._run_taped(_everything, theta, gates)
        weights, kinks = len(self._shapes), len(self._calls)
        parts = outputs[:weights], outputs[weights : weights + kinks], outputs[weights + kinks :]
        return LossValue(loss.item(), *(_numbers(part) for part in parts))

    def height_gradients(self, theta: Floats, gates: Floats, chosen: Sequence[int]) -> Floats:
        """`∇z` of some heights (rows) by autograd: all in one backward pass, if PyTorch can do that for this module."""
        count = len(chosen)
        if count > 1 and self._together:
            size = 1 << (count - 1).bit_length()  # a recording serves every number of gates up to a power of two
            try:
                slopes = self._run_taped(_slopes, theta, gates, _picks(chosen, size, len(gates)))
                return np.concatenate([slope.numpy().reshape(size, -1) for slope in slopes], axis=1)[:count]
            except (RuntimeError, NotImplementedError):  # an operation that has no such pass
                self._together = False
        single = [self._run_taped(_slopes, theta, gates, _picks([gate], 1, len(gates))[0]) for gate in chosen]
        return np.array([_numbers(number) for number in single])

    def _run_taped(
        self, kind: Callable[..., Tensors], theta: Floats, gates: Floats | None, picked: Floats | None = None
    ) -> Tensors:
        """Run one kind of evaluation; from the third time on, replay its calls."""
        key = kind, gates is None, self.x.shape, None if picked is None else picked.shape
        tape = self._tapes.get(key)
        if isinstance(tape, _Tape):
            return tape(theta, gates, picked, self.x, self._targets())
        inputs = _Arguments(self, theta, gates, picked)
        outputs = kind(self, *inputs.tensors, self.x, self._targets())
        self._tapes[key] = count = int(tape or 0) + 1
        if count == RECORD_AFTER:
            fresh_tape = _Tape(self, kind, inputs)
            if fresh_tape.agrees(outputs):
                self._tapes[key] = fresh_tape
        return outputs

    def _split(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """One number per gate (or several rows of them) as a tensor per ReLU that looks into the same memory."""
        selected, at = [], 0
        for _, shape in self._calls:
            size = math.prod(shape)
            part = flat[..., at : at + size]
            selected.append(torch.unflatten(part, -1, shape) if shape else part.squeeze(-1))
            at += size
        return selected

    def _targets(self) -> torch.Tensor:
        """The labels as the loss takes them."""
        if self.y is None or len(self.y) != len(self.x):
            with torch.no_grad():
                outputs = self._outputs(self._weights(torch.as_tensor(self.start)), self.x)
            rows, labels = self._rows(outputs), self.targets
            if self.loss == "ce":
                check_labels(labels.shape, outputs.shape, self._classes_axis(outputs))
                labels = labels.reshape(-1)
            targets = torch.as_tensor(find_loss(str(self.loss)).targets(labels, rows.shape[1]))
            self.y = targets.reshape(len(self.x), -1)
        return self.y

    def _weights(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        weights, at = {}, 0
        for name, shape in self._shapes.items():
            weights[name] = flat[at : at + shape.numel()].reshape(shape)
            at += shape.numel()
        return weights

    def _run(
        self, weights: dict[str, torch.Tensor], gates: Iterable[torch.Tensor] | None, x: torch.Tensor, y: torch.Tensor
    ) -> tuple[torch.Tensor, _Gates]:
        """The loss, and the gates that it met."""
        mode = _Gates(gates)
        with mode:
            loss = self._loss(self._outputs(weights, x), y)
        self._met[x.shape] = [
            (name, tuple(height.shape)) for name, height in zip(mode.names, mode.heights, strict=True)
        ]
        self.unlocated = tuple(sorted(mode.unlocated))
        return loss, mode

    def _outputs(self, weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        try:
            output = call_with(self.module, weights, (x,))
        except (RuntimeError, ValueError, IndexError) as error:
            raise LawfulError(f"the module does not run on x of shape {tuple(self.x.shape)}: {error}") from None
        while isinstance(self.loss, str) and isinstance(output, (dict, list, tuple)):
            output = next(iter(output.values() if isinstance(output, dict) else output))
        outputs: torch.Tensor = output
        return outputs

    def _rows(self, outputs: torch.Tensor) -> torch.Tensor:
        """Outputs as a table with a row for each sample; for `ce`, for each sample and place that has a class."""
        if self.loss == "ce":
            return class_rows(outputs, self._classes_axis(outputs))
        return outputs.reshape(len(outputs), -1)

    def _classes_axis(self, outputs: torch.Tensor) -> int:
        return classes_axis(outputs.shape, tokens=self._tokens)

    def _loss(self, outputs: torch.Tensor, y: torch.Tensor | None) -> torch.Tensor:
        if isinstance(self.loss, str):
            rows = self._rows(outputs)
            return NAMED[self.loss](rows, y if y is None else y.reshape(rows.shape))
        loss = self.loss(outputs, y)
        if not isinstance(loss, torch.Tensor) or loss.ndim != 0:
            came = f"shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise LawfulError(f"the loss must be a scalar tensor, not {came}: take its mean or sum")
        return loss


NAMED: dict[str, Callable[..., torch.Tensor]] = {
    "mse": functional.mse_loss,
    "bce": functional.binary_cross_entropy_with_logits,
    "ce": functional.cross_entropy,
}


# The kinds of evaluation: weights, gates, the heights that are asked for, inputs and labels -> tensors


def _everything(
    at: ModuleProblem, weights: Tensors, gates: Tensors | None, _: Tensors, x: torch.Tensor, y: torch.Tensor
) -> Tensors:
    """The loss, its gradients, the heights and the pushes."""
    leaves = [weight.detach().requires_grad_() for weight in weights]
    loss, seen = at._run(dict(zip(at._shapes, leaves, strict=True)), gates, x, y)
    heard = [value for value in seen.values if value.requires_grad]  # but for what is computed without gradients
    gradients = torch.autograd.grad(loss, [*leaves, *heard], allow_unused=True, materialize_grads=True)
    pushes = iter(gradients[len(leaves) :])
    slopes = [
        (1.0 - slope) * next(pushes) if value.requires_grad else torch.zeros_like(value)
        for slope, value in zip(seen.slopes, seen.values, strict=True)
    ]
    return [loss.detach(), *gradients[: len(leaves)], *(height.detach() for height in seen.heights), *slopes]


def _heights(
    at: ModuleProblem, weights: Tensors, gates: Tensors | None, _: Tensors, x: torch.Tensor, y: torch.Tensor
) -> Tensors:
    with torch.no_grad():
        return at._run(dict(zip(at._shapes, weights, strict=True)), gates, x, y)[1].heights


def _slopes(
    at: ModuleProblem, weights: Tensors, gates: Tensors | None, picked: Tensors, x: torch.Tensor, y: torch.Tensor
) -> Tensors:
    """The gradients of the heights that are picked, a row of picks after the other."""
    leaves = [weight.detach().requires_grad_() for weight in weights]
    heights = at._run(dict(zip(at._shapes, leaves, strict=True)), gates, x, y)[1].heights
    ahead = picked[0].shape[: picked[0].ndim - heights[0].ndim]
    heard = [(height, pick) for height, pick in zip(heights, picked, strict=True) if height.requires_grad]
    if not heard:
        return [torch.zeros(*ahead, *weight.shape, dtype=weight.dtype) for weight in leaves]
    seen, picks = zip(*heard, strict=True)
    slopes = torch.autograd.grad(seen, leaves, picks, allow_unused=True, is_grads_batched=bool(ahead))
    return [
        torch.zeros(*ahead, *weight.shape, dtype=weight.dtype) if slope is None else slope
        for slope, weight in zip(slopes, leaves, strict=True)
    ]


class _Arguments:
    """Weights, gates and picked heights: flat buffers that are written to, and the tensors that look into them."""

    def __init__(self, at: ModuleProblem, theta: Floats, gates: Floats | None, picked: Floats | None) -> None:
        flat = [None if values is None else torch.tensor(values) for values in (theta, gates, picked)]
        self.buffers = [None if tensor is None else tensor.numpy() for tensor in flat]
        weights, opened, wanted = flat
        assert weights is not None  # noqa: S101 (for the type checker)
        self.tensors = (
            list(at._weights(weights).values()),
            None if opened is None else at._split(opened),
            [] if wanted is None else at._split(wanted),
        )


class _Tape:
    """One kind of evaluation as a list of calls. It is compared with the real thing before it is used."""

    def __init__(self, at: ModuleProblem, kind: Callable[..., Tensors], arguments: _Arguments) -> None:
        self.buffers = arguments.buffers
        weights, gates, picked = arguments.tensors
        self.flat = [*weights, *(gates or ()), *picked]
        self.start = at.x, at._targets()
        ends = len(weights), len(weights) + len(gates or ())

        def function(x: torch.Tensor, y: torch.Tensor, *rest: torch.Tensor) -> Tensors:
            opened = None if gates is None else rest[ends[0] : ends[1]]
            return kind(at, rest[: ends[0]], opened, rest[ends[1] :], x, y)

        self.replay = record_calls(function, [*self.start, *self.flat])

    def agrees(self, outputs: Tensors) -> bool:
        """Whether there is a recording, and it gives what was found."""
        if self.replay is None:
            return False
        with torch.no_grad():
            again = self.replay(*self.start, *self.flat)
        return len(again) == len(outputs) and all(
            torch.allclose(one, other, rtol=1e-12, atol=1e-14, equal_nan=True)
            for one, other in zip(again, outputs, strict=True)
        )

    def __call__(
        self, theta: Floats, gates: Floats | None, picked: Floats | None, x: torch.Tensor, y: torch.Tensor
    ) -> Tensors:
        for buffer, values in zip(self.buffers, (theta, gates, picked), strict=True):
            if buffer is not None:
                buffer[:] = values
        assert self.replay is not None  # noqa: S101 (`agrees` was asked)
        with torch.no_grad():
            return self.replay(x, y, *self.flat)


def _picks(chosen: Sequence[int], rows: int, gates: int) -> Floats:
    """A row for each chosen gate, and rows of zeros."""
    picked = np.zeros((rows, gates))
    picked[np.arange(len(chosen)), chosen] = 1.0
    return picked


def _numbers(tensors: Tensors) -> Floats:
    return np.concatenate([tensor.numpy().ravel() for tensor in tensors]) if tensors else np.zeros(0)
