"""Checkpoints into modules: a factory makes the module, the file's tensors fill it, and every name must be met."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.formats.io.detect_format import kind_of
from lawful.formats.io.limits import MAX_MAPPED
from lawful.formats.io.reading import naming, read_json
from lawful.formats.tensors.shards import read_shards, weights_in
from lawful.network.reading import list_names
from lawful.sources.files import check_file

if TYPE_CHECKING:
    import torch

State = Mapping[str, "torch.Tensor"]
MAX_SETTINGS = 2**20  # bytes of a config.json
MISSING = "torchvision::"  # how PyTorch names an operator that is not there


def is_factory(text: str) -> bool:
    """Whether the text names a factory, such as `package.module:make` or `folder/module.py:Make`."""
    named = re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*|[^\0\n:]+\.py:[A-Za-z_]\w*", text)
    return named is not None and not Path(text).exists()


def make_module(model: str | Callable[[], Any] | torch.nn.Module) -> torch.nn.Module:
    """Import `module:factory` (the current folder counts) and call it for a `torch.nn.Module`; or take one as it is."""
    import torch

    name = model if isinstance(model, str) else getattr(model, "__name__", type(model).__name__)
    module = _import_factory(model) if isinstance(model, str) else model
    if not isinstance(module, torch.nn.Module):
        if not callable(module):
            raise LawfulError(f"{name} is a {type(module).__name__}, not a factory of a torch.nn.Module")
        try:
            module = _call(module)
        except LawfulError:
            raise
        except Exception as error:  # the user's own code
            reason = (str(error).strip().splitlines() or [""])[0][:160]
            raise LawfulError(f"{name}() failed: {type(error).__name__}: {reason}") from None
    if not isinstance(module, torch.nn.Module):
        raise LawfulError(f"{name} gave a {type(module).__name__}, not a torch.nn.Module")
    return module


def _call(somebodys: Callable[[], Any]) -> Any:
    """The result of somebody's code, which may need a torchvision that does not load."""
    try:
        return somebodys()
    except Exception as error:
        if not (is_about_torchvision(error) and let_torchvision_load()):
            raise
    return somebodys()


def _import_factory(text: str) -> Any:
    if not is_factory(text):
        raise LawfulError(f"{text[:80]!r} is no factory: write module:function, as in mynets:make")
    where, name = text.split(":")
    folder = Path.cwd()
    if where.endswith(".py"):
        file = Path(where)
        if not file.is_file():
            raise LawfulError(f"{where[:80]}: no such file")
        folder, where = file.absolute().parent, file.stem
    # First, so that a module of the user is not shadowed by an installed one of the same name.
    sys.path.insert(0, str(folder))
    try:
        return getattr(_call(lambda: importlib.import_module(where)), name)
    except Exception as error:  # whatever somebody's module does when it is loaded
        raise LawfulError(f"cannot import {text}: {type(error).__name__}: {error}") from None


def state_of(path: Path) -> tuple[dict[str, torch.Tensor], str, tuple[str, ...]]:
    """The tensors of a checkpoint (one file, a folder, or an index of shards), its format, and what was not used.

    Weights that are stored by a scheme of quantisation are the numbers that its runtime computes with, and an adapter's
    folder holds the model that it changes, changed.
    """
    from lawful.sources.checkpoints.adapters import base_of, is_adapter, merged_state

    if path.is_dir() and is_adapter(path):
        state, kind, ignored = _plain_state(base_of(path))
        return merged_state(path, state, lambda file: stored_state(file)[0]), kind, ignored
    return _plain_state(path)


def _plain_state(path: Path) -> tuple[dict[str, torch.Tensor], str, tuple[str, ...]]:
    from lawful.formats.tensors.quantised import dequantise, is_quantised

    state, kind, ignored = stored_state(path)
    if not is_quantised(state):
        return state, kind, ignored
    with naming(path):
        return dequantise(state, settings_beside(path)), kind, ignored


def settings_beside(path: Path) -> dict[str, Any]:
    """What the `config.json` of a checkpoint's folder says, if there is one."""
    from lawful.sources.checkpoints.adapters import base_of, is_adapter

    folder = path if path.is_dir() else path.parent
    settings = (base_of(folder) if is_adapter(folder) else folder) / "config.json"
    described = read_json(settings, MAX_SETTINGS) if settings.is_file() else {}
    return described if isinstance(described, dict) else {}


def stored_state(path: Path) -> tuple[dict[str, torch.Tensor], str, tuple[str, ...]]:
    """The tensors as they are stored."""
    with naming(path):
        if path.is_dir():
            return stored_state(weights_in(path))
        check_file(path, MAX_MAPPED)
        kind = kind_of(path)
        if kind == "index":
            shards = read_shards(path, lambda shard: stored_state(shard)[0], lambda state: state)
            whole = {name: tensor for state in shards for name, tensor in state.items()}
            return whole, "safetensors" if "safetensors" in path.name else "pt", ()
        if kind == "pt":
            from lawful.formats.tensors import pt

            state, ignored = pt.load_tensors(path, MAX_MAPPED)
            return dict(state), kind, ignored
        if kind == "safetensors":
            from lawful.formats.tensors import safetensors

            return safetensors.load_tensors(path), kind, ()
        if kind == "gguf":
            from lawful.sources.checkpoints.gguf_names import named_state

            return named_state(path), kind, ()
        if kind == "npz":
            import torch

            from lawful.formats.tensors import npz

            return {name: torch.from_numpy(array.copy()) for name, array in npz.load(path)[0].items()}, kind, ()
        raise Unsupported(f"is a {kind} file, which holds a whole network: leave out --model")


def state_for(module: torch.nn.Module, path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint; those of a module of `transformers` under the names that it has there today."""
    from lawful.sources.checkpoints.translation import is_translated, translation_of

    if path.is_file() and kind_of(path) == "onnx":
        return onnx_state(path)
    state, _, _ = state_of(path)
    return translation_of(module, state).state() if is_translated(module, list(state)) else state


def onnx_state(path: Path) -> dict[str, torch.Tensor]:
    """The weights of an ONNX file."""
    from lawful.sources.onnx.module import OnnxModule
    from lawful.sources.onnx.reader import load_model

    with naming(path):
        return dict(OnnxModule(load_model(path), path.parent).state_dict())


def fill_module(module: torch.nn.Module, state: State) -> tuple[torch.nn.Module, str]:
    """A copy of a module with a state dict, strictly, in the checkpoint's own type of numbers; and the prefix of its
    names that was dropped. The module itself may be somebody's, or another checkpoint's, and stays as it is.

    Prefixes that wrappers add are dropped if that makes the names fit. A name may be missing if the module shares its
    tensor with a name that is there.
    """
    import torch

    from lawful.program.frontends.export import copy_module
    from lawful.sources.checkpoints.translation import widest

    wanted = module.state_dict(keep_vars=True)
    names, dropped = fitting(list(state), set(wanted))
    renamed = dict(zip(names, state.values(), strict=True))
    unknown = [name for name in renamed if name not in wanted]
    # One tensor under two names may be stored once.
    present = {id(tensor) for name, tensor in wanted.items() if name in renamed}
    missing = [name for name, tensor in wanted.items() if name not in renamed and id(tensor) not in present]
    if unknown or missing:
        parts = [f"the module has no {list_names(unknown, 4)}"] * bool(unknown)
        parts += [f"the checkpoint has no {list_names(missing, 4)}"] * bool(missing)
        raise InvalidNetwork(f"the checkpoint does not fit {type(module).__name__}: {'; '.join(parts)}")
    for name, tensor in renamed.items():
        if tensor.shape != wanted[name].shape:
            sizes = f"{tuple(tensor.shape)}, and the module's is {tuple(wanted[name].shape)}"
            raise InvalidNetwork(f"the checkpoint does not fit {type(module).__name__}: {name} is {sizes}")
        if wanted[name].is_floating_point() and not tensor.is_floating_point():  # large ones would be rounded unseen
            kind = str(tensor.dtype).removeprefix("torch.")
            raise InvalidNetwork(
                f"{name} holds {kind} numbers: weights that are stored as integers have to be made into floating "
                "point first"
            )
    _check_shared(renamed, wanted)
    module = copy_module(module)
    # A module without numbers takes the tensors themselves, mapped from the file: nothing is copied.
    if any(tensor.is_meta for tensor in wanted.values()):
        module.load_state_dict(renamed, strict=False, assign=True)
    else:
        stored, current = widest(renamed), widest(wanted)
        if stored is not None and current is not None and torch.promote_types(stored, current) != current:
            module.to(stored)  # else the weights would be rounded
        module.load_state_dict(renamed, strict=False)
    return module, dropped


def _check_shared(state: State, wanted: State) -> None:
    """What the module holds once must be the same under every name that the checkpoint gives it."""
    import torch

    first: dict[int, str] = {}
    for name in state:
        other = first.setdefault(id(wanted[name]), name)
        if other != name and not torch.equal(state[other], state[name]):
            raise InvalidNetwork(
                f"the module has one tensor for {other} and {name}, and the checkpoint different numbers: they were "
                "not shared when it was saved"
            )


def fitting(names: list[str], wanted: set[str]) -> tuple[list[str], str]:
    """The names less a prefix that all of them have, such as `module.` or `net.`, if the module then knows more.

    >>> fitting(["module.net.0.weight", "module.net.0.bias"], {"0.weight", "0.bias"})
    (['0.weight', '0.bias'], 'module.net.')
    """
    best, dropped = names, ""
    current, so_far = names, ""
    while current and (prefix := _common_part(current)):
        current, so_far = [name.removeprefix(prefix) for name in current], so_far + prefix
        if len(wanted & set(current)) > len(wanted & set(best)):
            best, dropped = current, so_far
    return best, dropped


def _common_part(names: list[str]) -> str:
    """The first part of all names, with its dot; empty if they differ or would have nothing left."""
    part, dot, _ = names[0].partition(".")
    return part + dot if dot and all(name.startswith(part + dot) for name in names) else ""


_OPERATORS: list[Any] = []  # names live as long as the process


def let_torchvision_load() -> bool:
    """Give torchvision the names of its operators, if it does not load without; whether that was so.

    transformers and timm import torchvision for pictures. The operators are for boxes of detectors: a call of one fails
    as before, but models that need none can be made.
    """
    if _OPERATORS:
        return False
    try:
        import torchvision  # noqa: F401
    except ImportError:
        return False
    except RuntimeError as error:
        if MISSING not in str(error):
            return False
        import torch

        for name in ("nms", "qnms"):
            library: Any = torch.library.Library
            _OPERATORS.append(library("torchvision", "FRAGMENT"))
            _OPERATORS[-1].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return True
    return False


def is_about_torchvision(error: BaseException) -> bool:
    """Whether an error, or one that led to it, is that an operator of torchvision is not there."""
    seen: BaseException | None = error
    while seen is not None:
        if MISSING in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False
