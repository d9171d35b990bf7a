"""PyTorch modules and networks, both ways; a module counts as it is in eval mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.formats.tensors.arrays import StoredArrays, as_float64, chain_of
from lawful.network.dag import Dag
from lawful.network.mlp import Mlp
from lawful.network.reading import IN_EVAL, Reading, TensorReading, carrying, rounded_inside
from lawful.program.domains.evaluate import evaluate
from lawful.program.domains.graph_reading import GraphReading, read_graph
from lawful.program.frontends.export import ExportedModule, export_module, twin_of
from lawful.program.frontends.torch_export import read_exported
from lawful.program.passes.tail import Tail, depends_on_input
from lawful.program.program import Program
from lawful.sources.modules.functional_call import first_tensor
from lawful.sources.modules.randomness import without_dropout
from lawful.sources.modules.trained_field import find_special_parameters, follows_gradient

SMOOTH = ("tanh", "sigmoid", "gelu", "silu", "elu", "selu", "celu", "softplus", "mish", "hardswish", "softsign")
BATCH = 2  # samples in the traced batch
CHECKED = 2 * BATCH  # random inputs on which the result is compared with the module
SUPPORTED = (
    "supported are Linear, Conv1d to Conv3d, BatchNorm in eval mode, ReLU, LeakyReLU, PReLU, ReLU6, Hardtanh, clamps, "
    "Hardsigmoid, maxima, max and average pooling, Flatten, reshapes, slices, concatenations, sums, scalings by "
    "constants, and a softmax, sigmoid or argmax at the end"
)


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

    Read from the exported graph, then compared with the module on random inputs. Its `reading` names the parameters,
    and a softmax, sigmoid or argmax at the end that was cut off.

    >>> from_module(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    Mlp(3-4-2)
    """
    if isinstance(module, DagModule):
        theta = module.weight.detach().cpu().double().numpy()
        return carrying(module.dag.with_theta(theta), module_reading(module))
    failures: list[str] = []
    for shape in [input_shape] if input_shape is not None else list(input_shapes(module)):
        try:
            read = export_module(module, [(BATCH, *shape)])
        except Unsupported as error:
            failures.append(str(error))
            continue
        frozen = {name for name, tensor in module.named_parameters() if not tensor.requires_grad}
        graph = read_graph(_program(module, read), BATCH, frozen, lambda place: SUPPORTED)
        network = graph.domain.assembly.finish(graph.value, drop_useless=drop_useless)
        _check_same(module, network, shape, graph.tail)
        entangled = [*graph.find_entangled(network, "module")]
        if not _trains_as_it_computes(module, shape):
            entangled.append("training does not follow the gradient of what it computes (values are detached?)")
        elif not _computes_the_same_in_training(module, shape):
            entangled.append("in train mode it computes something else")
        return carrying(network, _note_reading(module_reading(module), read, graph, entangled))
    if failures:
        raise Unsupported(failures[0])
    raise Unsupported("its input size is unknown: give it without the batch, like (3, 8, 8) or --input 3,8,8")


def module_reading(module: nn.Module) -> Reading:
    """The module's parameters and buffers, in its own order; what it was read from, if it says so itself."""
    if isinstance(reading := getattr(module, "reading", None), Reading):
        return replace(reading, module=module)
    tensors = [*module.named_parameters(), *((n, t) for n, t in module.named_buffers() if t.is_floating_point())]
    layers = (TensorReading(name, str(t.dtype).removeprefix("torch."), tuple(t.shape)) for name, t in tensors)
    normed = [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    assumed = (IN_EVAL,) if normed and module.training else ()
    return Reading("module", tuple(layers), assumed, normalised=bool(normed), module=module)


def _program(module: nn.Module, read: ExportedModule) -> Program:
    if len(read.inputs) != 1:
        raise Unsupported(f"the module has {len(read.inputs)} inputs: one is supported")
    program = read_exported(read, type(module).__name__)
    if len(read.results) != 1 or len(program.outputs) != 1 or program.outputs[0] not in depends_on_input(program):
        raise Unsupported(f"the module returns {len(read.results)} values: it must return one tensor made of its input")
    return program


def _note_reading(reading: Reading, read: ExportedModule, found: GraphReading, entangled: list[str]) -> Reading:
    parameters = found.domain.program.parameters
    unused = [name for place, name in read.names.items() if place in read.trained and name not in parameters]
    tail = "" if found.tail is None else found.tail.words
    noted = replace(
        reading,
        entangled=tuple(dict.fromkeys(entangled)),
        ignored=tuple(f"{name} (not used)" for name in unused),
        tail=tail,
        computed=found.domain.computed,
    )
    noted = noted.assuming(*rounded_inside(reading.layers, found.casts))
    return noted if not tail else noted.assuming(f"{tail} at the end is cut off: answers are about its input")


def input_shapes(module: nn.Module) -> Iterator[tuple[int, ...]]:
    """Input sizes that the layers allow, the first layer's first: only vectors are guessed."""
    sizes = [size for size in getattr(module, "input_sizes", ()) if isinstance(size, tuple)]
    for part in module.modules():
        if isinstance(part, nn.Linear):
            sizes.append((part.in_features,))
        elif isinstance(part, nn.BatchNorm1d):
            sizes.append((part.num_features,))
        elif isinstance(part, (nn.modules.conv._ConvNd, nn.Embedding)):
            break
    yield from dict.fromkeys(sizes)


def smooth_chain(
    stored: StoredArrays, order: Sequence[str] | None, activation: str
) -> tuple[nn.Module, tuple[TensorReading, ...]]:
    """Linear layers with an activation that is not homogeneous between them, and how they were stored."""
    if activation not in SMOOTH:
        known = "relu, leaky_relu(SLOPE), linear"
        raise InvalidNetwork(f"unknown word {activation[:40]!r}: activations are {known}, {', '.join(SMOOTH)}")
    if stored.slopes is not None or "dag.names" in stored.arrays:
        raise LawfulError("the file states its activations: leave out --activation")
    kind = {name.lower(): member for name, member in vars(nn).items() if isinstance(member, type)}[activation]
    chain, parts = chain_of(stored, order), list[nn.Module]()
    for prefix in chain:
        weight, bias = (stored.arrays.get(f"{prefix}{part}") for part in ("weight", "bias"))
        matrix = as_float64(f"{prefix}weight", weight)  # type: ignore[arg-type]
        linear = nn.Linear(matrix.shape[1], matrix.shape[0], bias=bias is not None, dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(matrix))
            if bias is not None:
                linear.bias.copy_(torch.from_numpy(as_float64(f"{prefix}bias", bias)))
        parts += [linear, kind()]
    names = [f"{prefix}{part}" for prefix in chain for part in ("weight", "bias")]
    return nn.Sequential(*parts[:-1]), tuple(stored.layer(name) for name in names if name in stored.arrays)


def _trains_as_it_computes(module: nn.Module, shape: tuple[int, ...]) -> bool:
    trained = [tensor for tensor in module.parameters() if tensor.requires_grad]
    if not trained or find_special_parameters(module):
        return not trained
    batch = torch.randn((CHECKED, *shape), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    try:
        return all(follows_gradient(twin_of(module).cpu().train(mode), batch) for mode in (False, True))
    except Exception:  # the module's own code: what does not run in float64 was compared in its own precision
        return True


def _computes_the_same_in_training(module: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether both modes give the same numbers, but for dropout and batch norms, of which readings speak."""
    if any(isinstance(part, nn.modules.batchnorm._NormBase) for part in module.modules()):
        return True
    batch = torch.randn((CHECKED, *shape), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), without_dropout():
            first, second = (first_tensor(twin_of(module).cpu().train(mode)(batch)) for mode in (False, True))
    except Exception:  # the module's own code: what does not run in float64 was compared in its own precision
        return True
    return bool(torch.equal(first, second))


def _check_same(module: nn.Module, network: Mlp | Dag, shape: tuple[int, ...], tail: Tail | None) -> None:
    """Hooks and branches can hide from tracing: compare values."""
    batch = np.random.default_rng(0).normal(size=(CHECKED, *shape))
    place = next((tensor.device for tensor in module.parameters()), torch.device("cpu"))
    inputs = torch.tensor(batch, device=place)
    before = {part: part.training for part in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            try:
                # In float64 round-off is far below this, and a hook or a branch far above.
                outputs, tolerance = twin_of(module)(inputs), 1e-7  # the user's own stays as it is
            except Exception:  # a tensor that the module does not register keeps its own precision
                kind = next((parameter.dtype for parameter in module.parameters()), torch.float32)
                outputs, tolerance = module(inputs.to(kind)), 1e-3
    finally:
        for part, training in before.items():
            part.training = training
    outputs = next(iter(outputs.values())) if isinstance(outputs, dict) else outputs
    outputs = outputs[0] if isinstance(outputs, (list, tuple)) else outputs
    computed = network.evaluate(batch.reshape(CHECKED, -1))
    if tail is not None:
        parts = np.split(computed.reshape(-1, *tail.program.inputs[0].shape[1:]), CHECKED // BATCH)
        computed = np.concatenate([evaluate(tail.program, part)[0] for part in parts])
    flat, wanted = computed.astype(np.float64).ravel(), outputs.detach().cpu().double().numpy().ravel()
    scale = max(float(np.abs(wanted).max(initial=0.0)), 1.0)
    if flat.shape != wanted.shape or not float(np.abs(flat - wanted).max(initial=0.0)) <= tolerance * scale:
        raise Unsupported(
            f"tracing {type(module).__name__} gave another function: it has hooks, branches, or changes in place"
        )
