"""Pruned modules as files that their own runtime loads: the config of a smaller Hugging Face model, exported graphs.

The smaller module itself gets the config with its new sizes, before it is compared with the original. A folder's
`config.json` is then the old one with the entries in which the two configs differ, and only if the class made of it
computes what the smaller module does; otherwise there is none. Cost: the class is made once without numbers, and run
once for a folder. A graph (`.pt2`, `.onnx`) needs no class.
"""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lawful.errors import Unsupported
from lawful.sources.onnx.network import resize_file

HEADS = {"num_attention_heads": 0, "n_head": 0, "num_heads": 0, "num_key_value_heads": 1, "head_dim": 2}
WIDTHS = ("intermediate_size", "n_inner", "ffn_dim", "d_ff", "encoder_ffn_dim")


Sizes = tuple[int, int, int]  # heads, groups of heads, inner size


def config_that_loads(original: nn.Module, small: nn.Module, attentions: Sequence[Sizes]) -> dict[str, int] | None:
    """Entries of the config to change such that the class has the new sizes; None if it has no config for them.

    Tried out: the class is made anew (without weights), and all sizes must agree.
    """
    config = getattr(small, "config", None)
    if not hasattr(config, "to_dict") or type(original) is not type(small):
        return None
    shapes = [_shapes(module) for module in (original, small)]
    changed: dict[str, int] = {}
    for entry, which in HEADS.items():
        values = {sizes[which] for sizes in attentions}
        if len(values) == 1 and getattr(config, entry, None) not in (None, *values):
            changed[entry] = values.pop()
    for entry in WIDTHS:
        if hasattr(config, entry):
            before = getattr(config, entry) or 4 * getattr(config, "hidden_size", 0)
            after = {
                new for name, shape in shapes[0].items()
                for old, new in zip(shape, shapes[1].get(name, shape), strict=True) if old == before != new
            }  # fmt: skip
            if len(after) == 1:
                changed[entry] = after.pop()
    return changed if changed and _fits(small, changed, *shapes) else None


def config_fits(original: nn.Module, small: nn.Module) -> bool:
    """Whether the class made of the smaller module's own config has its sizes."""
    return type(original) is type(small) and _fits(small, {}, _shapes(original), _shapes(small))


def _shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(part.shape) for name, part in module.state_dict().items()}


def _fits(
    small: Any, changed: dict[str, int], before: dict[str, tuple[int, ...]], wanted: dict[str, tuple[int, ...]]
) -> bool:
    try:
        with torch.device("meta"):
            rebuilt = type(small)(_with_entries(small.config, changed))
    except Exception:  # whatever a library makes of sizes that it does not expect
        return False
    shapes = _shapes(rebuilt)
    # Tidying takes biases that no output sees. Whatever else the class has and the module has not, a block that left
    # before or a folded normalisation, would be new numbers there.
    dropped = {name for name in before.keys() - wanted.keys() if name.endswith("bias")}
    return wanted.items() <= shapes.items() and shapes.keys() - wanted.keys() <= dropped


def _with_entries(config: Any, changed: Mapping[str, int]) -> Any:
    other = copy.deepcopy(config)
    for entry, value in changed.items():
        setattr(other, entry, value)
    return other


def fit_config(original: nn.Module, small: nn.Module, attentions: Sequence[Sizes]) -> str | None:
    """Give the smaller module the config of its sizes; in words how it loads. None for what has none, or no new sizes.

    Parts that share the config share the new one; the original keeps its own.
    """
    if not hasattr(getattr(small, "config", None), "to_dict") or type(original) is not type(small):
        return None
    before, after = _shapes(original), _shapes(small)
    if before == after:
        return None
    entries, name = config_that_loads(original, small, attentions), type(small).__name__
    if entries is None:
        return f"no config of {name} has these sizes in every layer: write .pt2 or .onnx to run it without its class"
    old, new = small.config, _with_entries(small.config, entries)
    for part in small.modules():
        if getattr(part, "config", None) is old:
            part.config = new
    missing = " and strict=False: biases that no output sees are missing" if before.keys() - after.keys() else ""
    config = ", ".join(f"{entry}={value}" for entry, value in entries.items())
    return f"loads into {name} with config {config}{missing}"


@torch.no_grad()
def updated_settings(module: Any, settings: Mapping[str, Any], examples: Sequence[Any]) -> dict[str, Any] | None:
    """What a `config.json` with these settings must say for a smaller module; None if its class has no config for it.

    The class made of them must have the module's tensors and its outputs on the examples.
    """
    config: Any = getattr(module, "config", None)
    family: Any = getattr(module, "family", None)
    if family is None or not hasattr(config, "to_dict"):
        return None
    import transformers

    from lawful.sources.checkpoints.hugging_face import configuration, meta_parameters

    wanted, new = config.to_dict(), dict(settings)
    for _ in range(2):  # an entry that is not stated, such as head_dim, may follow from one that has changed
        now = configuration(transformers, new).to_dict()
        new |= {entry: value for entry, value in wanted.items() if entry != "use_cache" and now.get(entry) != value}
    try:
        with meta_parameters():
            rebuilt = family(configuration(transformers, new)).eval()
        kind = next(parameter.dtype for parameter in module.parameters() if parameter.is_floating_point())
        state = module.state_dict()
        missing = {name: tensor for name, tensor in rebuilt.state_dict().items() if name not in state}
        if not all(name.endswith("bias") for name in missing):
            return None
        zeros = {name: torch.zeros(tensor.shape, dtype=kind) for name, tensor in missing.items()}
        rebuilt.load_state_dict({**state, **zeros}, assign=True)
        rebuilt.tie_weights()  # as from_pretrained does: tensors that have become two are one again, and outputs others
        inputs = [example if isinstance(example, torch.Tensor) else torch.randn(*example) for example in examples]
        inputs = [tensor.to(kind) if tensor.is_floating_point() else tensor for tensor in inputs]
        names = getattr(module, "input_names", ())
        one = module(*inputs)
        two = rebuilt(**dict(zip(names, inputs, strict=True))) if len(names) == len(inputs) else rebuilt(*inputs)
    except Exception:  # whatever a library makes of sizes that it does not expect
        return None
    while not isinstance(two, torch.Tensor):
        two = two[0]
    # The same numbers in other kernels: they may differ in the last digits, and another function does in the first.
    room = torch.finfo(kind).eps ** 0.5 * float(one.abs().max())
    return new if one.shape == two.shape and float((one - two).abs().max()) <= room else None


def without_caches(module: nn.Module) -> list[str]:
    """Let models of transformers return no keys and values that they have seen; the parts that did."""
    changed = []
    for name, part in module.named_modules():
        config: Any = getattr(part, "config", None)
        if getattr(config, "use_cache", False) is True:
            config.use_cache = False
            changed.append(name)
    return changed


def with_caches(module: nn.Module, names: Collection[str]) -> None:
    """Let these parts return them again: an encoder of the same model may refuse to."""
    for name, part in module.named_modules():
        if name in names and hasattr(part, "config"):
            part.config.use_cache = True


def same_nodes(source: Path, module: nn.Module, examples: Sequence[torch.Tensor | tuple[int, ...]]) -> bytes | None:
    """An ONNX file with smaller initializers, where a module came from one whose nodes still fit."""
    if not source.is_file():
        return None
    generator = torch.Generator().manual_seed(0)
    sizes = [tuple(example.shape) if isinstance(example, torch.Tensor) else example for example in examples]
    whole = [isinstance(example, torch.Tensor) and not example.is_floating_point() for example in examples]
    inputs = [
        example if isinstance(example, torch.Tensor) and ids else torch.randn(size, generator=generator)
        for example, size, ids in zip(examples, sizes, whole, strict=True)
    ]
    return resize_file(source, module, inputs)


def graph_bytes(
    module: nn.Module, examples: Sequence[torch.Tensor | tuple[int, ...]], suffix: str, *, any_batch: bool = False
) -> bytes:
    """`.pt2` (an exported program) or `.onnx`, for inputs like the examples; for `any_batch` where that can be said."""
    kind = next((tensor.dtype for tensor in module.parameters() if tensor.is_floating_point()), torch.float32)
    inputs = tuple(
        example if isinstance(example, torch.Tensor) else torch.zeros(example, dtype=kind) for example in examples
    )
    whole = copy.deepcopy(module).eval()
    without_caches(whole)
    buffer = io.BytesIO()
    try:
        with _quiet(), torch.no_grad():
            program = _export(whole, inputs, any_batch=any_batch)
            if suffix == ".onnx":
                return _onnx(program)
            torch.export.save(program, buffer)
    except Exception as error:  # whatever an exporter does not know
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise Unsupported(f"PyTorch cannot write this module as {suffix}: {lines[0][:160]}") from None
    return buffer.getvalue()


def _export(module: nn.Module, given: tuple[torch.Tensor, ...], *, any_batch: bool) -> Any:
    if any_batch:
        batch = torch.export.Dim("batch", min=1)
        with suppress(Exception):  # code that looks at the number of samples: a graph for this one is left
            return torch.export.export(module, given, dynamic_shapes=tuple({0: batch} for _ in given), strict=False)
    return torch.export.export(module, given, strict=False)


def _onnx(program: Any) -> bytes:
    exported = torch.onnx.export(program, dynamo=True, verbose=False)
    if exported is None:
        raise Unsupported("the exporter gave no file")
    return bytes(exported.model_proto.SerializeToString())


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
