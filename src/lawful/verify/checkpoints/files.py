"""The tensors that a certificate of a copy speaks of, made one by one: as a file has them, joined, cut, constant.

Every number of the file has to be in them. Nothing is kept: a tensor is made again whenever it is asked for.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lawful.errors import CertificateError, NotACertificate
from lawful.verify.core.checkpoint import Array, Shapes
from lawful.verify.core.schema import integer, integers, items, number, object_with_keys, require, truth

Source = str | dict[str, Any]
Taken = dict[str, list[Any]]  # for each tensor of a file, the rows that were taken, None for all


def read_sources(value: object) -> dict[str, tuple[Source, Source]]:
    """For each tensor of the common form, the tensor of each file that it is, or how it is made of some."""
    pairs: dict[str, tuple[Source, Source]] = {}
    for item in items(value, "tensors", most=1_000_000):
        name, *sources = items(item, "tensors", length=3)
        if not isinstance(name, str) or not all(isinstance(part, (str, dict)) for part in sources):
            raise NotACertificate("tensors: expected a name and two sources")
        require(name not in pairs, "a tensor is named twice")
        pairs[name] = (sources[0], sources[1])
    return pairs


def need_one_reading(
    sources: Mapping[str, tuple[Source, Source]], first: Collection[str], second: Collection[str]
) -> None:
    """A tensor that both files have plays one part: otherwise files in which two tensors are exchanged would be equal.

    And it plays no other tensor's part: the program reads tensors of the form by their names, so two that are exchanged
    in both files alike are another function of the model. Sources may differ where the files name their tensors
    differently, and where one file lacks a tensor that is tied to another: then that other one also stands for itself.
    """
    plain = {name for one, two in sources.values() if one == two for name in _names(one)}
    for form, (one, two) in sources.items():
        shared = [name for name in _names(one) if name in second], [name for name in _names(two) if name in first]
        apart = one != two and any(shared)
        tied = isinstance(one, str) and isinstance(two, str) and not all(shared) and plain >= {*shared[0], *shared[1]}
        require(not apart or tied, "a tensor that both files have plays different parts in them")
        for source, file in ((one, first), (two, second)):
            require(form not in file or source == form, "a tensor of a file plays the part of another one")


def _names(source: Source) -> list[str]:
    """The tensors of a file that one is made of."""
    parts = [source] if isinstance(source, str) else items(source.get("parts", []), "tensors", most=64)
    return [part for part in parts if isinstance(part, str)]


class FormTensors:
    """The tensors of the common form in one file."""

    def __init__(self, file: Mapping[str, Array], stored: Shapes, sources: Mapping[str, Source]) -> None:
        self.file, self.stored, self.sources = file, stored, sources
        self.shapes: Shapes = {}
        self._check()

    def make(self, name: str, taken: Taken | None = None) -> Array:
        """One of them, in float64."""
        source, taken = self.sources[name], {} if taken is None else taken
        if isinstance(source, str):
            require(source in self.stored, "a tensor of the certificate is not in the file")
            taken.setdefault(source, []).append(None)
            return np.asarray(self.file[source], dtype=np.float64)
        if "constant" in source:
            parts = object_with_keys(source, "tensors", "constant shape")
            shape = tuple(integers(parts["shape"], "tensors", 1, 10**9, most=8))
            require(math.prod(shape) <= self._room(), "a constant tensor is larger than the file")
            return np.full(shape, number(parts["constant"], "tensors"))
        return self._join(object_with_keys(source, "tensors", "parts axis transposed rows"), taken)

    @property
    def constants(self) -> set[str]:
        """The tensors that are constants of the certificate and no numbers of the file."""
        return {name for name, source in self.sources.items() if isinstance(source, dict) and "constant" in source}

    def _room(self) -> int:
        return 4 * sum(math.prod(shape) for shape in self.stored.values()) + 1_000

    def _check(self) -> None:
        taken: Taken = {}
        room = self._room()
        for name in self.sources:
            array = self.make(name, taken)
            room -= array.size
            require(room >= 0, "the tensors of a file are used too often")
            require(bool(np.isfinite(array).all()), "a file holds numbers that are not finite")
            self.shapes[name] = array.shape
        for key, shape in self.stored.items():
            require(key in taken, "a file holds tensors that the certificate does not speak of")
            if None not in taken[key]:
                count = shape[taken[key][0][0]] if shape else 1
                rows = np.unique(np.concatenate([rows for _, rows in taken[key]]))
                same_axis = len({axis for axis, _ in taken[key]}) == 1
                require(same_axis and len(rows) == count, "a file holds rows that the certificate does not speak of")

    def _join(self, parts: dict[str, Any], taken: Taken) -> Array:
        """Tensors (or so many zeros) joined along an axis, then rows of that."""
        turned = truth(parts["transposed"], "tensors")
        pieces: list[Array] = []
        owners: list[tuple[str | None, int]] = []
        axis = integer(parts["axis"], "tensors", 0, 8)
        listed = items(parts["parts"], "tensors", most=64)
        # before anything is made: 64 runs of a million zeros are a line of the certificate and gigabytes of rows
        joined_size = sum(
            math.prod(self.stored.get(part, ())) if isinstance(part, str) else integer(part, "tensors", 1, 1_000_000)
            for part in listed
        )
        require(joined_size <= self._room(), "the tensors of a file are used too often")
        for part in listed:
            if isinstance(part, str):
                require(part in self.stored, "a tensor of the certificate is not in the file")
                piece = np.asarray(self.file[part], dtype=np.float64)
                require(
                    axis < max(piece.ndim, 1) and (not turned or piece.ndim == 2), "a tensor is joined along no axis"
                )
                pieces.append(piece.T if turned else piece)
            else:
                pieces.append(np.zeros(part))
            owners += [(part if isinstance(part, str) else None, row) for row in range(pieces[-1].shape[axis])]
        shapes = {tuple(n for d, n in enumerate(piece.shape) if d != axis) for piece in pieces}
        require(len(shapes) == 1, "tensors that are joined do not fit each other")
        joined = np.concatenate(pieces, axis)
        count = len(owners)
        rows = range(count) if parts["rows"] is None else integers(parts["rows"], "tensors", 0, count - 1)
        require(len(set(rows)) == len(rows), "a row is taken twice")
        places: dict[str, list[int]] = {}
        for row in rows:
            owner, place = owners[row]
            if owner is not None:
                places.setdefault(owner, []).append(place)
        for owner, picked in places.items():
            taken.setdefault(owner, []).append((1 - axis if turned else axis, np.array(picked)))
        return np.take(joined, np.array(rows, dtype=int), axis)


# The settings of two folders whose numbers are compared: a certificate names them, and they may differ in little.
#
# Equal numbers are equal functions only in one architecture. What a folder states of it (`config.json`) is compared
# here, key by key: a difference in anything that a forward pass may compute with rejects the certificate, and so does
# a folder that computes with more than its settings (code of its own, quantisation).

# Names, versions, the start of training, what is returned beside the outputs, and how answers are sampled.
WITHOUT_EFFECT = {"_name_or_path", "name_or_path", "transformers_version", "_commit_hash", "tokenizer_class",
                  "finetuning_task", "task_specific_params", "problem_type", "prefix", "architectures", "id2label",
                  "label2id", "initializer_range", "initializer_factor", "initializer_std", "init_std", "_fast_init",
                  "drop_path_rate", "layerdrop", "encoder_layerdrop", "decoder_layerdrop", "dropout_rate",
                  "gradient_checkpointing", "router_aux_loss_coef", "router_z_loss_coef", "use_cache",
                  "output_attentions", "output_hidden_states", "return_dict", "use_return_dict", "max_length",
                  "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty",
                  "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
                  "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "remove_invalid_values",
                  "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens"}  # fmt: skip
ENDINGS = ("dropout", "dropout_prob", "pdrop")
# These have an effect in some architectures: whoever made the certificate has compared what both compute.
UNCHECKED = ("dtype", "torch_dtype", "tie_word_embeddings", "tie_encoder_decoder")
TOKENS = ("token_id", "token_ids", "token_index")
SYNONYMS = ({"silu", "swish"},)  # two names of one activation
MORE = {"auto_map": "has code of its own", "quantization_config": "is quantised when it is loaded",
        "transformers_weights": "names a file of weights that may be another one"}  # fmt: skip


ABSENT = object()


def settings_digest(settings: Mapping[str, Any] | None) -> str | None:
    """Names the settings of a folder."""
    if settings is None:
        return None
    text = json.dumps(settings, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return f"settings:{hashlib.sha256(text.encode()).hexdigest()}"


def check_settings(bound: object, files: Sequence[Any]) -> dict[str, list[str]] | None:
    """Keys whose values differ without effect, as far as is known, or stand in one folder alone; None without folders.

    The certificate is rejected if the settings differ in what may matter.
    """
    both = [getattr(file, "settings", None) for file in files]
    if bound is not None:
        stated = items(bound, "settings", length=2)
        for name, settings in zip(stated, both, strict=True):
            right = name is None or name == settings_digest(settings)
            require(right, "the settings are not those that it is about: give the folders as they were")
    for settings in both:
        for key, words in MORE.items():
            if settings is not None and settings.get(key) not in (None, {}, "model.safetensors"):
                raise CertificateError(f"a folder {words} ({key}): its function is not known")
    if None in both:
        return None
    one, two = (dict(_flat(settings or {})) for settings in both)
    # A key that one folder lacks has the default of its architecture there, which null need not be.
    apart = [key for key in sorted({*one, *two}) if one.get(key, ABSENT) != two.get(key, ABSENT)]
    unchecked = [key for key in apart if _name(key) in UNCHECKED or key.endswith(TOKENS)]
    inert = [key for key in apart if key in unchecked or _without_effect(key, one.get(key), two.get(key))]
    for key in apart:
        if key not in inert and key in one and key in two:
            raise CertificateError(
                f"the settings of the folders differ in {key}: equal numbers are not equal functions"
            )
    return {"apart": inert, "unchecked": unchecked, "alone": [key for key in apart if key not in inert]}


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their path; those of a part (`text_config`) one by one. A name with dots is put in quotes."""
    for key, value in settings.items():
        name = key if re.fullmatch(r"\w[\w-]*", key) else json.dumps(key)
        if isinstance(value, Mapping) and value and key not in WITHOUT_EFFECT:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _name(path: str) -> str:
    return path.rpartition(".")[2]


def _without_effect(key: str, one: Any, two: Any) -> bool:
    """Whether no forward pass computes with it, or both values are names of one thing."""
    named = isinstance(one, str) and isinstance(two, str) and any({one, two} <= names for names in SYNONYMS)
    return named or _name(key) in WITHOUT_EFFECT or key.endswith(ENDINGS)
