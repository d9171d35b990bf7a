"""Are two modules written alike: one program with the same constants, on tensors of the same names?"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, as_tensor, nn

from lawful.checkpoints.architecture import CheckpointArchitecture, read_program
from lawful.program.frontends.export import export_module, written_calls
from lawful.program.frontends.torch_export import ROUNDS_TO, WRAPS
from lawful.program.program import Program, attribute_key
from lawful.program.table import OperatorFamily

STATISTICS = ("running_mean", "running_var", "num_batches_tracked")  # part of a checkpoint, not of the module
WHERE = frozenset({OperatorFamily.MOVEMENT, OperatorFamily.CONTRACTION})  # which entries meet: layouts, not constants


def written_alike(
    architecture: CheckpointArchitecture, other: nn.Module
) -> Literal["call by call", "as programs"] | None:
    """Whether another module has the same names and the same program, with the same constants in it.

    Programs are of one size of inputs: modules that make other calls may differ at other sizes.
    """
    module = architecture.module
    if {n: t.shape for n, t in module.named_parameters()} != {n: t.shape for n, t in other.named_parameters()}:
        return None
    exported = export_module(other, list(architecture.inputs))
    theirs = read_program(other, exported)
    if architecture.program is None or theirs is None or signature(architecture.program) != signature(theirs):
        return None
    return "call by call" if written_calls(architecture.exported) == written_calls(exported) else "as programs"


def signature(program: Program, *, names: bool = True) -> str:
    """What a program computes, in words: its text, and digests of what it holds beside parameters and statistics."""
    buffers = [
        f"{name if names else ''} {tuple(program.tensors[name].shape)} {_digest(program.tensors[name])}"
        for name in program.buffers
        if not name.endswith(STATISTICS)
    ]
    return "\n".join([program.text(names), *buffers, *narrow_types(program)])


def narrow_types(program: Program) -> list[str]:
    """What its text, which is over the reals, does not say: casts that round, and integers that wrap around."""
    return sorted(note for note in program.notes if note.endswith(WRAPS) or note.startswith(ROUNDS_TO))


def _digest(tensor: Tensor) -> str:
    return hashlib.sha256(as_tensor(tensor).detach().double().cpu().numpy().tobytes()).hexdigest()[:16]


def first_difference(one: Program | None, two: Program | None, *, calls_alike: bool) -> str | None:
    """An operator in which programs differ, whatever their parameters are called: of the same operators with other
    constants (not those on other tensors: a head may be tied in one of them), or of some other operators if these are
    few."""
    if one is None or two is None:
        return None
    words = [Counter(_words(program, with_layouts=not calls_alike)) for program in (one, two)]
    mine, theirs = words[0] - words[1], words[1] - words[0]
    if calls_alike:
        alike = Counter(node.op for node in one.nodes) == Counter(node.op for node in two.nodes)
    else:
        alike = mine.total() == theirs.total() <= words[0].total() // 4
    if not alike and not calls_alike:  # too many: the functions alone
        functions = [Counter(_functions(program)) for program in (one, two)]
        mine, theirs = functions[0] - functions[1], functions[1] - functions[0]
        alike = True
        if bool(mine) != bool(theirs):
            more = next(iter(mine or theirs))
            return f"{more} {functions[0][more]} times in A, {functions[1][more]} times in B"
    if not alike or not mine or not theirs:
        return None
    return f"{next(iter(mine))} in A, {next(iter(theirs))} in B"[:300]


def _functions(program: Program) -> Iterator[str]:
    """What is applied entry by entry."""
    return (node.op for node in program.as_run() if node.family is OperatorFamily.ELEMENTWISE)


def _words(program: Program, with_layouts: bool) -> Iterator[str]:
    """The constants and operators in the order in which they are computed, each with its numbers.

    Layouts are index maps, axes, and whether a norm centres: two ways to write one model may differ in them.
    """
    for node in program.as_run():
        layout = node.family in WHERE and not with_layouts
        if layout or (node.family is OperatorFamily.LEAF and node.op != "constant"):
            continue
        inside = (
            f"{key}={attribute_key(value)}"
            for key, value in sorted(node.attributes.items())
            if key != "call" and (with_layouts or isinstance(value, (float, str, np.ndarray)))
        )
        yield f"{node.op}({', '.join(inside)})"


# Settings in which two modules differ: which of them cannot matter, and which lengths of inputs could tell.
#
# Two programs are compared at one size of inputs. Settings of `transformers` may act at other sizes alone: a window of
# attention that is longer than the input does nothing there. So a setting that differs is believed to be without effect
# only if it is listed here, each with its reason; the programs have to be equal at the size tried *besides*. Any other
# difference leaves equality open.


Settings = dict[str, Any]


class Unset(Enum):
    """What stands for a setting that is not there. It is not `None`: a class that does not find a setting takes its
    default, which may be anything."""

    UNSET = "not set"

    def __str__(self) -> str:
        return self.value


UNSET = Unset.UNSET

# What no forward pass computes with, at any length.
NEVER_COMPUTED = {
    "names and versions": {"_name_or_path", "name_or_path", "transformers_version", "_commit_hash", "tokenizer_class",
                           "finetuning_task", "task_specific_params", "problem_type", "prefix", "architectures"},
    "names of classes; how many there are is seen in the tensors": {"id2label", "label2id"},
    "numbers at the start of training": {"initializer_range", "initializer_factor", "initializer_std", "init_std",
                                         "_fast_init"},
    "training alone: modules count in evaluation": {
        "attention_dropout", "attention_probs_dropout_prob", "hidden_dropout", "hidden_dropout_prob", "dropout",
        "activation_dropout", "classifier_dropout", "classifier_dropout_prob", "embedding_dropout", "embed_dropout",
        "embd_pdrop", "resid_pdrop", "attn_pdrop", "resid_dropout", "attn_dropout", "summary_first_dropout",
        "dropout_rate", "seq_classif_dropout", "qa_dropout", "drop_path_rate", "layerdrop", "encoder_layerdrop",
        "decoder_layerdrop", "gradient_checkpointing", "router_aux_loss_coef", "router_z_loss_coef"},
    "what is returned beside the first tensor, or kept for the next call": {
        "use_cache", "output_attentions", "output_hidden_states", "return_dict", "use_return_dict"},
    "how answers are sampled from what is computed": {
        "max_length", "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
        "diversity_penalty", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
        "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "remove_invalid_values",
        "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens"},
}  # fmt: skip
# What acts on all tokens alike, however many there are: programs that are equal at one length are equal at all.
ALIKE_AT_ALL_LENGTHS = {
    "which tensors are one": {"tie_word_embeddings", "tie_encoder_decoder"},
}
SYNONYMS = ({"silu", "swish"},)  # two names of one activation
RENAMED = {"rope_scaling", "rope_theta", "model_type"}  # in older files: what became of them is compared
# A token's number is compared with each token of the input: the constant is seen in the program of any length.
TOKEN = ("token_id", "token_ids", "token_index")
INERT = frozenset(
    name for group in (NEVER_COMPUTED, ALIKE_AT_ALL_LENGTHS) for names in group.values() for name in names
)
NUMBERS = ("dtype", "torch_dtype")  # the type in which weights are loaded: see `rounded_by_dtype`
OF_LENGTH = ("window", "position", "length", "seq", "context", "chunk", "block", "span", "distance", "bucket", "local")


def settings_of(module: nn.Module) -> Settings | None:
    """All settings of a module of `transformers`, or of those inside of it; None if there are none."""
    configs = {
        id(config): config for part in module.modules() if hasattr(config := getattr(part, "config", None), "to_dict")
    }
    if not configs:
        return None
    settings: Settings = {}
    for number, config in enumerate(_outer(list(configs.values()))):
        settings |= dict(flatten(config.to_dict(), f"#{number}." if number else ""))
    written = getattr(module, "lawful_settings", {})  # of config.json: the library may keep some of them elsewhere
    return dict(flatten({key: value for key, value in written.items() if key not in RENAMED})) | settings


def _outer(configs: list[Any]) -> list[Any]:
    """Those that are no part of another."""
    inner = {id(value) for config in configs for value in vars(config).values()}
    return [config for config in configs if id(config) not in inner]


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their path, of which each has its own: a name that has dots in it is put in quotes."""
    for key, value in settings.items():
        name = str(key) if re.fullmatch(r"\w[\w-]*", str(key)) else json.dumps(str(key))
        if isinstance(value, Mapping) and value and key not in INERT:
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def differing(one: Settings, two: Settings) -> dict[str, tuple[Any, Any]]:
    """The settings that differ and are not known to be without effect.

    >>> differing({"sliding_window": 8, "use_cache": True}, {"sliding_window": 9, "eos_token_id": 2})
    {'sliding_window': (8, 9)}
    """
    unequal = {}
    for key, values in _unlike(one, two).items():
        name = key.rpartition(".")[2]
        if name in INERT or name in NUMBERS or name.endswith(TOKEN):
            continue
        unequal[key] = values
    return unequal


def _unlike(one: Settings, two: Settings) -> dict[str, tuple[Any, Any]]:
    """The settings that differ, or that one of both does not have."""
    both = {key: (one.get(key, UNSET), two.get(key, UNSET)) for key in sorted({*one, *two})}
    return {key: values for key, values in both.items() if not _alike(*values)}


def differing_tokens(one: Settings, two: Settings) -> list[int]:
    """The numbers of tokens that mean something else in the other's settings: an input that has them may tell.

    >>> differing_tokens({"pad_token_id": 3, "eos_token_id": [1, 2]}, {"pad_token_id": 0, "eos_token_id": [1, 2]})
    [0, 3]
    """
    apart = [key for key in _unlike(one, two) if key.endswith(TOKEN)]
    return sorted(
        {
            number
            for settings_of_one in (one, two)
            for key in apart
            for number in _whole(settings_of_one.get(key))
            if number >= 0
        }
    )


def tokens_computed_with(one: nn.Module, two: nn.Module) -> dict[str, tuple[Any, Any]]:
    """The token numbers that differ and that a forward pass of one of the modules names: they may matter for what it
    returns besides the first tensor (the pooled text of CLIP), whose programs alone are compared."""
    settings = settings_of(one) or {}, settings_of(two) or {}
    names = _forward_names(one) | _forward_names(two)
    apart = _unlike(*settings)
    return {key: both for key, both in apart.items() if key.endswith(TOKEN) and key.rpartition(".")[2] in names}


def write_settings(module: nn.Module, state: Mapping[str, torch.Tensor]) -> str:
    """The settings of a module as text, but for those that nothing is computed with: two modules with the same program
    at one size of inputs, the same numbers and the same text are the same function at every size."""
    settings = settings_of(module)
    if settings is None:
        return ""
    names, computed = _forward_names(module), {}
    for key, value in settings.items():
        name = key.rpartition(".")[2]
        if name not in INERT and name not in NUMBERS and (name in names or not name.endswith(TOKEN)):
            computed[key] = value
    return json.dumps([computed, rounded_by_dtype(settings, state)], sort_keys=True, default=str)


def _forward_names(module: nn.Module) -> set[str]:
    """The attributes that are named in `forward` of a module or its parts, and in the methods that it calls."""
    names: set[str] = set()
    for kind in {getattr(type(part), "family", type(part)) for part in module.modules()}:
        read_names, ahead = set[str](), ["forward"]
        while ahead:
            method = getattr(kind, ahead.pop(), None)
            code = getattr(inspect.unwrap(method), "__code__", None) if callable(method) else None
            new = set() if code is None else {*code.co_names} - read_names
            read_names |= new
            ahead += (name for name in new if not name.startswith("warn"))  # these print what they see
        names |= read_names
    return names


def _alike(one: Any, two: Any) -> bool:
    """Equal, or two names of one thing; 1 and 1.0 are one number, and True is another setting."""
    if isinstance(one, str) and isinstance(two, str) and any({one, two} <= names for names in SYNONYMS):
        return True
    if isinstance(one, (list, tuple)) and isinstance(two, (list, tuple)):
        return len(one) == len(two) and all(_alike(a, b) for a, b in zip(one, two, strict=True))
    return isinstance(one, bool) == isinstance(two, bool) and bool(one == two)


def describe(settings: Mapping[str, tuple[Any, Any]]) -> tuple[str, ...]:
    """Each in words.

    >>> describe({"window": (None, UNSET), "layer_types": (["full"] * 40, ["full"] * 39 + ["local"])})
    ('window is null in A, not set in B', 'layer_types[39] is full in A, local in B')
    """
    return tuple(_in_words(key, *values) for key, values in settings.items())


def _in_words(key: str, one: Any, two: Any) -> str:
    """A difference; of lists and texts that look alike where they are cut, the place."""
    words = _short(one), _short(two)
    if words[0] == words[1] and isinstance(one, (list, tuple, str)) and type(one) is type(two):
        place = next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if not _alike(a, b)), None)
        if place is not None:
            return _in_words(f"{key}[{place}]", one[place], two[place])
        return f"{key} has {len(one)} entries in A, {len(two)} in B"
    return f"{key} is {words[0]} in A, {words[1]} in B"


def _short(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def rounded_by_dtype(settings: Settings | None, state: Mapping[str, torch.Tensor]) -> str | None:
    """The type in which a folder asks to be loaded, if that would round some of its numbers."""
    named = None if settings is None else next((settings[key] for key in NUMBERS if settings.get(key)), None)
    kind = getattr(torch, str(named).removeprefix("torch."), None)
    if not isinstance(kind, torch.dtype):
        return None
    for tensor in state.values():
        if not tensor.is_floating_point() or torch.promote_types(tensor.dtype, kind) == kind:
            continue
        if not torch.equal(tensor.to(kind).to(tensor.dtype), tensor):
            return str(kind).removeprefix("torch.")
    return None


def telling_lengths(one: Settings, two: Settings, tokens: int) -> list[int]:
    """Lengths beyond `tokens` from which some setting may act: one more than each number that could be one.

    >>> telling_lengths({"sliding_window": 16, "layer_types": ["a"]}, {"sliding_window": 16, "layer_types": ["b"]}, 8)
    [17]
    """
    numbers = set()
    open_ones = differing(one, two)
    for settings in (one, two):
        for key, value in settings.items():
            if key in open_ones or any(word in key for word in OF_LENGTH):
                numbers |= {number + 1 for number in _whole(value) if number >= tokens}
    return sorted(numbers)


def _whole(value: Any) -> Iterator[int]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _whole(item)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value
