"""Quantised and adapted checkpoints: the numbers of their runtimes, and what `same` and `diff` say of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import lawful
from lawful.errors import LawfulError
from lawful.formats.tensors.quantised import dequantise, is_quantised, read_schemes
from lawful.sources.checkpoints.adapters import merged_state
from lawful.sources.checkpoints.load import state_of

GENERATOR = torch.Generator().manual_seed(0)
INPUTS, OUTPUTS, GROUP = 32, 16, 8
WHOLE = torch.randint(0, 16, (INPUTS, OUTPUTS), generator=GENERATOR)
ZEROS = torch.randint(1, 16, (INPUTS // GROUP, OUTPUTS), generator=GENERATOR)
SCALES = (0.01 + torch.rand((INPUTS // GROUP, OUTPUTS), generator=GENERATOR)).half()
GROUPS = torch.arange(INPUTS) // GROUP
WANTED = (SCALES[GROUPS] * (WHOLE - ZEROS[GROUPS])).t()


def packed(numbers: np.ndarray, order: tuple[int, ...] = tuple(range(8))) -> torch.Tensor:
    """Eight numbers of four bits along the last axis in one of 32: place k has number `order[k]` of the eight."""
    eights = numbers.reshape(*numbers.shape[:-1], -1, 8).astype(np.uint32)
    made = sum(eights[..., number] << np.uint32(4 * place) for place, number in enumerate(order))
    return torch.from_numpy(np.asarray(made, dtype=np.uint32).view(np.int32).copy())


def gptq(version: int = 1) -> dict[str, torch.Tensor]:
    return {
        "l.qweight": packed(WHOLE.t().numpy()).t().contiguous(),
        "l.qzeros": packed((ZEROS - int(version == 1)).numpy()),
        "l.scales": SCALES,
        "l.g_idx": GROUPS.int(),
    }


def awq() -> dict[str, torch.Tensor]:
    order = (0, 2, 4, 6, 1, 3, 5, 7)  # of AutoAWQ's `pack`
    return {
        "l.qweight": packed(WHOLE.numpy(), order),
        "l.qzeros": packed(ZEROS.numpy(), order),
        "l.scales": SCALES,
    }


V2 = {"quantization_config": {"checkpoint_format": "gptq_v2", "bits": 4}}


@pytest.mark.parametrize(
    ("state", "settings", "scheme"),
    [(gptq(1), {}, "GPTQ, 4 bits"), (gptq(2), V2, "GPTQ, 4 bits"), (awq(), {}, "AWQ, 4 bits")],
)
def test_packed_weights_are_scale_times_whole_number_less_zero(state, settings, scheme: str) -> None:
    assert is_quantised(state)
    found = dequantise(state, settings)
    assert list(found) == ["l.weight"]
    assert torch.equal(found["l.weight"], WANTED)
    ((_, read),) = read_schemes(state, settings)
    assert read.scheme == scheme
    assert torch.equal(read.step, SCALES[GROUPS].t())


def test_groups_in_another_order() -> None:
    """With `desc_act` the inputs of a group are not neighbours."""
    order = torch.randperm(INPUTS, generator=GENERATOR)
    state = gptq() | {"l.g_idx": GROUPS[order].int()}
    assert torch.equal(dequantise(state)["l.weight"], (SCALES[GROUPS[order]] * (WHOLE - ZEROS[GROUPS[order]])).t())


@pytest.mark.parametrize("scheme", [gptq, awq])
def test_a_last_group_may_be_cut(scheme: Callable[[], dict[str, torch.Tensor]]) -> None:
    """Four groups of 10 inputs, the last of 2: a quarter of the inputs each is another function."""
    state, stated = scheme(), {"quantization_config": {"group_size": 10, "bits": 4}}
    state.pop("l.g_idx", None)
    groups = torch.arange(INPUTS) // 10
    assert torch.equal(dequantise(state, stated)["l.weight"], (SCALES[groups] * (WHOLE - ZEROS[groups])).t())
    with pytest.raises(LawfulError, match="nothing says how they share them"):
        dequantise(state, {"quantization_config": {"group_size": 7}})


def test_inputs_whose_groups_nothing_says_are_refused() -> None:
    state = {name: tensor for name, tensor in gptq().items() if name != "l.g_idx"}
    uneven = state | {"l.scales": SCALES[:3], "l.qzeros": state["l.qzeros"][:3]}
    with pytest.raises(LawfulError, match="group_size in the quantization_config"):
        dequantise(uneven)
    with pytest.raises(LawfulError, match="a group outside"):
        dequantise(gptq() | {"l.g_idx": GROUPS.int() - 1})


def test_weights_packed_for_another_kernel_are_refused() -> None:
    with pytest.raises(LawfulError, match="packed for gemv"):
        dequantise(awq(), {"quantization_config": {"version": "gemv"}})


def test_a_zero_point_on_which_runtimes_disagree_is_refused() -> None:
    state = gptq() | {"l.qzeros": torch.full((INPUTS // GROUP, OUTPUTS // 8), -1, dtype=torch.int32)}
    with pytest.raises(LawfulError, match="runtimes disagree"):
        dequantise(state)


@pytest.mark.parametrize("part", ["qzeros", "scales"])
def test_parts_that_do_not_fit_are_refused(part: str) -> None:
    with pytest.raises(LawfulError, match="is not stored as"):
        dequantise(gptq() | {f"l.{part}": torch.zeros((3, 5), dtype=torch.int32 if part == "qzeros" else torch.half)})


@pytest.mark.parametrize("nested", [False, True])
def test_four_bits_of_bitsandbytes(nested: bool) -> None:
    """By the definition: a table's entry times the largest of its block; the upper half of a byte comes first."""
    table = torch.linspace(-1, 1, 16)
    chosen = torch.randint(0, 16, (4, 64), generator=GENERATOR)
    flat = chosen.flatten()
    largest = torch.rand(4, generator=GENERATOR) + 0.1
    facts = {"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [4, 64]}
    state = {"l.weight": (flat[::2] << 4 | flat[1::2]).to(torch.uint8)[:, None], "l.weight.quant_map": table}
    if nested:
        codes, inner = torch.tensor([3, 200, 77, 9], dtype=torch.uint8), torch.linspace(-1, 1, 256)
        facts |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 2.5}
        state |= {
            "l.weight.absmax": codes,
            "l.weight.nested_absmax": torch.tensor([0.5]),
            "l.weight.nested_quant_map": inner,
        }
        largest = inner[codes.long()] * 0.5 + 2.5
    else:
        state["l.weight.absmax"] = largest
    text = torch.tensor(list(json.dumps(facts).encode()), dtype=torch.uint8)
    state["l.weight.quant_state.bitsandbytes__nf4"] = text
    found = dequantise(state)
    assert list(found) == ["l.weight"]
    assert torch.equal(found["l.weight"], table[chosen] * largest[:, None])


def test_eight_bits_of_bitsandbytes_and_float8() -> None:
    whole = torch.randint(-127, 128, (4, 6), generator=GENERATOR).to(torch.int8)
    scale = torch.rand(4, generator=GENERATOR)
    found = dequantise({"l.weight": whole, "l.SCB": scale, "l.weight_format": torch.tensor(0, dtype=torch.uint8)})
    assert list(found) == ["l.weight"]
    assert torch.allclose(found["l.weight"], whole * scale[:, None] / 127, rtol=1e-6)
    numbers = torch.randn((200, 130), generator=GENERATOR).to(torch.float8_e4m3fn)
    blocks = torch.rand((2, 2), generator=GENERATOR) + 0.5
    found = dequantise({"l.weight": numbers, "l.weight_scale_inv": blocks})
    rows, columns = torch.arange(200) // 128, torch.arange(130) // 128
    assert torch.equal(found["l.weight"], numbers.float() * blocks[rows][:, columns])


@pytest.mark.parametrize(
    ("shape", "grid", "stated", "block"),
    [
        ((576, 7), (5, 1), None, (128, 7)),  # the last block is cut
        ((192, 192), (2, 2), None, (128, 128)),  # though it could be 96
        ((4, 96), (4, 3), None, (1, 32)),
        ((8, 8), (1, 8), None, (8, 1)),  # one row of scales is none of rows
        ((200, 130), (4, 3), (64, 48), (64, 48)),
        ((2, 40, 48), (2, 2, 1), (32, 64), (None, 32, 48)),
    ],
)
def test_scales_of_float8_belong_to_blocks(shape, grid, stated, block) -> None:
    numbers = torch.randn(shape, generator=GENERATOR).to(torch.float8_e4m3fn)
    scales = torch.rand(grid, generator=GENERATOR) + 0.5
    settings = {"quantization_config": {"weight_block_size": stated}} if stated else {}
    weight = dequantise({"w": numbers, "w_scale_inv": scales}, settings)["w"]
    for place in ((0,) * len(shape), tuple(n - 1 for n in shape), tuple(n // 2 for n in shape)):
        at = tuple(k // b if b else k for k, b in zip(place, block, strict=True))
        assert weight[place] == numbers[place].float() * scales[at]


def test_scales_that_belong_to_unknown_blocks_are_refused() -> None:
    with pytest.raises(LawfulError, match="weight_block_size"):
        dequantise({"w": torch.zeros(300, 4).to(torch.float8_e4m3fn), "w_scale": torch.ones(7, 1)})
    settings = {"quantization_config": {"weight_block_size": [128, 128]}}
    with pytest.raises(LawfulError, match="weight_block_size"):
        dequantise({"w": torch.zeros(256, 4).to(torch.float8_e4m3fn), "w_scale": torch.ones(4, 1)}, settings)


def test_tiles_of_a_graphics_card_are_refused() -> None:
    stored = {"l.weight": torch.zeros((4, 6), dtype=torch.int8), "l.SCB": torch.ones(4)}
    with pytest.raises(LawfulError, match="row by row"):
        dequantise(stored | {"l.weight_format": torch.tensor(2, dtype=torch.uint8)})


@pytest.mark.parametrize("lie", [{"blocksize": 1}, {"blocksize": 0}, {"shape": [2**40, 2**20]}, {"shape": [3, 3]}])
def test_sizes_that_a_file_claims_take_no_memory(lie: dict) -> None:
    facts = {"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [2, 32], **lie}
    text = torch.tensor(list(json.dumps(facts).encode()), dtype=torch.uint8)
    state = {
        "l.weight": torch.zeros((32, 1), dtype=torch.uint8),
        "l.weight.quant_map": torch.linspace(-1, 1, 16),
        "l.weight.absmax": torch.ones(1),
        "l.weight.quant_state.bitsandbytes__nf4": text,
    }
    with pytest.raises(LawfulError, match="is not stored as NF4"):
        dequantise(state)
    facts |= {"blocksize": 2**40, "shape": [2, 32]}  # one block, of which the weight is a part
    state["l.weight.quant_state.bitsandbytes__nf4"] = torch.tensor(list(json.dumps(facts).encode()), dtype=torch.uint8)
    assert torch.equal(dequantise(state)["l.weight"], -torch.ones(2, 32))


def test_groups_of_nothing_are_refused() -> None:
    with pytest.raises(LawfulError, match="is not stored as"):
        dequantise(awq() | {"l.scales": torch.zeros((0, OUTPUTS), dtype=torch.half)})
    with pytest.raises(LawfulError, match="is not stored as"):
        dequantise(gptq() | {"l.g_idx": torch.zeros(0, dtype=torch.int32)})


def test_a_step_of_float8_is_the_distance_of_its_neighbours() -> None:
    bits = torch.arange(0, 126, dtype=torch.uint8)  # the positive numbers in order, without the largest
    numbers, above = bits.view(torch.float8_e4m3fn), (bits + 1).view(torch.float8_e4m3fn)
    ((_, read),) = read_schemes({"w": numbers[None], "w_scale": torch.tensor(2.0)})
    assert torch.equal(read.step[0], 2 * (above.float() - numbers.float()))


def test_float8_is_read_without_pytorch_alike(tmp_path: Path) -> None:
    from lawful.formats.tensors import safetensors

    for kind in (torch.float8_e4m3fn, torch.float8_e5m2):
        bits = torch.arange(256, dtype=torch.uint8).view(kind).reshape(16, 16)
        save_file({"w": bits}, tmp_path / "a.safetensors")
        found = safetensors.load(tmp_path / "a.safetensors").arrays["w"]
        assert np.array_equal(found, bits.float().numpy(), equal_nan=True)


def adapter(folder: Path, base: str, **settings: object) -> dict[str, torch.Tensor]:
    folder.mkdir()
    stored = {"peft_type": "LORA", "r": 2, "lora_alpha": 8, "base_model_name_or_path": base, **settings}
    (folder / "adapter_config.json").write_text(json.dumps(stored))
    factors = {
        "base_model.model.l.lora_A.weight": torch.randn((2, 5), generator=GENERATOR),
        "base_model.model.l.lora_B.weight": torch.randn((3, 2), generator=GENERATOR),
    }
    save_file(factors, folder / "adapter_model.safetensors")
    return factors


@pytest.mark.parametrize(
    ("settings", "scale"),
    [
        ({}, 4.0),
        ({"use_rslora": True}, 8 / 2**0.5),
        ({"init_lora_weights": "gaussian", "alpha_pattern": {"l": 6, "^l": 2}}, 3.0),  # the first that fits
        ({"alpha_pattern": {"^l": 2, "l": 6}}, 1.0),
        ({"alpha_pattern": {"m.l": 2}}, 4.0),
    ],
)
def test_an_adapter_is_its_base_and_the_change(tmp_path: Path, settings: dict, scale: float) -> None:
    factors = adapter(tmp_path / "lora", "hub/base", **settings)
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text('{"model_type": "x"}')
    weight = torch.randn((3, 5), generator=GENERATOR)
    save_file({"l.weight": weight}, tmp_path / "base" / "model.safetensors")
    state, _, _ = state_of(tmp_path / "lora")
    down, up = (each.double() for each in factors.values())
    assert torch.equal(state["l.weight"], (weight.double() + scale * (up @ down)).float())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"peft_type": "IA3"}, "IA3"),
        ({"r": 3}, "does not fit"),
        ({"lora_alpha": None}, "does not fit"),
        ({"init_lora_weights": "pissa_niter_4"}, "began as pissa_niter_4"),
        ({"alora_invocation_tokens": [7]}, "alora_invocation_tokens"),
        ({"alpha_pattern": {".*(l|m)": 3}}, "is an expression"),
    ],
)
def test_what_is_more_than_a_change_of_low_rank_is_refused(tmp_path: Path, settings: dict, words: str) -> None:
    factors = adapter(tmp_path / "lora", "base", **settings)
    with pytest.raises(LawfulError, match=words):
        merged_state(tmp_path / "lora", {"l.weight": torch.zeros(3, 5)}, lambda _: factors)


@pytest.mark.parametrize("turned", [False, True])
def test_dora_gives_each_row_its_length(tmp_path: Path, turned: bool) -> None:
    """By the paper's equation (5): the rows of `W + s B A`, each of the stored length."""
    factors = adapter(tmp_path / "lora", "base", use_dora=True, fan_in_fan_out=turned)
    down, up = (each.double().numpy() for each in factors.values())
    lengths = np.array([0.5, 2.0, 3.0])
    factors["base_model.model.l.lora_magnitude_vector"] = torch.from_numpy(lengths)
    weight = np.random.default_rng(0).normal(size=(3, 5))
    rows = weight + 4.0 * up @ down
    wanted = np.stack([length * row / np.sqrt((row**2).sum()) for length, row in zip(lengths, rows, strict=True)])
    base = torch.from_numpy(weight.T.copy() if turned else weight)
    merged = merged_state(tmp_path / "lora", {"l.weight": base}, lambda _: factors)["l.weight"].numpy()
    assert np.allclose(merged.T if turned else merged, wanted, rtol=1e-14)


def test_what_was_trained_beside_an_adapter_replaces_the_models(tmp_path: Path) -> None:
    factors = adapter(tmp_path / "lora", "base", bias="lora_only", modules_to_save=["head"])
    beside = {"base_model.model.l.bias": torch.ones(3), "base_model.model.head.weight": torch.ones(2, 3)}
    base = {"l.weight": torch.zeros(3, 5), "l.bias": torch.zeros(3), "head.weight": torch.zeros(2, 3)}
    merged = merged_state(tmp_path / "lora", base, lambda _: factors | beside)
    assert bool(merged["l.bias"].all())
    assert bool(merged["head.weight"].all())
    adapter(tmp_path / "plain", "base")
    with pytest.raises(LawfulError, match="is no factor"):  # the settings do not say that it was trained
        merged_state(tmp_path / "plain", base, lambda _: factors | beside)
    with pytest.raises(LawfulError, match=r"its change of head\.weight is"):
        merged_state(tmp_path / "lora", base | {"head.weight": torch.zeros(4, 3)}, lambda _: factors | beside)


def test_an_adapter_without_its_base_says_where_to_put_it(tmp_path: Path) -> None:
    adapter(tmp_path / "lora", "hub/base")
    with pytest.raises(LawfulError, match="put that model's folder beside it"):
        lawful.open(tmp_path / "lora")


def test_same_says_by_which_scheme_and_how_far(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    weights = {"0.weight": torch.randn((32, 32), generator=GENERATOR), "2.weight": torch.randn((4, 32))}
    save_file(weights, tmp_path / "a.safetensors")
    writer = gguf.GGUFWriter(tmp_path / "b.gguf", "mlp")
    for name, each in weights.items():
        raw = gguf.quantize(each.numpy(), gguf.GGMLQuantizationType.Q8_0)
        writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 32, bias=False), torch.nn.GELU(), torch.nn.Linear(32, 4, bias=False)
    )
    found = lawful.same(tmp_path / "a.safetensors", tmp_path / "b.gguf", model=model, input=(32,))
    assert found.verdict == "different"
    assert "B stores 2 tensors by Q8_0, each entry within 0.5" in found.reason


@pytest.mark.parametrize("settings", [[], "x", None, {"alpha_pattern": 5}, {"rank_pattern": [1]}, {"lora_alpha": True}])
def test_settings_of_an_adapter_that_are_none_are_refused(tmp_path: Path, settings: object) -> None:
    adapter(tmp_path / "lora", "base")
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text('{"model_type": "x"}')
    save_file({"l.weight": torch.zeros(3, 5)}, tmp_path / "base" / "model.safetensors")
    stored = tmp_path / "lora" / "adapter_config.json"
    stored.write_text(json.dumps(json.loads(stored.read_text()) | settings if isinstance(settings, dict) else settings))
    with pytest.raises(LawfulError, match=r"JSON object|no map|does not fit"):
        state_of(tmp_path / "lora")


@pytest.mark.parametrize("index", [[], 5, {"weight_map": {"a": "model.safetensors.index.json"}}])
def test_an_index_that_is_none_or_names_itself_is_refused(tmp_path: Path, index: object) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps(index))
    for read in (state_of, lawful.open):
        with pytest.raises(LawfulError, match=r"JSON object|is an index itself"):
            read(path)
