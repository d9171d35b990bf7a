"""Attention of whole modules: heads and inner channels that leave, what must stay, and certificates of it."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from lawful.errors import CertificateError
from lawful.pruning.channels import ChannelPruning, prune_channels
from lawful.pruning.channels.certificate import certificate
from lawful.verify import verify

TOKENS = torch.randint(0, 20, (2, 5), generator=torch.Generator().manual_seed(0))


class Attending(nn.Module):
    """One attention with heads in groups, a pair of layers with nothing between, and a head."""

    def __init__(self, *, width: int = 12, heads: int = 4, groups: int = 4, inner: int = 4, bias: bool = True) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.num_kv_heads, self.scale = heads, inner, groups, 0.5
        self.query, self.key = nn.Linear(width, heads * inner, bias), nn.Linear(width, groups * inner, bias)
        self.value, self.out = nn.Linear(width, groups * inner, bias), nn.Linear(heads * inner, width, bias)
        self.up, self.down, self.last = nn.Linear(width, 10, bias), nn.Linear(10, width, bias), nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        size = (*x.shape[:2], -1, self.head_dim)
        query, key, value = (part(x).view(size).transpose(1, 2) for part in (self.query, self.key, self.value))
        seen = functional.scaled_dot_product_attention(
            query, key, value, scale=self.scale, enable_gqa=self.num_heads != self.num_kv_heads
        )
        x = x + self.out(seen.transpose(1, 2).reshape(*x.shape[:2], -1))
        return self.last(torch.tanh(x + self.down(self.up(x))))


@torch.no_grad()
def dyadic(model: nn.Module, seed: int = 0) -> Any:
    """Weights that add and multiply without rounding."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in model.parameters():
        tensor.copy_(torch.randint(-8, 9, tensor.shape, generator=generator) / 32)
    return model.eval()


@torch.no_grad()
def same(model: nn.Module, found: ChannelPruning, *inputs: Tensor, room: float = 1e-5) -> None:
    """In float64 at other inputs; then the certificate."""
    one, two = (copy.deepcopy(each).eval().double()(*inputs) for each in (model, found.module))
    one, two = (each[0] if not isinstance(each, Tensor) else each for each in (one, two))
    assert float((one - two).abs().max()) <= room * float(one.abs().max())
    stated = verify(certificate(found))
    assert f"{len(found.removed)} of {found.channels_before} hidden channels" in str(stated)


def kinds(found: ChannelPruning) -> Counter[str]:
    return Counter(gone.kind for gone in found.removed)


MIX = torch.tensor([1.0, -1.0, 0.5])


@torch.no_grad()
def lower_rank(layer: nn.Linear, start: int) -> None:
    """The fourth row is a sum of the three before it."""
    layer.weight[start + 3] = MIX @ layer.weight[start : start + 3]
    if layer.bias is not None:
        layer.bias[start + 3] = MIX @ layer.bias[start : start + 3]


@pytest.mark.parametrize("groups", [4, 2])
@pytest.mark.parametrize("sides", ["value query", "out key", "value key", "out query"])
@torch.no_grad()
def test_pairs_of_lower_rank_lose_inner_channels(sides: str, groups: int) -> None:
    model = dyadic(Attending(groups=groups, bias="key" in sides), seed=groups)
    each = 4 // groups
    for group in range(groups):
        if "value" in sides:
            lower_rank(model.value, 4 * group)
        if "key" in sides:
            lower_rank(model.key, 4 * group)
        for head in range(each * group, each * (group + 1)):
            if "out" in sides:
                model.out.weight[:, 4 * head + 3] = model.out.weight[:, 4 * head : 4 * head + 3] @ MIX
            if "query" in sides:
                lower_rank(model.query, 4 * head)
    lower_rank(model.up, 0)
    found = prune_channels(model, [(2, 6, 12)])
    small = found.module
    assert small.head_dim == 3
    assert small.query.out_features == 12
    assert small.value.out_features == 3 * groups
    assert small.up.out_features == 9
    assert set(kinds(found)) == {"dependent"}
    same(model, found, torch.randn(3, 7, 12, dtype=torch.float64))


@torch.no_grad()
def test_heads_leave_whole_or_not_at_all() -> None:
    model = dyadic(Attending())
    model.out.weight[:, 4:8] = 0.0  # nobody hears head 1
    for layer in (model.query, model.key, model.value):  # head 3 is head 0 with its inner channels in another order
        layer.weight[12:16], layer.bias[12:16] = layer.weight[[3, 2, 1, 0]], layer.bias[[3, 2, 1, 0]]
    model.query.weight[12:16] *= 4.0
    model.query.bias[12:16] *= 4.0
    model.key.weight[12:16] /= 4.0
    model.key.bias[12:16] /= 4.0
    model.value.weight[8], model.value.bias[8] = 0.0, 0.0  # one channel of head 2 stays: all heads have one size
    found = prune_channels(model, [(2, 6, 12)])
    assert found.module.query.out_features == found.module.out.in_features == 8
    assert found.module.num_heads == 2
    assert kinds(found)["duplicate"] == 4
    same(model, found, torch.randn(3, 7, 12, dtype=torch.float64))


@torch.no_grad()
def test_a_bias_of_keys_is_not_seen_and_a_zero_query_neither() -> None:
    model = dyadic(Attending())
    for head in range(4):
        if head % 2:
            model.key.weight[4 * head + 1] = 0.0  # a key that is the same everywhere
        else:
            model.query.weight[4 * head], model.query.bias[4 * head] = 0.0, 0.0
        model.out.weight[:, 4 * head + 2] = 0.0
    found = prune_channels(model, [(2, 6, 12)])
    assert found.module.head_dim == 3
    assert kinds(found) == {"unscored": 8, "silent": 4}
    same(model, found, torch.randn(3, 7, 12, dtype=torch.float64))
    model.query.bias[0] = 0.5  # a query that is the same everywhere is seen
    assert prune_channels(model, [(2, 6, 12)]).module.head_dim == 4


class Masked(Attending):
    """Heads that see different masks, or queries that see nothing."""

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        size = (*x.shape[:2], -1, self.head_dim)
        query, key, value = (part(x).view(size).transpose(1, 2) for part in (self.query, self.key, self.value))
        seen = functional.scaled_dot_product_attention(query, key, value, self.mask, scale=0.5)
        return self.last(self.out(seen.transpose(1, 2).reshape(*x.shape[:2], -1)))


@torch.no_grad()
def test_masks() -> None:
    masks = torch.ones(4, 6, 6, dtype=torch.bool).tril()
    model = dyadic(Masked(masks.clone()))
    model.out.weight[:, 4:8] = 0.0
    assert prune_channels(model, [(2, 6, 12)]).module.value.out_features == 16  # heads differ: none can leave
    model.mask = masks[:1]
    found = prune_channels(model, [(2, 6, 12)])
    assert found.module.value.out_features == 12
    same(model, found, torch.randn(2, 6, 12, dtype=torch.float64))
    for head in range(4):
        model.value.weight[4 * head] = 0.0  # constants, which a query that sees no key does not see
        model.query.weight[4 * head], model.query.bias[4 * head] = 0.0, 0.0
    assert kinds(prune_channels(model, [(2, 6, 12)]))["constant"] > 0
    model.mask = masks[:1] & (torch.arange(6) > 0)[None, :, None]
    found = prune_channels(model, [(2, 6, 12)])
    assert kinds(found)["constant"] == 0
    assert found.module.head_dim == 4


@torch.no_grad()
def random_module(name: str) -> Any:
    """A small transformer of a library, with plants."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if name == "bert":
        config = transformers.BertConfig(
            vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32
        )
        model = transformers.BertModel(config)
    elif name == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=20, n_positions=8, n_embd=16, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=1
        )
        model = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.LlamaConfig(
            vocab_size=20, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=32,
        )  # fmt: skip
        model = transformers.LlamaForCausalLM(config)
    for tensor in model.parameters():
        tensor.normal_().mul_(0.5)
    return model


@torch.no_grad()
def test_bert() -> None:
    model = random_module("bert")
    for layer in model.encoder.layer:
        attention, dense = layer.attention, layer.attention.output.dense
        dense.weight[:, 4:8] = 0.0
        for part in (attention.self.query, attention.self.key, attention.self.value):
            part.weight[12:16], part.bias[12:16] = part.weight[:4], part.bias[:4]
        for head in range(4):
            attention.self.key.weight[4 * head + 1] = 0.0
            dense.weight[:, 4 * head + 2] = 0.0
        layer.intermediate.dense.weight[3] = 0.0
    found = prune_channels(model, [TOKENS])
    first = found.module.encoder.layer[0]
    assert first.attention.self.query.weight.shape == (6, 16)
    assert first.attention.self.attention_head_size == 3
    assert first.intermediate.dense.out_features == 31
    same(model, found, TOKENS.flip(1))


@torch.no_grad()
def test_gpt2_with_packed_and_transposed_weights() -> None:
    model = random_module("gpt2")
    for block in model.transformer.h:
        block.attn.c_proj.weight[4:8] = 0.0
        block.mlp.c_fc.weight[:, 3] = 0.0
        block.mlp.c_fc.weight[:, 5], block.mlp.c_fc.bias[5] = block.mlp.c_fc.weight[:, 6], block.mlp.c_fc.bias[6]
        block.mlp.c_proj.weight[9] = 0.0
    found = prune_channels(model, [TOKENS])
    block = found.module.transformer.h[0]
    assert block.attn.c_attn.weight.shape == (16, 36)
    assert block.attn.num_heads == 3
    assert block.mlp.c_fc.weight.shape == (16, 61)
    assert block.mlp.c_proj.weight.shape == (61, 16)
    same(model, found, TOKENS.flip(1), room=1e-4)


@torch.no_grad()
def test_llama_with_rotary_positions_and_groups() -> None:
    model = random_module("llama")
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight[:, :8] = 0.0
        layer.mlp.gate_proj.weight[3] = 0.0
        layer.mlp.gate_proj.weight[5] = layer.mlp.gate_proj.weight[6]
        layer.mlp.up_proj.weight[5] = 2 * layer.mlp.up_proj.weight[6]
    found = prune_channels(model, [TOKENS])
    layer = found.module.model.layers[1]
    assert layer.self_attn.q_proj.weight.shape == (8, 16)
    assert layer.self_attn.k_proj.weight.shape == (4, 16)
    assert layer.mlp.up_proj.out_features == 30
    same(model, found, TOKENS.flip(1), room=1e-4)


@torch.no_grad()
def test_a_class_that_cannot_hold_fewer_heads_becomes_its_graph() -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    model.self_attn.out_proj.weight[:, 4:8] = 0.0
    model.linear1.weight[3] = 0.0
    found = prune_channels(model, [(2, 5, 16)])
    state = found.module.state_dict()
    assert state["self_attn.in_proj_weight"].shape == (36, 16)
    assert state["linear1.weight"].shape == (31, 16)
    assert "traced graph" in found.notes[0]
    same(model, found, torch.randn(2, 5, 16, dtype=torch.float64))


@torch.no_grad()
def test_layers_in_a_row_shrink_to_the_rank_of_their_rows_or_columns() -> None:
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(6, 30), nn.Linear(30, 20), nn.Linear(20, 4), nn.ReLU(), nn.Linear(4, 2))
    found = prune_channels(model, [(2, 6)])
    assert [part.out_features for part in found.module if isinstance(part, nn.Linear)] == [7, 4, 4, 2]
    same(model, found, torch.randn(5, 6, dtype=torch.float64))


@pytest.mark.parametrize("name", ["neox", "t5", "decoder"])
@torch.no_grad()
def test_other_layouts(name: str) -> None:
    """Packed head by head with partial rotary positions; a bias for each head; attention to something else."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    inputs: list[Any] = [TOKENS]
    if name == "neox":
        config = transformers.GPTNeoXConfig(
            vocab_size=20, hidden_size=32, num_hidden_layers=1, intermediate_size=32, num_attention_heads=4,
            max_position_embeddings=16,
        )  # fmt: skip
        model = transformers.GPTNeoXForCausalLM(config)
        out = [layer.attention.dense for layer in model.gpt_neox.layers]
    elif name == "t5":
        config = transformers.T5Config(vocab_size=20, d_model=16, d_kv=4, d_ff=32, num_layers=1, num_heads=4)
        model = transformers.T5EncoderModel(config)
        out = [block.layer[0].SelfAttention.o for block in model.encoder.block]
    else:
        model = nn.TransformerDecoderLayer(16, 4, 32, batch_first=True)
        out = [model.self_attn.out_proj, model.multihead_attn.out_proj]
        inputs = [torch.randn(2, 5, 16, dtype=torch.float64), torch.randn(2, 7, 16, dtype=torch.float64)]
    for tensor in model.parameters():
        tensor.normal_().mul_(0.4)
    for layer in out:
        layer.weight[:, layer.weight.shape[1] // 4 : layer.weight.shape[1] // 2] = 0.0
    found = prune_channels(model, inputs)
    heads = sum(gone.kind == "silent" for gone in found.removed)
    # T5 has a table of positions for each head; attention to something else takes slices of a packed weight
    assert heads == {"neox": 24, "t5": 0, "decoder": 12}[name]
    same(model, found, *inputs)


@torch.no_grad()
def test_the_config_that_loads_the_smaller_weights() -> None:
    model = random_module("llama")
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight[:, :8] = 0.0
        layer.mlp.down_proj.weight[:, 7] = 0.0
    found = prune_channels(model, [TOKENS])
    assert "num_attention_heads=2, num_key_value_heads=1, intermediate_size=31" in found.notes[-1]
    config = copy.deepcopy(model.config)
    config.num_attention_heads, config.num_key_value_heads, config.intermediate_size = 2, 1, 31
    loaded = type(model)(config)
    loaded.load_state_dict(found.module.state_dict())
    assert torch.allclose(loaded.eval()(TOKENS).logits, found.module.eval()(TOKENS).logits, atol=1e-5)
    model.model.layers[0].mlp.down_proj.weight[:, 9] = 0.0  # layers differ now
    assert "no config" in prune_channels(model, [TOKENS]).notes[-1]


MODULE = """
import torch
from torch import nn


def layer():
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    with torch.no_grad():
        model.self_attn.out_proj.weight[:, 4:8] = 0.0
    return model
"""


def test_the_command_line_writes_graphs(lawful: Any, tmp_path: Any) -> None:
    onnx = pytest.importorskip("onnx")
    (tmp_path / "attending.py").write_text(MODULE)
    options = ("prune", "attending:layer", "--input", "5,16", "--out")
    lawful(*options, tmp_path / "small.onnx", cwd=tmp_path)
    onnx.checker.check_model(onnx.load(tmp_path / "small.onnx"))
    text = lawful(*options, tmp_path / "small.pt2", "--verify", cwd=tmp_path).stdout
    assert "re-checked" in text
    loaded = torch.export.load(tmp_path / "small.pt2").module()
    assert loaded(torch.zeros(2, 5, 16)).shape == (2, 5, 16)


Proof = dict[str, Any]


def attends(proof: Proof) -> dict[str, Any]:
    return next(step for step in proof["program"] if step["kind"] == "attend")


def taking(proof: Proof) -> list[Any]:
    return next(move for move in proof["moves"] if len(move) == 4 and len(move[3]) > 1)


def swap_side(proof: Proof) -> None:
    move = taking(proof)
    move[0] = {"row": "column", "column": "row"}[move[0]]


FORGERIES: list[tuple[str, Callable[[Proof], object]]] = [
    ("another factor", lambda proof: taking(proof)[3][0].__setitem__(1, "7/3")),
    ("a leader less", lambda proof: taking(proof)[3].pop()),
    ("another side", swap_side),
    ("mixed channels", lambda proof: attends(proof)["heads"].update(rotary=True, fixed=True)),
    ("a fixed size", lambda proof: attends(proof)["heads"].update(fixed=True)),
    ("a key twice", lambda proof: attends(proof)["heads"]["keys"][0].__setitem__(0, 1)),
    ("queries that meet other keys", lambda proof: attends(proof)["heads"]["queries"][0][0].reverse()),
    ("values elsewhere", lambda proof: attends(proof)["heads"]["values"].append([0, 1, 2, 3])),
    ("a move less", lambda proof: proof["moves"].pop()),
    ("one channel more that stays", lambda proof: proof["gone"].pop()),
    ("turned", lambda proof: next(s for s in proof["program"] if s["kind"] == "layer").update(transposed=True)),
]


@pytest.mark.parametrize(("name", "edit"), FORGERIES)
@torch.no_grad()
def test_forgeries(name: str, edit: Callable[[Proof], object]) -> None:
    model = dyadic(Attending())
    for head in range(4):
        lower_rank(model.value, 4 * head)
        lower_rank(model.key, 4 * head)
    proof = certificate(prune_channels(model, [(2, 6, 12)]))
    verify(copy.deepcopy(proof))
    edit(proof)
    with pytest.raises(CertificateError):
        verify(proof)
