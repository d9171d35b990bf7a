"""Any PyTorch module as one graph of ATen calls: the only place where modules are traced."""

from __future__ import annotations

import copy
import io
import logging
import traceback
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.fx import config as tracing

from lawful.errors import LawfulError, Unsupported
from lawful.program.frontends.decompositions import SILENT, break_down, detach_regions, operator_name

ROUNDS = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


@dataclass(frozen=True, eq=False)
class ExportedModule:
    """What a module computes: its graph, and the tensors behind the graph's placeholders.

    `names` gives a placeholder's parameter or buffer the name it has in the module; parameters that are one tensor
    share the first of their names, and the graph reads them through one placeholder. `trained` are the placeholders of
    parameters. `inputs` are the placeholders of the module's own inputs. The first `updates` results are new values of
    buffers.
    """

    graph: fx.Graph
    tensors: Mapping[str, torch.Tensor]
    names: Mapping[str, str]
    trained: frozenset[str]
    inputs: tuple[str, ...]
    updates: int = 0

    @property
    def calls(self) -> list[fx.Node]:
        """The calls in order."""
        return [node for node in self.graph.nodes if node.op == "call_function"]

    @property
    def results(self) -> tuple[Any, ...]:
        """The nodes that the module returns, flattened."""
        last = next(node for node in reversed(self.graph.nodes) if node.op == "output")
        return tuple(last.args[0])

    @property
    def detaches(self) -> bool:
        """Whether values are detached from training."""
        return any(operator_name(call.target) == "detach" for call in self.calls)

    @property
    def rounds(self) -> bool:
        """Whether the module itself asks for single or half precision somewhere."""
        casts = (call for call in self.calls if operator_name(call.target) in ("to", "_to_copy"))
        return any(argument in ROUNDS for call in casts for argument in (*call.args, *call.kwargs.values()))

    def count_ids(self, place: int) -> int:
        """How many ids an integer input may take: the rows of the smallest embedding that reads it."""
        nodes = {node.name: node for node in self.graph.nodes}
        sizes, waiting, seen = [], [nodes[self.inputs[place]]], set()
        while waiting:
            node = waiting.pop()
            for user in node.users:
                if user.op != "call_function" or user in seen:
                    continue
                seen.add(user)
                if operator_name(user.target) == "embedding":
                    if user.args[1] is node:
                        sizes.append(int(user.args[0].meta["val"].shape[0]))
                elif not getattr(user.meta.get("val"), "is_floating_point", lambda: True)():
                    waiting.append(user)
        return min(sizes, default=2)


def export_module(
    module: nn.Module,
    inputs: Sequence[torch.Tensor | tuple[int, ...]],
    keywords: Mapping[str, Any] | None = None,
    *,
    training: bool = False,
) -> ExportedModule:
    """Trace a module with `torch.export` (non-strict), on stand-in tensors that take no memory.

    An input is an example tensor, or its size with the batch (of at least 2): then it has the module's own type. A
    module on the meta device is read without weights. Changes in place are replaced by new values, and calls that the
    table of operators lacks by simpler ones, where PyTorch knows how. In training, what a module computes under
    `torch.no_grad()` ends in calls of `detach`. Nothing of the module is changed.

    >>> tied = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    >>> tied[2].weight = tied[0].weight
    >>> read = export_module(tied, [(2, 3)])
    >>> [call.target.__name__ for call in read.calls], sorted(set(read.names.values()))
    (['linear.default', 'relu.default', 'linear.default'], ['0.bias', '0.weight', '2.bias'])
    """
    packed = next((name for name, part in module.named_modules() if ".quantized." in f"{type(part).__module__}."), None)
    if packed is not None:
        raise Unsupported(f"{packed or type(module).__name__} is quantised: its packed weights do not train")
    examples = tuple(_example(module, entry) for entry in inputs)
    return _export(module, examples, keywords, training=training)


def _export(
    module: nn.Module,
    examples: tuple[torch.Tensor, ...],
    keywords: Mapping[str, Any] | None,
    *,
    training: bool,
) -> ExportedModule:
    with (
        in_mode(module, training),
        without_caches(module),
        torch.set_grad_enabled(training),
        warnings.catch_warnings(),
        _quiet(),
    ):
        warnings.simplefilter("ignore")
        try:
            program = _trace(module, examples, keywords)
            # Traced again with lines of code only where one is to be named.
            if _open_sizes(program):
                _refuse_open_sizes(module, _trace(module, examples, keywords, lines=True))
            detach_regions(program)
            program = break_down(program)
            _refuse_moved_parameters(module, program)
            _join_batch_norms(program.graph)
        except LawfulError:
            raise
        except Exception as error:  # the module's own code runs, and may raise anything
            lines = str(error).strip().splitlines() or [""]
            reason = f"{type(error).__name__}: {lines[0][:200]}"
            sizes = " and ".join("×".join(map(str, example.shape)) for example in examples)
            raise Unsupported(
                f"torch.export cannot read {type(module).__name__}{_line(error)} ({reason}); "
                f"it was given {sizes or 'nothing'}, batch first (--input takes the size of one sample)"
            ) from None
    return _tidy(module, program)


def _refuse_moved_parameters(module: nn.Module, program: Any) -> None:
    """What a module changes while it computes is no parameter of a function, and moves otherwise than by gradients."""
    for name in program.graph_signature.parameters_to_mutate.values():
        raise Unsupported(
            f"{type(module).__name__} changes {name} while it computes (as max_norm of an embedding does)"
        )


@contextmanager
def without_caches(module: nn.Module) -> Iterator[None]:
    """Models of transformers return no keys and values that they have seen: these are for the next call, no outputs."""
    configs = [getattr(part, "config", None) for part in module.modules()]
    caching: list[Any] = [config for config in configs if getattr(config, "use_cache", False) is True]
    for settings in caching:
        settings.use_cache = False
    try:
        yield
    finally:
        for settings in caching:
            settings.use_cache = True


def _line(error: BaseException) -> str:
    """The last line of code outside PyTorch that ran before an error: a branch that depends on data, for instance."""
    library = str(Path(torch.__file__).parent)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((library, "<")) and frame.filename != __file__:
            return f", {Path(frame.filename).name} line {frame.lineno}: {(frame.line or '')[:80]}"
    return ""


def _trace(
    module: nn.Module, examples: tuple[Any, ...], keywords: Mapping[str, Any] | None, *, lines: bool = False
) -> Any:
    """The exported program; that each call knows its line of code takes a tenth of the time or more."""
    before = getattr(tracing, "do_not_emit_stack_traces", False)  # older PyTorch has none
    tracing.do_not_emit_stack_traces = not lines
    try:
        return torch.export.export(module, examples, dict(keywords or {}), strict=False)
    finally:
        tracing.do_not_emit_stack_traces = before


def _open_sizes(program: Any) -> list[fx.Node]:
    """Calls that make tensors whose size depends on the data, such as `x[x > 0]`."""
    return [node for node in program.graph.nodes if any(_is_open(part) for part in _parts(node.meta.get("val")))]


def _parts(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (tuple, list)) else (value,)


def _is_open(part: Any) -> bool:
    return isinstance(part, torch.Tensor) and any(isinstance(size, torch.SymInt) for size in part.shape)


def _refuse_open_sizes(module: nn.Module, program: Any) -> None:
    """Refuse a graph with such calls: name the line of the first."""
    trace = [str(node.meta.get("stack_trace") or "").strip().splitlines() for node in _open_sizes(program)[:1]]
    line = f": {trace[0][-1].strip()[:80]}" if trace and trace[0] else ""
    raise Unsupported(f"{type(module).__name__} makes a tensor whose size depends on its data{line}")


def _example(module: nn.Module, entry: torch.Tensor | tuple[int, ...]) -> torch.Tensor:
    if isinstance(entry, torch.Tensor):
        return entry
    weight = next((tensor for tensor in module.parameters() if tensor.is_floating_point()), torch.zeros(0))
    return torch.zeros(tuple(entry), dtype=weight.dtype, device=weight.device)


def _join_batch_norms(graph: fx.Graph) -> None:
    """BatchNorm in evaluation is one call again, as it is where nothing changes in place."""
    for node in list(graph.nodes):
        whole = operator_name(node.target) == "getitem" and node.args[1] == 0
        norm = node.args[0] if whole else None
        if isinstance(norm, fx.Node) and operator_name(norm.target) == "_native_batch_norm_legit_no_training":
            momentum, epsilon = norm.args[5:7]
            with graph.inserting_before(node):
                arguments = (*norm.args[:5], False, momentum, epsilon, False)
                joined = graph.call_function(torch.ops.aten.batch_norm.default, arguments)
            joined.meta = dict(node.meta)
            node.replace_all_uses_with(joined)
            graph.erase_node(node)


def _tidy(module: nn.Module, program: Any) -> ExportedModule:
    """Placeholders with the module's names, one for each tensor; calls without effect dropped."""
    first: dict[int, str] = {}
    canonical: dict[str, str] = {}
    for name, tensor in (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ):
        # A tensor with several names is one parameter: ties count once, under the first.
        canonical[name] = first.setdefault(id(tensor), name)
    signature = program.graph_signature
    tensor_names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    names = {place: canonical.get(name, name) for place, name in tensor_names.items()}
    tensors = {place: _held(program, name) for place, name in tensor_names.items()}
    for place, name in signature.inputs_to_lifted_tensor_constants.items():
        tensors[place] = program.constants[name]
    graph = program.graph
    seen: dict[str, fx.Node] = {}
    for node in list(graph.nodes):
        if node.op == "placeholder" and node.name in names:
            twin = seen.setdefault(names[node.name], node)
            if twin is not node:
                node.replace_all_uses_with(twin)
        elif node.op == "call_function" and operator_name(node.target) in SILENT:
            graph.erase_node(node)
    graph.eliminate_dead_code()
    distinct = {node.name for node in seen.values()}
    trained = frozenset(distinct & set(signature.inputs_to_parameters))
    alive = {place: tensor for place, tensor in tensors.items() if place in distinct or place not in names}
    inputs = tuple(node.name for node in graph.nodes if node.op == "placeholder" and node.name not in tensors)
    named = {place: names[place] for place in names if place in distinct}
    return ExportedModule(graph, alive, named, trained, inputs, len(signature.buffers_to_mutate))


def _held(program: Any, name: str) -> torch.Tensor:
    result: torch.Tensor = program.state_dict[name] if name in program.state_dict else program.constants[name]
    return result


def twin_of(module: nn.Module) -> nn.Module:
    """A copy in float64."""
    parameters: dict[int, Any] = {
        id(parameter): nn.Parameter(parameter.detach().to(torch.float64, copy=True), parameter.requires_grad)
        for parameter in module.parameters()
        if type(parameter) is nn.Parameter and parameter.is_floating_point()
    }  # converted as they are copied: a large model is not held a third time
    return copy_module(module, parameters).double()


def copy_module(module: nn.Module, instead: Mapping[int, Any] | None = None, *, shared: bool = False) -> nn.Module:
    """A copy, with the same tensors if `shared`, with others `instead` of those of an id; what hooks compute (pruning
    masks) is copied as values.
    """
    memo: dict[int, Any] = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers()) if shared}
    memo |= instead or {}
    for part in module.modules():
        for value in vars(part).values():
            # PyTorch refuses to copy a tensor that has been computed.
            if isinstance(value, torch.Tensor) and not value.is_leaf:
                memo[id(value)] = value.detach().clone()
    return copy.deepcopy(module, memo)


def same_in_both_modes(module: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether train and eval mode make the same calls; not if one of them cannot be read.

    >>> [same_in_both_modes(nn.Sequential(nn.Linear(2, 2), last), (2,)) for last in (nn.ReLU(), nn.Dropout())]
    [True, False]
    """
    try:
        evaluated, trained = (export_module(module, [(2, *shape)], training=mode) for mode in (False, True))
    except Unsupported:
        return False
    return written_calls(evaluated) == written_calls(trained)


def written_calls(exported: ExportedModule) -> list[str]:
    """Every node with its arguments as text; nodes are numbered, so that names do not matter."""
    numbers: dict[fx.Node, str] = {}
    lines = []
    for node in exported.graph.nodes:
        numbers[node] = exported.names.get(node.name, f"%{len(numbers)}")
        arguments = fx.node.map_arg((node.args, node.kwargs), numbers.__getitem__)
        lines.append(f"{node.op} {node.target if node.op == 'call_function' else ''} {arguments}")
    return lines


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the graphs that PyTorch prints when it cannot read one."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # its loggers have many children, and handlers that hold the real stderr
    try:
        with redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)


@contextmanager
def in_mode(module: nn.Module, training: bool) -> Iterator[None]:
    """The module in eval (or train) mode for a while."""
    before = OrderedDict((part, part.training) for part in module.modules())
    module.train(training)
    try:
        yield
    finally:
        # Part by part: a module may hold frozen parts in eval mode while it trains.
        for part, mode in before.items():
            part.training = mode
