"""PyTorch modules and networks, both ways; a module counts as it is in eval mode."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from lawful.errors import Unsupported
from lawful.network.assemble import Assembly, Value
from lawful.network.dag import Dag
from lawful.network.mlp import Mlp
from lawful.network.modules.functions import numbers
from lawful.network.modules.graph import Interpreter, operator_name

PASSING = (nn.Flatten, nn.Dropout, nn.Identity, nn.ReLU, nn.LeakyReLU)
PASSED = ("flatten", "view", "reshape", "dropout", "relu", "leaky_relu")  # the same, as functions and methods
CHECKED = 4  # random inputs on which the result is compared with the module


class DagModule(nn.Module):
    """A graph as a PyTorch module: one parameter, the weights in edge order."""

    def __init__(self, dag: Dag) -> None:
        super().__init__()
        self.dag = dag
        self.weight = nn.Parameter(torch.tensor(dag.theta))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Outputs for a batch."""
        return self.dag.evaluate(inputs, self.weight)  # type: ignore[no-any-return]


def to_module(network: Mlp | Dag) -> nn.Module:
    """The same function in PyTorch, in float64: a `Sequential` for an `Mlp`, a `DagModule` for a `Dag`.

    >>> to_module(Mlp([[[1.0, 2.0]], [[3.0]]]))
    Sequential(
      (0): Linear(in_features=2, out_features=1, bias=False)
      (1): ReLU()
      (2): Linear(in_features=1, out_features=1, bias=False)
    )
    """
    if isinstance(network, Dag):
        return DagModule(network)
    layers: list[nn.Module] = []
    for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(torch.tensor(weight))
            if bias is not None:
                linear.bias.copy_(torch.tensor(bias))
        layers.append(linear)
        if layer < len(network.slopes):
            slope = network.slopes[layer]
            layers.append(nn.ReLU() if slope == 0 else nn.Identity() if slope == 1 else nn.LeakyReLU(slope))
    return nn.Sequential(*layers)


def from_module(
    module: nn.Module, input_shape: tuple[int, ...] | None = None, *, drop_useless: bool = False
) -> Mlp | Dag:
    """The network that a module computes in eval mode; `input_shape` is its input's size without the batch.

    Read by `torch.fx`, or by `torch.export` where `fx` cannot follow; then compared with the module on random inputs.

    >>> from_module(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    Mlp(3-4-2)
    """
    if isinstance(module, DagModule):
        return module.dag.with_theta(numbers("weight", module.weight))
    with _eval_mode(module), torch.no_grad():
        try:
            traced = fx.symbolic_trace(module)
        except Exception as error:  # whatever the module's own code raises on a symbolic input
            return _exported(module, input_shape, drop_useless, str(error))
        shape = input_shape if input_shape is not None else _input_shape(traced)
        network = _read(Interpreter(Assembly(shape), traced), traced.graph, drop_useless)
        _check_same(module, network, shape)
    return network


def _exported(module: nn.Module, shape: tuple[int, ...] | None, drop_useless: bool, reason: str) -> Mlp | Dag:
    if shape is None:
        first = (reason.strip().splitlines() or ["no reason given"])[0]
        raise Unsupported(f"torch.fx cannot trace {type(module).__name__} ({first[:120]}): give its input size")
    example = torch.zeros(2, *shape, dtype=next((p.dtype for p in module.parameters()), torch.float32))
    try:
        program = torch.export.export(module, (example,))
    except Exception as error:  # likewise
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise Unsupported(
            f"neither torch.fx nor torch.export can trace {type(module).__name__}: {first[:160]}"
        ) from None
    signature = program.graph_signature
    lifted = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    tensors: dict[str, Any] = {name: program.state_dict[target] for name, target in lifted.items()}
    constants = signature.inputs_to_lifted_tensor_constants
    tensors.update({name: program.constants[target] for name, target in constants.items()})
    reader = Interpreter(Assembly(shape), program.graph_module, tensors, batch=(2, -1))
    network = _read(reader, program.graph, drop_useless)
    _check_same(module, network, shape)
    return network


def _read(reader: Interpreter, graph: fx.Graph, drop_useless: bool) -> Mlp | Dag:
    result = reader.run(graph)
    if isinstance(result, (tuple, list)) and len(result) == 1:
        result = result[0]
    if not isinstance(result, Value):
        raise Unsupported(
            f"the module returns a {type(result).__name__}: it must return one tensor made from its input"
        )
    return reader.state.assembly.finish(result, drop_useless=drop_useless)


@contextmanager
def _eval_mode(module: nn.Module) -> Iterator[None]:
    before = OrderedDict((part, part.training) for part in module.modules())
    module.eval()
    try:
        yield
    finally:
        for part, training in before.items():
            part.training = training


def _input_shape(traced: fx.GraphModule) -> tuple[int, ...]:
    """The input size that the first Linear layer states, if nothing before it depends on the size."""
    node = next((node for node in traced.graph.nodes if node.op == "placeholder"), None)
    while node is not None:
        parts = {user: traced.get_submodule(str(user.target)) for user in node.users if user.op == "call_module"}
        for part in parts.values():
            if isinstance(part, nn.Linear):
                return (part.in_features,)
            if isinstance(part, nn.BatchNorm1d):
                return (part.num_features,)
        onward = (
            user for user in node.users if isinstance(parts.get(user), PASSING) or operator_name(user.target) in PASSED
        )
        node = next(onward, None)
    raise Unsupported("its input size is unknown: give it without the batch, like (3, 8, 8) or --input 3,8,8")


def _check_same(module: nn.Module, network: Mlp | Dag, shape: tuple[int, ...]) -> None:
    """Hooks, in-place changes and frozen branches can hide from tracing: compare values."""
    batch = np.random.default_rng(0).normal(size=(CHECKED, *shape))
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    state = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
    place = next((tensor.device for tensor in state.values()), torch.device("cpu"))
    inputs = torch.tensor(batch, device=place)
    try:
        outputs, tolerance = torch.func.functional_call(module, state, (inputs,)), 1e-7
    except Exception:  # a tensor that the module does not register keeps its own precision
        kind = next((parameter.dtype for parameter in module.parameters()), torch.float32)
        outputs, tolerance = module(inputs.to(kind)), 1e-3
    expected = outputs.detach().cpu().double().numpy().reshape(CHECKED, -1)
    found = network.evaluate(batch.reshape(CHECKED, -1))
    scale = max(float(np.abs(expected).max(initial=0.0)), 1.0)
    if found.shape != expected.shape or not float(np.abs(found - expected).max(initial=0.0)) <= tolerance * scale:
        raise Unsupported(
            f"tracing {type(module).__name__} gave another function: it has hooks, branches, or changes in place"
        )
