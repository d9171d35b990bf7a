"""The smallest norm, the most even ranges and the standard place: same function, and what theory says of each."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints.conftest import architecture, disguise, narrow
from checkpoints.models import FAMILIES, make
from safetensors.torch import load_file, save_file
from scipy.optimize import minimize
from torch import nn

import lawful
from lawful.api.checkpoints.orbits import representative
from lawful.checkpoints.representative import Representative, balance
from lawful.errors import LawfulError

SOME = ("mlp", "resnet", "gpt", "llama")


def spoiled(seed: int = 0) -> nn.Module:
    """A perceptron whose units are scaled far apart."""
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
    with torch.no_grad():
        for layer, after in ((module[0], module[2]), (module[2], module[4])):
            scales = torch.exp(2 * torch.randn(16))
            layer.weight.mul_(scales[:, None])
            layer.bias.mul_(scales)
            after.weight.div_(scales)
    return module


@pytest.mark.parametrize("family", SOME)
@pytest.mark.parametrize("purpose", ["norm", "range", "canonical"])
def test_every_representative_is_the_same_function(family: str, purpose: str) -> None:
    module = make(family)
    found = representative(module, purpose, input=FAMILIES[family][1])
    assert found.verdict.verdict == "equal"
    assert {name: tensor.shape for name, tensor in found.weights.items()} == {
        name: tensor.shape for name, tensor in module.state_dict().items()
    }
    inputs = architecture(family).draw_inputs(5)
    one, two = (architecture(family).outputs(state, inputs)[0] for state in (module.state_dict(), found.weights))
    assert torch.allclose(one, two, rtol=0, atol=1e-5 * float(one.abs().max()))


def test_the_smallest_norm_is_that_of_an_independent_minimiser() -> None:
    module = spoiled().double()
    weights = [module[k].weight.detach().numpy() for k in (0, 2, 4)]
    biases = [module[k].bias.detach().numpy() for k in (0, 2, 4)]

    def norm(logs: np.ndarray) -> float:
        first, second = np.exp(logs[:16]), np.exp(logs[16:])
        parts = (weights[0] * first[:, None], biases[0] * first, weights[1] * second[:, None] / first,
                 biases[1] * second, weights[2] / second, biases[2])  # fmt: skip
        return float(sum((part**2).sum() for part in parts))

    least = minimize(norm, np.zeros(32), method="BFGS", options={"gtol": 1e-9}).fun
    found = representative(module, "norm", input=(6,))
    assert found.norms[1] ** 2 == pytest.approx(least, rel=1e-9)


def test_the_smallest_pair_of_factors_is_twice_the_nuclear_norm() -> None:
    """min ‖V‖² + ‖O‖² over GL(d) is 2 ‖OV‖_* (and the same for queries and keys)."""
    found = architecture("gpt")
    state = {name: tensor.double() for name, tensor in found.state().items()}
    from lawful.checkpoints.rewrite.folds import apply_folds

    folded = apply_folds(state, found.folds)
    after = balance(found.group, folded, "norm").state
    for head in range(2):
        rows = slice(16 + 4 * head, 20 + 4 * head)
        columns = slice(4 * head, 4 * head + 4)
        product = folded["blocks.0.out.weight"][:, columns] @ folded["blocks.0.qkv.weight"][rows]
        size = (
            after["blocks.0.out.weight"][:, columns].square().sum() + after["blocks.0.qkv.weight"][rows].square().sum()
        )
        assert float(size) == pytest.approx(2 * float(torch.linalg.matrix_norm(product, "nuc")), rel=1e-9)


def test_even_ranges_round_better() -> None:
    found = lawful.rebalance(spoiled(), objective="range", input=(6,))
    assert isinstance(found, Representative)
    for each in found.errors:
        assert each.outputs[1] < each.outputs[0] / 3
        assert each.weights[1] < each.weights[0]


def test_range_never_makes_outputs_worse() -> None:
    for family in SOME:
        found = representative(make(family), "range", input=FAMILIES[family][1])
        assert np.prod([each.outputs[1] / each.outputs[0] for each in found.errors]) <= 1 + 1e-12


@pytest.mark.parametrize("family", ["mlp", "resnet"])
def test_disguises_have_one_canonical_form(family: str) -> None:
    """Where nothing rotates, the standard place depends on the orbit alone."""
    found = architecture(family)
    one = representative(make(family).double(), "canonical", input=FAMILIES[family][1]).weights
    hidden = make(family).double()
    hidden.load_state_dict(narrow(disguise(found, found.state(), 3), torch.float64))
    two = representative(hidden, "canonical", input=FAMILIES[family][1]).weights
    for name, tensor in one.items():
        if tensor.is_floating_point():
            assert torch.allclose(tensor, two[name], rtol=1e-6, atol=1e-9), name


def test_heads_of_deficient_rank_and_dead_units_are_left_alone() -> None:
    module = make("llama")
    with torch.no_grad():
        module.blocks[0].v.weight[0] = 0
        module.blocks[0].up.weight[3] = 0
    found = representative(module, "norm", input="3:int")
    assert found.verdict.verdict == "equal"
    assert any("deficient rank" in note for note in found.notes)


def test_rescaling_the_input_weights_changes_no_answer() -> None:
    """The same orbit, whatever scale it was met at."""
    module = spoiled().double()
    scaled = spoiled().double()
    with torch.no_grad():
        scaled[0].weight.mul_(1e9)
        scaled[0].bias.mul_(1e9)
        scaled[2].weight.div_(1e9)
    one, two = (representative(each, "norm", input=(6,)) for each in (module, scaled))
    assert one.norms[1] == pytest.approx(two.norms[1], rel=1e-9)


def test_the_command_line_writes_the_same_names_and_types(lawful: Any, tmp_path: Any) -> None:
    file, out, proof = (str(tmp_path / name) for name in ("a.safetensors", "b.safetensors", "proof.json"))
    state = {name: tensor.bfloat16().contiguous() for name, tensor in make("gpt").state_dict().items()}
    save_file(state, file)
    model = ["--model", "checkpoints.models:gpt", "--input", "3:int"]
    run = lawful(
        "rebalance", file, *model, "--objective", "norm", "--out", out, "--certificate", proof, "--json", code=0
    )
    found = json.loads(run.stdout)
    assert found["verdict"] == "rounded"  # what is computed is stored in 16 bits again
    assert found["norm"]["after"] < found["norm"]["before"]
    written = load_file(out)
    assert {name: tensor.dtype for name, tensor in written.items()} == dict.fromkeys(state, torch.bfloat16)
    lawful("verify", proof, file, out, code=0)
    lawful("canonical", file, *model, "--out", out, code=0)
    assert lawful("same", file, out, *model, "--json", code=1).json["verdict"] == "rounded"


def test_bad_objectives_are_refused(lawful: Any, tmp_path: Any) -> None:
    with pytest.raises(LawfulError, match="norm or range"):
        representative(spoiled(), "best", input=(6,))
    file = str(tmp_path / "a.safetensors")
    save_file({name: tensor.contiguous() for name, tensor in spoiled().state_dict().items()}, file)
    assert "norm or range" in lawful("rebalance", file, "--objective", "best", code=2).stderr
    assert "--objective" in lawful("rebalance", file, "--data", "x.npz", code=2).stderr
    assert "leave out" in lawful("rebalance", file, "--objective", "norm", "--balance", "unlock", code=2).stderr
    assert "int4" in lawful("rebalance", file, "--objective", "range", code=0).stdout
