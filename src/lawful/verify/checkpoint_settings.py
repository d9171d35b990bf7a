"""The settings of two folders whose numbers are compared: a certificate names them, and they may differ in little.

Equal numbers are equal functions only in one architecture. What a folder states of it (`config.json`) is compared here,
key by key: a difference in anything that a forward pass may compute with rejects the certificate, and so does a folder
that computes with more than its settings (code of its own, quantisation).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from lawful.errors import CertificateError
from lawful.verify.schema import listed, need

WITHOUT_EFFECT = {"_name_or_path", "transformers_version", "architectures", "dtype", "torch_dtype", "use_cache",
                  "id2label", "label2id", "initializer_range", "initializer_factor", "output_attentions",
                  "output_hidden_states", "return_dict", "tie_word_embeddings", "hidden_act", "hidden_activation",
                  "activation_function"}  # fmt: skip
ENDINGS = ("dropout", "dropout_prob", "pdrop", "token_id", "token_ids")
MORE = {"auto_map": "has code of its own", "quantization_config": "is quantised when it is loaded"}


def settings_digest(settings: Mapping[str, Any] | None) -> str | None:
    """Names the settings of a folder."""
    if settings is None:
        return None
    text = json.dumps(settings, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return f"settings:{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def check_settings(bound: object, files: Sequence[Any]) -> str:
    """What is known of the settings of both files, in words; rejected if they differ in what may matter."""
    both = [getattr(file, "settings", None) for file in files]
    if bound is not None:
        stated = listed(bound, "settings", length=2)
        for name, each in zip(stated, both, strict=True):
            right = name is None or name == settings_digest(each)
            need(right, "the settings are not those that it is about: give the folders as they were")
    for each in both:
        for key, words in MORE.items():
            if each is not None and each.get(key):
                raise CertificateError(f"a folder {words} ({key}): its function is not known")
    one, two = both
    if one is None or two is None:
        return ""
    apart = [key for key in sorted({*one, *two}) if one.get(key) != two.get(key)]
    inert = [key for key in apart if key in WITHOUT_EFFECT or key.endswith(ENDINGS)]
    for key in apart:
        if key not in inert and key in one and key in two:
            raise CertificateError(
                f"the settings of the folders differ in {key}: equal numbers are not equal functions"
            )
    if not apart:
        return ". Both folders have the same settings"
    alone = [key for key in apart if key not in inert]
    found = f". The settings of both folders are the same but for {', '.join(inert)[:160]}" if inert else ""
    if alone:
        found += f". Not checked: that {', '.join(alone)[:160]}, which only one folder states, is what the other takes"
    return found
