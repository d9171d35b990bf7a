"""Any PyTorch module and loss as a training problem, its ReLU patterns held still by intercepting the calls."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.func import functional_call
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from lawful.errors import LawfulError, Unsupported
from lawful.flow.losses import Floats, checked, find_loss
from lawful.flow.problem import Indices, Value

_RELUS = {torch.relu, torch.relu_, torch.Tensor.relu, torch.Tensor.relu_, functional.relu, functional.relu_}
_LEAKY = {functional.leaky_relu, functional.leaky_relu_}


class _Gates(TorchFunctionMode):
    """Replaces each ReLU by a product with its gates (the true ones if none are given), and notes its input."""

    def __init__(self, gates: torch.Tensor | None) -> None:
        super().__init__()
        self.gates, self.at = gates, 0
        self.heights, self.values, self.slopes = list[torch.Tensor](), list[torch.Tensor](), list[float]()

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        options = options or {}
        if function in _RELUS or function in _LEAKY:
            slope = 0.0
            if function in _LEAKY:
                slope = options.get("negative_slope", arguments[1] if len(arguments) > 1 else 0.01)
            return self._gated(arguments[0] if arguments else options["input"], float(slope))
        return function(*arguments, **options)

    def _gated(self, height: torch.Tensor, slope: float) -> torch.Tensor:
        self.heights.append(height)
        if self.gates is None:
            gate = (height > 0).to(height.dtype)
        else:
            gate = self.gates[self.at : self.at + height.numel()].reshape(height.shape)
        self.at += height.numel()
        self.values.append(height * (slope + (1.0 - slope) * gate))
        self.slopes.append(slope)
        return self.values[-1]


class ModuleProblem:
    """The loss of any module: kinks of relu and leaky_relu are located, other kinks are met by smaller steps.

    `loss` is `mse`, `bce`, `ce` or a callable `(outputs, y) -> scalar tensor`. The module is copied to float64.
    """

    def __init__(self, module: torch.nn.Module, x: Any, y: Any, loss: str | Callable[..., Any] = "mse") -> None:
        self.module = copy.deepcopy(module).double()
        trained = {name: value for name, value in self.module.named_parameters() if value.requires_grad}
        if not trained:
            raise LawfulError("the module has no parameters that train")
        self._shapes = {name: value.shape for name, value in trained.items()}
        self.start = np.concatenate([value.detach().numpy().ravel() for value in trained.values()])
        self.loss = loss
        inputs, raw = checked(x, y)
        self.targets = raw
        self.x = torch.as_tensor(inputs)
        self.y: torch.Tensor | None = None if isinstance(loss, str) else torch.as_tensor(np.asarray(y))
        self._sizes: list[tuple[int, ...]] = []
        self._check()

    def _check(self) -> None:
        """Run twice: shapes fit, the loss is a scalar, and no dropout makes the answers differ."""
        first, second = self.evaluate(self.start), self.evaluate(self.start)
        if first.loss != second.loss:
            raise Unsupported("the module answers differently each time: call .eval() before taking its flow")

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.x)

    def rows(self, samples: Indices) -> ModuleProblem:
        """The same problem on some of the samples."""
        twin = copy.copy(self)
        twin.x, twin.targets = self.x[torch.as_tensor(samples)], self.targets[samples]
        twin.y = None if self.y is None else self.y[torch.as_tensor(samples)]
        return twin

    def label(self, gate: int) -> tuple[int, str]:
        """Sample and neuron of a gate: the number of the ReLU call and the unit in it."""
        for call, shape in enumerate(self._sizes, 1):
            size = int(np.prod(shape))
            if gate < size:
                sample, unit = divmod(gate, size // shape[0])
                return sample, f"relu{call}.{unit}"
            gate -= size
        raise IndexError(gate)

    def heights(self, theta: Floats, gates: Floats | None = None) -> Floats:
        """Pre-activations under a fixed pattern, or under the true one."""
        with torch.no_grad():
            return _numbers(self._run(torch.as_tensor(theta), gates)[1].heights)

    def evaluate(self, theta: Floats, gates: Floats | None = None) -> Value:
        """Loss, gradient and heights by autograd."""
        flat = torch.tensor(theta, requires_grad=True)
        outputs, seen = self._run(flat, gates)
        loss = self._loss(outputs)
        gradient, *slopes = torch.autograd.grad(loss, [flat, *seen.values], allow_unused=True, materialize_grads=True)
        pushes = [(1.0 - slope) * value for slope, value in zip(seen.slopes, slopes, strict=True)]
        return Value(loss.item(), gradient.numpy(), _numbers(seen.heights), _numbers(pushes))

    def height_gradients(self, theta: Floats, gates: Floats, chosen: Sequence[int]) -> Floats:
        """`∇z` of some heights (rows) by autograd."""
        flat = torch.tensor(theta, requires_grad=True)
        heights = torch.cat([height.reshape(-1) for height in self._run(flat, gates)[1].heights])
        rows = [torch.autograd.grad(heights[gate], flat, retain_graph=True)[0] for gate in chosen]
        return np.array([row.numpy() for row in rows])

    def _run(self, flat: torch.Tensor, gates: Floats | None) -> tuple[torch.Tensor, _Gates]:
        weights, at = {}, 0
        for name, shape in self._shapes.items():
            weights[name] = flat[at : at + shape.numel()].reshape(shape)
            at += shape.numel()
        mode = _Gates(None if gates is None else torch.as_tensor(gates))
        try:
            with mode:
                outputs = functional_call(self.module, weights, (self.x,))
        except (RuntimeError, ValueError, IndexError) as error:
            raise LawfulError(f"the module does not run on x of shape {tuple(self.x.shape)}: {error}") from None
        self._sizes = [tuple(height.shape) for height in mode.heights]
        return outputs, mode

    def _loss(self, outputs: torch.Tensor) -> torch.Tensor:
        if isinstance(self.loss, str):
            return self._named_loss(self.loss, outputs)
        loss = self.loss(outputs, self.y)
        if not isinstance(loss, torch.Tensor) or loss.ndim != 0:
            came = f"shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise LawfulError(f"the loss must be a scalar tensor, not {came}: take its mean or sum")
        return loss

    def _named_loss(self, name: str, outputs: torch.Tensor) -> torch.Tensor:
        flat = outputs.reshape(len(outputs), -1)
        if self.y is None or len(self.y) != len(outputs):
            self.y = torch.as_tensor(find_loss(name).targets(self.targets, flat.shape[1]))
        if name == "mse":
            return functional.mse_loss(flat, self.y)
        if name == "bce":
            return functional.binary_cross_entropy_with_logits(flat, self.y)
        return functional.cross_entropy(flat, self.y)


def _numbers(tensors: Any) -> Floats:
    parts = [tensor.detach().numpy().ravel() for tensor in tensors]
    return np.concatenate(parts) if parts else np.zeros(0)
