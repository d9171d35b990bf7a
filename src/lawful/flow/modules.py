"""Any PyTorch module and loss as a training problem, its activation pattern held still by intercepting the calls."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from lawful.errors import LawfulError, Unsupported
from lawful.flow.loss_value import LossValue
from lawful.flow.losses import checked, find_loss
from lawful.flow.piecewise import rewritten, unlocated
from lawful.network.modules.calling import called_with
from lawful.types import Floats, Indices


class _Gates(TorchFunctionMode):
    """Replaces each ReLU by a product with its gates (the true ones if none are given), and notes its input.

    Other functions with kinks are first rewritten with ReLUs; `unlocated` names those for which that is not known.
    """

    def __init__(self, gates: torch.Tensor | None) -> None:
        super().__init__()
        self.gates, self.at = gates, 0
        self.heights, self.values, self.slopes = list[torch.Tensor](), list[torch.Tensor](), list[float]()
        self.names, self.unlocated = list[str](), set[str]()

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        options = options or {}
        found = rewritten(function, arguments, options, lambda name: partial(self._gated, name))
        if found is not None:
            return found
        name = unlocated(function, arguments)
        if name is not None:
            self.unlocated.add(name)
        return function(*arguments, **options)

    def _gated(self, name: str, height: torch.Tensor, slope: float = 0.0) -> torch.Tensor:
        self.names.append(name)
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
    """The loss of any module, its kinks located: those of ReLUs and of functions that ReLUs can express.

    Those are clamps, hard sigmoids, absolute values, maxima, max pooling and the like (`lawful.flow.piecewise`). Other
    kinks are met by smaller steps, and `unlocated` names the functions that have them. `loss` is `mse`, `bce`, `ce` or
    a callable `(outputs, y) -> scalar tensor`. The module is copied to float64.
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
        self._calls: list[tuple[str, tuple[int, ...]]] = []
        self.unlocated: tuple[str, ...] = ()
        self._check()

    def _check(self) -> None:
        """Run twice: shapes fit, the loss is a scalar, and no dropout makes the answers differ; then once untouched."""
        first, second = self.evaluate(self.start), self.evaluate(self.start)
        if first.loss != second.loss:
            raise Unsupported("the module answers differently each time: call .eval() before taking its flow")
        with torch.no_grad():
            plain = self._loss(called_with(self.module, self._weights(torch.as_tensor(self.start)), (self.x,)))
        if not abs(plain.item() - first.loss) <= 1e-9 * max(1.0, abs(first.loss)) and np.isfinite(first.loss):
            raise Unsupported("the module changes a tensor in place (relu_): take its flow without inplace calls")

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
        """Sample and neuron of a gate: the function, the number of the ReLU that stands for it, and the unit in it."""
        for call, (name, shape) in enumerate(self._calls, 1):
            size = int(np.prod(shape))
            if gate < size:
                sample, unit = divmod(gate, size // (shape or (1,))[0])
                return sample, f"{name}{call}.{unit}"
            gate -= size
        raise IndexError(gate)

    def heights(self, theta: Floats, gates: Floats | None = None) -> Floats:
        """Pre-activations under a fixed pattern, or under the true one."""
        with torch.no_grad():
            return _numbers(self._run(torch.as_tensor(theta), gates)[1].heights)

    def evaluate(self, theta: Floats, gates: Floats | None = None) -> LossValue:
        """Loss, gradient and heights by autograd."""
        flat = torch.tensor(theta, requires_grad=True)
        loss, seen = self._run(flat, gates)
        self.unlocated = tuple(sorted(seen.unlocated))
        gradient, *slopes = torch.autograd.grad(loss, [flat, *seen.values], allow_unused=True, materialize_grads=True)
        pushes = [(1.0 - slope) * value for slope, value in zip(seen.slopes, slopes, strict=True)]
        return LossValue(loss.item(), gradient.numpy(), _numbers(seen.heights), _numbers(pushes))

    def height_gradients(self, theta: Floats, gates: Floats, chosen: Sequence[int]) -> Floats:
        """`∇z` of some heights (rows) by autograd."""
        flat = torch.tensor(theta, requires_grad=True)
        heights = torch.cat([height.reshape(-1) for height in self._run(flat, gates)[1].heights])
        rows = [torch.autograd.grad(heights[gate], flat, retain_graph=True)[0] for gate in chosen]
        return np.array([row.numpy() for row in rows])

    def _weights(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        weights, at = {}, 0
        for name, shape in self._shapes.items():
            weights[name] = flat[at : at + shape.numel()].reshape(shape)
            at += shape.numel()
        return weights

    def _run(self, flat: torch.Tensor, gates: Floats | None) -> tuple[torch.Tensor, _Gates]:
        """The loss, and the gates that it met."""
        mode = _Gates(None if gates is None else torch.as_tensor(gates))
        with mode:
            try:
                outputs = called_with(self.module, self._weights(flat), (self.x,))
            except (RuntimeError, ValueError, IndexError) as error:
                raise LawfulError(f"the module does not run on x of shape {tuple(self.x.shape)}: {error}") from None
            loss = self._loss(outputs)
        self._calls = [(name, tuple(height.shape)) for name, height in zip(mode.names, mode.heights, strict=True)]
        return loss, mode

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
