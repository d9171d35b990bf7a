"""Folders of Hugging Face: `config.json` names the family, `transformers` makes the module, no code is downloaded."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

from lawful.errors import InvalidNetwork, LawfulError, Unsupported
from lawful.formats.io.reading import naming, read_json
from lawful.formats.tensors.shards import WEIGHTS
from lawful.network.reading import list_names
from lawful.sources.checkpoints.adapters import STORED, base_of, is_adapter
from lawful.sources.checkpoints.load import let_torchvision_load

MAX_CONFIG = 2**20
TOKENS, DECODED = "8:int", "4:int"  # a few, where a sequence may be of any length
BY_LENGTH = ("dynamic", "longrope")  # rotary embeddings with other frequencies for longer inputs
UNNAMED = "its config.json names no architecture: it is a {}, by the names of its tensors"
SIDE = 64  # of a picture, where it may be of any size: most networks halve it five times


def module_of(folder: Path, weightless: int | None = None) -> tuple[Any, tuple[int, ...] | None, tuple[str, ...]]:
    """The module that a folder's `config.json` describes, empty; its input size; what of the folder is not used.

    With more than `weightless` parameters, these are never written to: they take no memory, and hold anything.
    """
    with naming(folder):
        settings = _settings(folder)
        try:
            import transformers
        except ImportError:
            raise Unsupported(
                f"is a {settings['model_type']} of Hugging Face: install transformers to open it, or give "
                "--model module:factory"
            ) from None
        let_torchvision_load()
        config = configuration(transformers, settings)
        architecture = _architecture(transformers, settings, config) or _stored_architecture(settings, config, folder)
        if weightless is None:
            module = _make(config, architecture)
        else:
            with meta_parameters():
                module = _make(config, architecture)
            if sum(tensor.numel() for tensor in module.parameters()) > weightless:
                _unwritten(module)
            else:
                module = _make(config, architecture)
    shape = _input_shape(settings)
    tensor_module = _first_tensor(module, _input_sizes(module, shape, settings))
    # Names of our own: a module may have parts that are called `unread` or `settings`.
    tensor_module.lawful_unread, tensor_module.lawful_settings = _unread(settings, folder), settings
    tensor_module.lawful_assumed = (
        () if settings.get("architectures") else (UNNAMED.format(tensor_module.family.__name__),)
    )
    return tensor_module, shape, tuple(tensor_module.lawful_unread)


def read_settings(folder: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What a folder's `config.json` says, and what of it is not carried out."""
    with naming(folder):
        settings = _settings(folder)
    return settings, _unread(settings, folder)


def _unread(settings: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    """What decides the function of a folder beside its settings and numbers, and is not carried out here."""
    unread = []
    if settings.get("auto_map"):
        unread.append("its own code (auto_map) is not run, but the class of transformers")
    if (quantised := settings.get("quantization_config")) and not _is_of_weights_alone(quantised):
        unread.append("the rounding of quantization_config is not carried out")
    named = settings.get("transformers_weights")
    if named and named != next((name for name in WEIGHTS if (folder / name).is_file()), None):
        unread.append("the file of weights that it names (transformers_weights) is not the one that is read")
    if not is_adapter(folder) and any((folder / name).is_file() for name in STORED):
        unread.append("the adapter beside the weights is not applied")
    return tuple(unread)


def _is_of_weights_alone(quantised: Any) -> bool:
    """Whether a scheme rounds weights and nothing that passes through: then its numbers are all that it changes."""
    if not isinstance(quantised, dict):
        return False
    method = quantised.get("quant_method")
    return method in ("gptq", "awq") or (method == "bitsandbytes" and quantised.get("load_in_4bit") is True)


@contextmanager
def meta_parameters() -> Iterator[None]:
    """Parameters of modules that are made meanwhile have sizes alone; buffers are what they are."""
    from torch import nn

    register = nn.Module.register_parameter

    def without_numbers(self: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and not parameter.is_meta:
            parameter = nn.Parameter(parameter.to("meta"), parameter.requires_grad)
        register(self, name, parameter)

    nn.Module.register_parameter = without_numbers  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


def _unwritten(module: Any) -> None:
    """Parameters with sizes alone become tensors that nobody has written to; those that are one stay one."""
    import torch

    empty: dict[int, torch.nn.Parameter] = {}
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                new = empty.setdefault(
                    id(parameter), torch.nn.Parameter(torch.empty(parameter.shape, dtype=parameter.dtype))
                )
                part._parameters[name] = new


def renamed_module(module: Any, state: Mapping[str, Any]) -> Any:
    """The module loaded by `transformers` itself, which knows the older names of its families.

    Its numbers have the widest type of the checkpoint's, whatever type the settings name.
    """
    import torch

    from lawful.sources.checkpoints.translation import load_translated, widest

    inputs = dict(zip(module.input_names, module.input_sizes, strict=True))
    return _first_tensor(load_translated(module, state, widest(state) or torch.float32), inputs)


def _settings(folder: Path) -> dict[str, Any]:
    if is_adapter(folder):
        folder = base_of(folder)
    if not (folder / "config.json").is_file():
        raise InvalidNetwork("is a folder without config.json: give a file in it, or --model module:factory")
    settings = read_json(folder / "config.json", MAX_CONFIG)
    if not isinstance(settings, dict) or not isinstance(settings.get("model_type"), str):
        raise InvalidNetwork("its config.json names no model_type: give --model module:factory")
    return settings


def configuration(transformers: Any, settings: Mapping[str, Any]) -> Any:
    """The settings as `transformers` understands them."""
    kind = settings["model_type"]
    known = {key: value for key, value in settings.items() if key not in ("model_type", "auto_map")}
    if kind not in transformers.CONFIG_MAPPING:
        raise Unsupported(f"transformers knows no model_type {kind[:40]!r}: give --model module:factory")
    try:
        config = transformers.AutoConfig.for_model(kind, **known)
    except Exception as error:  # whatever the library makes of somebody's settings
        reason = (str(error).strip().splitlines() or [""])[0][:160]
        raise Unsupported(f"transformers refuses its config.json: correct that ({reason})") from None
    config.use_cache = False
    return config


def _make(config: Any, architecture: Any) -> Any:
    """A module of that class, without weights."""
    try:
        module = architecture(config)
    except LawfulError:
        raise
    except Exception as error:  # whatever the library makes of somebody's settings
        reason = (str(error).strip().splitlines() or [""])[0][:160]
        raise Unsupported(f"transformers cannot make a {config.model_type} of its config.json ({reason})") from None
    _state_frequencies_by_length(module)
    return module.eval()


def _state_frequencies_by_length(module: Any) -> None:
    """Let rotary embeddings whose frequencies depend on the length of the input compute them from that alone.

    Those of `transformers` keep the frequencies of the longest input so far: what they return depends on what they
    were called with before, and calls inside a trace leave tensors of the trace behind. Here they are computed anew
    for each call, which is what a module does that was just loaded.
    """
    for part in module.modules():
        forward = inspect.unwrap(type(part).forward)
        if getattr(part, "rope_type", None) in BY_LENGTH and forward is not type(part).forward:
            part.__class__ = type(type(part).__name__, (type(part),), {"forward": _by_length(forward)})


def _by_length(rotate: Callable[..., Any]) -> Callable[..., Any]:
    """The rotary embedding `rotate`, with the frequencies for the length at hand."""
    import torch
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    @torch.no_grad()
    def forward(self: Any, x: torch.Tensor, position_ids: torch.Tensor) -> Any:
        # In a trace positions have no values. There they count from 0, unless somebody hands over others: then the
        # comparison of the trace with the module, whose positions do have values, tells.
        tracing = torch.compiler.is_compiling()
        length = position_ids.shape[-1] if tracing else int(position_ids.max()) + 1
        frequencies, scaling = ROPE_INIT_FUNCTIONS[self.rope_type](self.config, x.device, seq_len=length)
        fresh = copy(self)
        fresh._buffers = {**self._buffers, "inv_freq": frequencies}
        fresh.attention_scaling = scaling
        return rotate(fresh, x, position_ids)

    return forward


def _architecture(transformers: Any, settings: Mapping[str, Any], config: Any) -> Any:
    """The class that the settings name; None if they name none. No other is taken for it."""
    names = settings.get("architectures") or []
    if not names:
        return None
    name = names[0] if isinstance(names, list) else names
    architecture = getattr(transformers, name, None) if isinstance(name, str) else None
    if architecture is None:
        raise Unsupported(
            f"its architecture {str(name)[:60]!r} is no class of transformers: give --model module:factory"
        )
    family = getattr(architecture, "config_class", None)
    if isinstance(family, type) and not isinstance(config, family):
        raise Unsupported(
            f"its config.json names {name} and model_type {settings['model_type'][:40]!r}, which do not belong together"
        )
    return architecture


def _stored_architecture(settings: Mapping[str, Any], config: Any, folder: Path) -> Any:
    """The class of a family whose tensors are those of a folder that names none; the family's own if it is among them,
    or if there is none: then names are older, or have a prefix."""
    from transformers import AutoModel
    from transformers.models.auto import modeling_auto

    from lawful.sources.files import contents

    reading = contents(base_of(folder) if is_adapter(folder) else folder)
    stored = {} if reading is None else {tensor.name: tensor.shape for tensor in reading.layers}
    lists = [value for name, value in vars(modeling_auto).items() if name.endswith("_MAPPING_NAMES")]
    entries = [entry for table in lists if (entry := table.get(settings["model_type"])) is not None]
    names = dict.fromkeys(name for entry in entries for name in ([entry] if isinstance(entry, str) else entry))
    fitting = {name: kind for name in names if (kind := _class_with(name, config, stored)) is not None}
    family = modeling_auto.MODEL_MAPPING_NAMES.get(settings["model_type"])
    if len(fitting) > 1 and family not in fitting:
        raise Unsupported(
            f"its config.json names no architecture, and its tensors are those of {list_names(list(fitting), 4)}: add "
            'the right one to it, like "architectures": ["' + next(iter(fitting)) + '"]'
        )
    return fitting.get(family) or next(iter(fitting.values()), AutoModel.from_config)


def _class_with(name: str, config: Any, stored: Mapping[str, tuple[int, ...]]) -> Any:
    """The class of that name if its modules have just these tensors, tied ones under one name or more."""
    import torch
    import transformers

    kind = getattr(transformers, name, None)
    try:
        with torch.device("meta"):
            wanted = kind(config).state_dict(keep_vars=True)  # type: ignore[misc]
    except Exception:  # a class that is not there, or not for these settings
        return None
    present = {id(tensor) for name, tensor in wanted.items() if name in stored}
    fits = all(name in wanted and tuple(wanted[name].shape) == shape for name, shape in stored.items())
    return kind if stored and fits and all(id(tensor) in present for tensor in wanted.values()) else None


def _input_shape(settings: dict[str, Any]) -> tuple[int, ...] | None:
    """Pictures have a size; token sequences may be of any length."""
    side, channels = settings.get("image_size"), settings.get("num_channels", 3)
    sides = [side, side] if isinstance(side, int) else side
    if isinstance(sides, list) and len(sides) == 2 and all(isinstance(size, int) for size in (*sides, channels)):
        return (channels, *sides)
    return None


def _channels(settings: Mapping[str, Any]) -> int:
    channels = settings.get("num_channels", 3)
    return channels if isinstance(channels, int) and channels > 0 else 3


def _input_sizes(
    module: Any, shape: tuple[int, ...] | None, settings: Mapping[str, Any]
) -> dict[str, tuple[int, ...] | str]:
    """What the module takes where nobody says otherwise, by the names of its inputs."""
    kind = getattr(module, "main_input_name", None)
    known = set(inspect.signature(module.forward).parameters)
    sizes: dict[str, tuple[int, ...] | str] = {}
    if {"input_ids", "pixel_values"} <= known and isinstance(settings.get("vision_config"), dict):
        pictures = _input_shape(settings["vision_config"])
        if pictures is not None:  # a pair, such as CLIP's
            sizes = {"input_ids": TOKENS, "pixel_values": pictures}
    elif kind == "pixel_values":
        sizes = {"pixel_values": shape or (_channels(settings), SIDE, SIDE)}
    elif kind == "input_features" and isinstance(settings.get("num_mel_bins"), int):
        frames = settings.get("max_source_positions")  # the encoder halves the frames of sound once
        sizes = {kind: (settings["num_mel_bins"], 2 * frames)} if isinstance(frames, int) else {}
    elif kind == "input_ids":
        sizes = {"input_ids": TOKENS}
    if sizes and settings.get("is_encoder_decoder") and "decoder_input_ids" in known:
        sizes["decoder_input_ids"] = DECODED
    return sizes


def _first_tensor(module: Any, inputs: Mapping[str, tuple[int, ...] | str]) -> Any:
    """The module, returning the first tensor of what it returns (logits, hidden states); its names stay.

    Its inputs are those named, in that order; one alone is the first that it takes. Its class is another, not its
    `forward`: a method of the instance would go on using this one's weights in a copy.
    """
    import torch

    kind = type(module)
    names = tuple(inputs)

    def first(self: Any, *arguments: Any, **options: Any) -> Any:
        if len(names) > 1 and 1 < len(arguments) <= len(names):
            options, arguments = {**dict(zip(names, arguments, strict=False)), **options}, ()
        outputs = kind.forward(self, *arguments, **options)
        while not isinstance(outputs, torch.Tensor):
            outputs = outputs[0]
        return outputs

    methods = {
        "forward": first,
        "family": kind,
        "input_sizes": tuple(inputs.values()),
        "input_names": names,
        "__module__": kind.__module__,
    }
    module.__class__ = type(kind.__name__, (kind,), methods)
    return module
