"""Checkpoints whose names or layout `transformers` translates when it loads them, both ways."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from lawful.errors import InvalidNetwork, Unsupported
from lawful.network.reading import list_names

State = Mapping[str, torch.Tensor]


@dataclass(frozen=True, eq=False)
class Translation:
    """Where each entry of a module lies in its checkpoint.

    `places` has, for each tensor of the module, the numbers of its entries among all real entries of the checkpoint,
    tensor after tensor. It was found by loading these numbers instead of weights, so it holds for whatever the library
    renames, cuts, joins, stacks or turns; `stored` are the checkpoint's own tensors, `counts` the module's integers.
    """

    places: Mapping[str, torch.Tensor]
    stored: State
    counts: State

    def state(self) -> dict[str, torch.Tensor]:
        """The checkpoint's numbers under the module's names, each in the widest type of those that it is made of."""
        names, where = list(self._real), list(self._spans().values())
        ends = torch.tensor([stop for _, stop in where])
        state = dict(self.counts)
        for name, places in self.places.items():
            flat = places.flatten()
            owners = torch.bucketize(flat, ends, right=True)
            flat_state = torch.empty(0)
            for number, owner in enumerate(sorted(set(owners.tolist()))):
                here = owners == owner
                part = self.stored[names[owner]].flatten()[flat[here] - where[owner][0]]
                flat_state = torch.zeros(len(flat), dtype=part.dtype) if number == 0 else flat_state
                flat_state = flat_state.to(torch.promote_types(flat_state.dtype, part.dtype))
                flat_state[here] = part.to(flat_state.dtype)
            state[name] = flat_state.reshape(places.shape)
        return state

    def back(self, weights: State, *, whole: bool = False) -> dict[str, torch.Tensor]:
        """The checkpoint with other numbers in the places of the module's tensors; what the module has not, stays.

        If the weights are the `whole` module, its tensors that are not among them have left.
        """
        plain = self._plain()
        resized = {name for name, tensor in weights.items()
                   if name in self.places and tensor.shape != self.places[name].shape}  # fmt: skip
        if cut := sorted(resized - set(plain)):
            raise Unsupported(f"{list_names(cut, 3)} changed its size, and lies in several tensors of the checkpoint")
        if new := [name for name in weights if name not in self.places and weights[name].is_floating_point()]:
            raise Unsupported(f"{list_names(new, 3)} is new, and the checkpoint has no name for it")
        # One vector of all stored numbers: each tensor of the module is a list of places in it.
        flat = torch.cat([tensor.flatten().double() for tensor in self._real.values()] or [torch.zeros(0).double()])
        written = torch.full((len(flat),), torch.nan, dtype=torch.float64)
        for name in self.places.keys() & weights.keys() - resized:
            here, numbers = self.places[name].flatten(), weights[name].detach().cpu().flatten().double()
            known = written[here]
            if not bool((known.isnan() | (known == numbers)).all()):
                raise Unsupported(f"{name} shares numbers of the checkpoint with another tensor, and they now differ")
            written[here] = flat[here] = numbers
        state = dict(self.stored)
        for name, (start, stop) in self._spans().items():
            stored = self.stored[name]
            state[name] = flat[start:stop].reshape(stored.shape).to(stored.dtype)
        for name in resized:
            state[plain[name]] = weights[name].detach().cpu().to(self.stored[plain[name]].dtype)
        if whole:
            unmoved = {plain[name] for name in plain.keys() & weights.keys()}
            for name in plain.keys() - weights.keys():
                if plain[name] not in unmoved:
                    state.pop(plain[name], None)
        return state

    @property
    def _real(self) -> dict[str, torch.Tensor]:
        return {name: tensor for name, tensor in self.stored.items() if tensor.is_floating_point()}

    def _spans(self) -> dict[str, tuple[int, int]]:
        return spans(self._real)

    def _plain(self) -> dict[str, str]:
        """The tensors of the module that are one of the checkpoint's as it stands."""
        plain, starts = {}, {start: (name, stop) for name, (start, stop) in self._spans().items() if stop > start}
        for name, places in self.places.items():
            if not places.numel() or int(places.flatten()[0]) not in starts:
                continue
            other, stop = starts[int(places.flatten()[0])]
            whole = torch.arange(stop - places.numel(), stop).reshape(places.shape)
            if self.stored[other].shape == places.shape and torch.equal(whole, places):
                plain[name] = other
        return plain


def spans(state: State) -> dict[str, tuple[int, int]]:
    """First and last number of each tensor's entries, counted through all of them.

    >>> spans({"a": torch.zeros(2, 2), "b": torch.zeros(3)})
    {'a': (0, 4), 'b': (4, 7)}
    """
    ranges, start = {}, 0
    for name, tensor in state.items():
        ranges[name] = (start, start + tensor.numel())
        start += tensor.numel()
    return ranges


def widest(state: State) -> torch.dtype | None:
    """The narrowest type that holds every real number of a checkpoint as it is.

    >>> widest({"a": torch.zeros(1, dtype=torch.bfloat16), "b": torch.zeros(1, dtype=torch.float16)})
    torch.float32
    """
    kinds = {tensor.dtype for tensor in state.values() if tensor.is_floating_point()}
    return functools.reduce(torch.promote_types, kinds) if kinds else None


def is_translated(module: nn.Module, names: Sequence[str]) -> bool:
    """Whether `transformers` would rename or convert one of these tensors for this module of its own."""
    try:
        from transformers import PreTrainedModel
        from transformers.conversion_mapping import get_model_conversion_mapping
    except ImportError:  # not there, or older than its translations
        return False
    if not isinstance(module, PreTrainedModel):
        return False
    rules = get_model_conversion_mapping(module)
    return any(rule.rename_source_key(name)[1] is not None for rule in rules for name in names)


def load_translated(module: nn.Module, state: State, dtype: torch.dtype) -> nn.Module:
    """A module of the same family and settings, loaded by `transformers` itself; refused if names are left over.

    The tensors were read and checked before, and no code of a folder runs.
    """
    from transformers.utils import logging

    family: Any = getattr(type(module), "family", type(module))
    level = logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        loaded, report = family.from_pretrained(
            None, config=module.config, state_dict=dict(state), dtype=dtype, output_loading_info=True,
            local_files_only=True, trust_remote_code=False,
        )  # fmt: skip
    except Exception as error:  # whatever the library makes of somebody's tensors
        reason = (str(error).strip().splitlines() or [""])[0][:160]
        raise InvalidNetwork(f"transformers cannot load it into {type(module).__name__} ({reason})") from None
    finally:
        logging.enable_progress_bar()
        logging.set_verbosity(level)
    problems = (("needs", "missing_keys"), ("has no place for", "unexpected_keys"), ("misfits", "mismatched_keys"))
    parts = [f"{words} {list_names(map(str, sorted(report[key])), 4)}" for words, key in problems if report.get(key)]
    if parts or report.get("error_msgs"):
        raise InvalidNetwork(f"transformers' {type(module).__name__} {'; '.join(parts) or report['error_msgs'][0]}")
    return loaded.eval()  # type: ignore[no-any-return]


def left_out(module: nn.Module, names: Sequence[str]) -> tuple[str, ...]:
    """Tensors that the family is known to leave out when it loads, such as masks of attention."""
    patterns = getattr(module, "_keys_to_ignore_on_load_unexpected", None) or ()
    suffixes = tuple(f".{name}" for name in module.state_dict())
    strange = (name for name in names if not any(suffix.endswith(f".{name}") for suffix in suffixes))
    return tuple(name for name in strange if any(re.search(pattern, name) for pattern in patterns))


def translation_of(module: nn.Module, state: State) -> Translation:
    """How a checkpoint becomes this module of `transformers`."""
    real = {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}
    count = sum(tensor.numel() for tensor in real.values())
    numbers = torch.arange(1, count + 1, dtype=torch.float64)
    labels = {name: numbers[start:stop].reshape(real[name].shape) for name, (start, stop) in spans(real).items()}
    labelled = load_translated(module, {**state, **labels}, torch.float64)
    places, counts = {}, {}
    for name, tensor in labelled.state_dict().items():
        if not tensor.is_floating_point():
            counts[name] = tensor
            continue
        label = tensor.detach().to(torch.int64) - 1
        if not (torch.equal(tensor.double(), (label + 1).double()) and bool(((label >= 0) & (label < count)).all())):
            raise Unsupported(f"{name} is computed from the checkpoint's numbers, and is none of them")
        places[name] = label
    return Translation(places, state, counts)
