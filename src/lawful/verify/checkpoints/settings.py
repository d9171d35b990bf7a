"""The settings of two folders whose numbers are compared: a certificate names them, and they may differ in little.

Equal numbers are equal functions only in one architecture. What a folder states of it (`config.json`) is compared here,
key by key: a difference in anything that a forward pass may compute with rejects the certificate, and so does a folder
that computes with more than its settings (code of its own, quantisation).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lawful.errors import CertificateError
from lawful.verify.core.schema import items, require

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


def check_settings(bound: object, files: Sequence[Any]) -> str:
    """What is known of the settings of both files, in words; rejected if they differ in what may matter."""
    both = [getattr(file, "settings", None) for file in files]
    if bound is not None:
        stated = items(bound, "settings", length=2)
        for name, each in zip(stated, both, strict=True):
            right = name is None or name == settings_digest(each)
            require(right, "the settings are not those that it is about: give the folders as they were")
    for each in both:
        for key, words in MORE.items():
            if each is not None and each.get(key) not in (None, {}, "model.safetensors"):
                raise CertificateError(f"a folder {words} ({key}): its function is not known")
    if None in both:
        return ""
    one, two = (dict(_flat(each or {})) for each in both)
    # A key that one folder lacks has the default of its architecture there, which null need not be.
    apart = [key for key in sorted({*one, *two}) if one.get(key, ABSENT) != two.get(key, ABSENT)]
    if not apart:
        return ". Both folders have the same settings"
    unchecked = [key for key in apart if _name(key) in UNCHECKED or key.endswith(TOKENS)]
    inert = [key for key in apart if key in unchecked or _without_effect(key, one.get(key), two.get(key))]
    for key in apart:
        if key not in inert and key in one and key in two:
            raise CertificateError(
                f"the settings of the folders differ in {key}: equal numbers are not equal functions"
            )
    alone = [key for key in apart if key not in inert]
    found = f". The settings of both folders are the same but for {_listed(inert)}" if inert else ""
    if unchecked:
        found += f". Not checked: that the difference in {_listed(unchecked)} has no effect here"
    if alone:
        found += f". Not checked: that {_listed(alone)}, which only one folder states, is what the other takes"
    return found


def _listed(keys: Sequence[str]) -> str:
    """The first ten, and how many more there are: none is left out in silence."""
    more = f" and {len(keys) - 10} more" if len(keys) > 10 else ""
    return ", ".join(key[:60] for key in keys[:10]) + more


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
