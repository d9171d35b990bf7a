"""Is this rewrite lossless? Rewritings of real kinds are equal with their folds named, forgotten steps different."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints.conftest import same_by_weights as same
from checkpoints.models import make
from checkpoints.rewrites import (
    HEADS,
    INNER,
    LAYERS,
    LENGTH,
    VOCABULARY,
    WIDTH,
    FlashLlama,
    FoldedNetwork,
    SplitGpt,
    flashed,
    loaded,
    sliced,
    split,
    without_dead_biases,
    without_statistics,
)
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

from lawful import align
from lawful.checkpoints.compare.certificate import copy_certificate
from lawful.checkpoints.compare.decide import CheckpointVerdict
from lawful.checkpoints.opening import CheckpointPair, open_both
from lawful.checkpoints.verdict import decide
from lawful.errors import CertificateError, InvalidNetwork
from lawful.verify import verify
from lawful.verify.core.checkpoint import tensors_digest

Made = Callable[[], tuple[nn.Module, nn.Module]]
GPT, LLAMA, IMAGE = "3:int", "3:int", "3,8,8"


def gpts(family: str = "gpt", rewritten: Callable[[Any], Any] = split, **options: Any) -> tuple[nn.Module, nn.Module]:
    one = make(family)
    return one, loaded(SplitGpt(**options), rewritten(one))


LOSSLESS: dict[str, tuple[Made, str, str]] = {
    "split queries": (lambda: gpts(), GPT, "as blocks.0.qkv.weight"),
    "untied head": (lambda: gpts("gpt-tied"), GPT, "tied, as wte.weight and lm.weight"),
    "dead biases": (
        lambda: gpts("gpt", lambda g: without_dead_biases(split(g)), keys=False, values=False),
        GPT,
        "",
    ),
    "RMSNorm after centring": (
        lambda: gpts("gpt", lambda g: sliced(split(g)), bare=True),
        GPT,
        "LayerNorm as RMSNorm of centred values",
    ),
    "and what reads it centred": (
        lambda: gpts("gpt-tied", lambda g: sliced(split(g), readers=True), bare=True),
        GPT,
        "LayerNorm as RMSNorm of centred values",
    ),
    "FlashNorm": (
        lambda: ((one := make("llama")), loaded(FlashLlama(), flashed(one))),
        LLAMA,
        "blocks.0.first.weight into blocks.0.qkv.weight",
    ),
    "BatchNorm": (
        lambda: ((one := make("resnet")), loaded(FoldedNetwork(), without_statistics(one))),
        IMAGE,
        "norm.weight and statistics into stem.weight",
    ),
}
FORGOTTEN: dict[str, tuple[Made, str, tuple[str, ...]]] = {
    "the bias of values": (
        lambda: gpts("gpt", lambda g: without_dead_biases(split(g), forgotten=True), keys=False, values=False),
        GPT,
        ("out.bias", "o.bias"),
    ),
    "the rotation of the head": (
        lambda: gpts("gpt", lambda g: sliced(split(g), forgotten="head"), bare=True),
        GPT,
        ("lm.weight",),
    ),
    "an offset of LayerNorm": (
        lambda: gpts("gpt", lambda g: sliced(split(g), forgotten="fc offset"), bare=True),
        GPT,
        ("fc.bias",),
    ),
    "the mean of a bias": (
        lambda: gpts("gpt", lambda g: sliced(split(g), forgotten="o centring"), bare=True),
        GPT,
        ("o.bias",),
    ),
    "the gain of values": (
        lambda: ((one := make("llama")), loaded(FlashLlama(), flashed(one, "v"))),
        LLAMA,
        ("qkv.weight", "v.weight"),
    ),
    "a mean of BatchNorm": (
        lambda: ((one := make("resnet")), loaded(FoldedNetwork(), without_statistics(one, forgotten="stem"))),
        IMAGE,
        ("stem.bias", "norm.bias"),
    ),
}


@cache
def decision(which: str, turned: bool = False) -> tuple[tuple[nn.Module, ...], CheckpointPair, CheckpointVerdict]:
    """The two modules (B and then A if turned), the form in which they are compared, and the verdict."""
    modules = LOSSLESS[which][0]()[:: -1 if turned else 1]
    pair = open_both(*modules, input=LOSSLESS[which][1])
    assert isinstance(pair, CheckpointPair)
    return modules, *decide(pair)


@pytest.mark.parametrize("which", LOSSLESS)
def test_lossless_rewritings_are_equal_and_say_what_was_rewritten(which: str) -> None:
    said = []
    for turned in (False, True):
        _, found, verdict = decision(which, turned)
        assert verdict.verdict == "equal", verdict.reason
        assert found.rewritten or verdict.comparison.architecture.virtual
        said.append(" ".join(found.rewritten))
    assert any(LOSSLESS[which][2] in words for words in said)


@pytest.mark.parametrize("which", FORGOTTEN)
def test_a_forgotten_step_is_different_and_its_tensor_is_named(which: str) -> None:
    modules, size, names = FORGOTTEN[which][0](), *FORGOTTEN[which][1:]
    verdict = same(*modules, input=size)
    assert verdict.verdict == "different"
    assert any(name in verdict.reason for name in names), verdict.reason


def test_gpt_2_of_transformers_is_its_rewriting() -> None:
    """Conv1D with fused queries, tied head and looked-up positions, against linear layers and a table of positions."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"n_layer": LAYERS, "n_head": HEADS, "n_embd": WIDTH, "n_positions": LENGTH, "vocab_size": VOCABULARY}
    config = transformers.GPT2Config(n_inner=INNER, activation_function="gelu", bos_token_id=0, eos_token_id=0, **sizes)

    class Logits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gpt = transformers.GPT2LMHeadModel(config)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.gpt(x, use_cache=False).logits

    one = Logits().eval()
    with torch.no_grad():
        for tensor in one.parameters():
            if tensor.ndim == 1:
                tensor.add_(0.2 * torch.randn_like(tensor))
    given = {name.removeprefix("gpt.transformer."): tensor for name, tensor in one.state_dict().items()}
    found = {"wte.weight": given["wte.weight"], "wpe": given["wpe.weight"], "lm.weight": given["wte.weight"]}
    for end in ("weight", "bias"):
        found[f"nf.{end}"] = given[f"ln_f.{end}"]
        for layer in range(LAYERS):
            joined = given[f"h.{layer}.attn.c_attn.{end}"]
            joined = joined.T if joined.ndim == 2 else joined
            for part, rows in zip("qkv", joined.chunk(3), strict=True):
                found[f"h.{layer}.{part}.{end}"] = rows
            for mine, theirs in (
                ("n1", "ln_1"),
                ("n2", "ln_2"),
                ("o", "attn.c_proj"),
                ("fc", "mlp.c_fc"),
                ("pr", "mlp.c_proj"),
            ):
                tensor = given[f"h.{layer}.{theirs}.{end}"]
                found[f"h.{layer}.{mine}.{end}"] = tensor.T if tensor.ndim == 2 else tensor
    weights = {name: tensor.clone() for name, tensor in found.items()}
    verdict = same(one, loaded(SplitGpt(), weights), input=GPT)
    assert (verdict.verdict, verdict.within, verdict.epsilon) == ("equal", "weight by weight", 0.0)
    assert same(one, loaded(SplitGpt(bare=True), sliced(weights)), input=GPT).verdict == "equal"
    forgotten = sliced(weights, forgotten="head")
    verdict = same(one, loaded(SplitGpt(bare=True), forgotten), input=GPT)
    assert verdict.verdict == "different"


# Certificates


def certified(which: str) -> tuple[dict[str, Any], list[dict[str, np.ndarray]]]:
    modules, *decided = decision(which)
    files = [
        {name: tensor.double().numpy() for name, tensor in each.state_dict().items() if tensor.is_floating_point()}
        for each in modules
    ]
    for file, module in zip(files, modules, strict=True):  # a file holds a tied tensor once
        for name in set(file) - {*dict(module.named_parameters()), *dict(module.named_buffers())}:
            del file[name]
    return copy_certificate(*decided), files


@pytest.mark.parametrize("which", LOSSLESS)
def test_the_verifier_does_the_folds_again_on_the_files(which: str) -> None:
    certificate, files = certified(which)
    assert verify(json.dumps(certificate), *files).facts["entry"] < 1e-6


def test_forged_rewritings_are_rejected() -> None:
    certificate, files = certified("RMSNorm after centring")

    def rejected(change: Callable[[dict[str, Any]], object], match: str) -> None:
        forged = json.loads(json.dumps(certificate))
        change(forged)
        with pytest.raises(CertificateError, match=match):
            verify(json.dumps(forged), *files)

    def named(forged: dict[str, Any], part: str) -> list[Any]:
        return next(each for each in forged["tensors"] if each[0].endswith(part))

    rejected(lambda f: f["tensors"].remove(named(f, "lm.weight")), "speak of|names no|not in")
    rejected(lambda f: named(f, "0.q.weight")[1].update(rows=list(range(7))), "rows|sizes")
    rejected(lambda f: named(f, "0.q.weight")[1].update(rows=[0] * 8), "taken twice")
    rejected(lambda f: named(f, "centring)")[1].update(constant=0.5), "once or not at all")
    rejected(lambda f: named(f, "centring)")[1].update(shape=[10**6, 10**3]), "larger than the file")
    offset = next(f for f in certificate["folds"] if f["fold"] == "gain" and f["offset"])
    rejected(
        lambda f: f["folds"].append({**offset, "gain": None, "readers": [{**offset["readers"][0], "bias": None}]}),
        "folded into nothing",
    )


def test_what_is_left_out_as_dead_is_said() -> None:
    """A forger may call anything dead: the statement then says so, and how much of it there is."""
    modules, *decided = decision("dead biases", turned=True)
    certificate = copy_certificate(*decided)
    files = [{n: t.double().numpy() for n, t in each.state_dict().items()} for each in modules]
    honest = verify(json.dumps(certificate), *files)
    certificate["folds"].append(
        {"fold": "drop", "tensor": next(t for t, *_ in certificate["tensors"] if t in ("wte.weight", "token.weight"))}
    )
    forged = verify(json.dumps(certificate), *files)
    assert forged.facts["dropped"] >= honest.facts["dropped"] + files[0]["wte.weight"].size
    assert "left out as dead" in forged.statement


def test_a_changed_file_is_not_the_certified_one() -> None:
    certificate, files = certified("FlashNorm")
    files[1]["blocks.0.gated.weight"][3, 1] += 0.1
    with pytest.raises(CertificateError, match="explains"):
        verify(json.dumps(certificate), *files)
    certificate["about"][1] = tensors_digest(files[1])
    with pytest.raises(CertificateError, match="explains"):
        verify(json.dumps(certificate), *files)


# Other verbs, and the command line


def test_align_writes_b_in_the_form_of_a() -> None:
    one, two = gpts()
    found = align(one, two, input=GPT)
    assert torch.equal(found.weights["blocks.0.qkv.weight"], one.blocks[0].qkv.weight)
    assert found.after < 1e-6


def test_modules_that_share_nothing_are_refused_or_different() -> None:
    with pytest.raises(InvalidNetwork, match="different architectures"):
        align(make("gpt"), make("llama"), input=GPT)
    assert same(make("gpt"), make("llama"), input=GPT).verdict == "different"


def test_the_command_line_takes_a_model_for_each_side(lawful: Any, tmp_path: Any) -> None:
    one, two = gpts("gpt", lambda g: sliced(split(g)), bare=True)
    files = [str(tmp_path / name) for name in ("a.safetensors", "b.safetensors")]
    for module, file in zip((one, two), files, strict=True):
        save_file({name: tensor.contiguous() for name, tensor in module.state_dict().items()}, file)
    models = ["--model", "checkpoints.models:gpt", "--model-b", "checkpoints.rewrites:bare_gpt", "--input", GPT]
    proof = str(tmp_path / "copy.json")
    run = lawful("same", *files, *models, "--certificate", proof, "--json", code=0)
    found = json.loads(run.stdout)
    assert found["verdict"] == "equal"
    assert "LayerNorm as RMSNorm of centred values" in found["rewritten"]
    checked = lawful("verify", proof, *files, code=0)
    assert "joined or cut" in checked.stdout
    assert "rewritten: " in lawful("same", *files, *models, code=0).stdout


class Attended(nn.Module):
    """One attention after a LayerNorm, and the same without gain, offset, biases of keys and values.

    Positions are turned by a table that is made of a buffer, which no file holds, in one of them.
    """

    def __init__(self, *, bare: bool) -> None:
        super().__init__()
        self.bare, self.table = bare, nn.Embedding(20, 8)
        self.norm = nn.LayerNorm(8, elementwise_affine=not bare)
        if bare:
            self.query, self.key, self.value = (nn.Linear(8, 8, bias=first) for first in (True, False, False))
        else:
            self.register_buffer("steps", torch.arange(5.0), persistent=False)
            self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = torch.arange(5).to(self.table.weight) if self.bare else self.steps
        x = self.table(x) + (steps / 5).sin()[:, None]
        y = self.norm(x)
        given = (self.query(y), self.key(y), self.value(y)) if self.bare else self.qkv(y).chunk(3, -1)
        q, k, v = (each.unflatten(-1, (2, 4)).transpose(1, 2) for each in given)
        read = functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(read.transpose(1, 2).flatten(2))


def test_an_offset_goes_through_biases_that_were_removed() -> None:
    """The offset of a norm adds to the biases of keys, which are dead, and of values, which are in the output."""
    torch.manual_seed(3)
    whole, bare = Attended(bare=False).eval(), Attended(bare=True).eval()
    with torch.no_grad():
        gain, offset = whole.norm.weight.add_(0.3 * torch.randn(8)), whole.norm.bias.add_(torch.randn(8))
        weight, bias = whole.qkv.weight * gain, whole.qkv.bias + whole.qkv.weight @ offset
        for number, layer in enumerate((bare.query, bare.key, bare.value)):
            layer.weight.copy_(weight[8 * number : 8 * number + 8])
        bare.query.bias.copy_(bias[:8])
        bare.table.weight.copy_(whole.table.weight)
        bare.out.weight.copy_(whole.out.weight)
        bare.out.bias.copy_(whole.out.bias + whole.out.weight @ bias[16:])
    pair = open_both(whole, bare, input="5:int")
    assert isinstance(pair, CheckpointPair)
    pair, found = decide(pair)
    assert found.verdict == "equal"
    files = [{name: tensor.detach().double().numpy() for name, tensor in each.state_dict().items()}
             for each in (whole, bare)]  # fmt: skip
    assert verify(json.dumps(copy_certificate(pair, found)), *files).facts["folds"] > 0
    with torch.no_grad():
        bare.out.bias.copy_(whole.out.bias + whole.out.weight @ whole.qkv.bias[16:])
    forgotten = same(whole, bare, input="5:int")
    assert forgotten.verdict == "different"
    assert "out.bias" in forgotten.reason
