"""What `same` answers depends on the two functions, not on how they are spelled or handed over."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path

import pytest
import torch
from checkpoints.conftest import same_by_weights
from program.spellings import Spelled, Written
from safetensors.torch import save_file
from torch import nn

import lawful
from lawful.errors import LawfulError


def copies(make: type[nn.Module], way: str) -> tuple[nn.Module, nn.Module]:
    """A module in which the first two units are the same, and its permuted and rescaled copy in float32."""
    one, two = make(way).eval(), make(way).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        one.a.weight[1], one.a.bias[1] = one.a.weight[0], one.a.bias[0]
        order, scales = torch.randperm(6), torch.rand(6) + 0.5
        two.a.weight.copy_(one.a.weight[order] * scales[:, None])
        two.a.bias.copy_(one.a.bias[order] * scales)
        two.b.weight.copy_(one.b.weight[:, order] / scales)
        two.b.bias.copy_(one.b.bias)
    return one, two


@pytest.mark.parametrize(
    ("make", "way"),
    [
        (Spelled, "type_as"),
        (Spelled, "chunk and cat"),
        (Spelled, "where with equal branches"),
        (Written, "matmul from the left"),
    ],
)
def test_one_pair_has_one_answer(make: type[nn.Module], way: str, tmp_path: Path) -> None:
    one, two = copies(make, way)
    files = tmp_path / "a.onnx", tmp_path / "b.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module, file in zip((one, two), files, strict=True):
            torch.onnx.export(
                module, (torch.zeros(1, 5),), file, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "n"}}
            )
    answers = [
        lawful.same(one, two, input=(5,)),
        lawful.same(one, two.state_dict(), model=one, input=(5,)),
        lawful.same(*map(str, files), input=(5,)),
        lawful.same(one, str(files[1]), input=(5,)),
        lawful.same(str(files[0]), two, input=(5,)),
    ]
    assert [each.verdict for each in answers] == ["equal"] * len(answers)
    with torch.no_grad():
        two.b.bias[0] += 1
    assert [
        lawful.same(one, two, input=(5,)).verdict,
        lawful.same(one, two.state_dict(), model=one, input=(5,)).verdict,
    ] == ["different"] * 2


class Convolutional(nn.Module):
    """Two convolutions with batch norms, which exporters fold and round."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.Conv2d(4, 5, 3)
        self.m, self.n, self.head = nn.BatchNorm2d(4), nn.BatchNorm2d(5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.n(self.b(torch.relu(self.m(self.a(x)))))).mean((2, 3)))


def convolutional(*, rescaled: bool = False, changed: bool = False) -> nn.Module:
    """One with drawn statistics; rescaled by factors that float32 rounds, or with one weight changed."""
    torch.manual_seed(0)
    module = Convolutional().eval()
    with torch.no_grad():
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if tensor.ndim == 1 and tensor.is_floating_point():
                tensor.add_(0.3 * torch.rand_like(tensor) if "running" in name else 0.2 * torch.randn_like(tensor))
        order, scales = torch.randperm(4), torch.rand(4) + 0.5
        if rescaled:
            module.a.weight.copy_(module.a.weight[order])
            for tensor in (module.m.running_mean, module.m.running_var):
                tensor.copy_(tensor[order])
            for tensor in (module.m.weight, module.m.bias):
                tensor.copy_(tensor[order] * scales)
            module.b.weight.copy_(module.b.weight[:, order] / scales[:, None, None])
        if changed:
            module.b.weight[1, 1, 1, 1] += 0.01
    return module


def written(module: nn.Module, stem: Path) -> dict[str, str]:
    """Its file of weights, and its ONNX file, into which the exporter folds batch norms."""
    save_file(module.state_dict(), f"{stem}.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (torch.zeros(1, 2, 6, 6),), f"{stem}.onnx", dynamo=False)
    return {"weights": f"{stem}.safetensors", "onnx": f"{stem}.onnx"}


@pytest.mark.parametrize(("change", "verdict"), [({}, "equal"), ({"rescaled": True}, "equal"),
                                                 ({"changed": True}, "different")])  # fmt: skip
def test_batch_norms_have_one_answer_in_every_form_and_order(
    change: dict[str, bool], verdict: str, tmp_path: Path
) -> None:
    one, two = convolutional(), convolutional(**change)
    first = {"module": one, "state dict": one.state_dict(), **written(one, tmp_path / "a")}
    second = {"module": two, "state dict": two.state_dict(), **written(two, tmp_path / "b")}
    for a, b in itertools.product(first, second):
        bare = {"state dict", "weights"} & {a, b}
        model = {"model": one} if bare else {}
        for pair in ((first[a], second[b]), (second[b], first[a])):
            assert lawful.same(*pair, input=(2, 6, 6), **model).verdict == verdict, (a, b)
    half = two.bfloat16()
    if not change:
        for pair in ((one, half), (half, one), (one.state_dict(), half), (first["weights"], half)):
            assert lawful.same(*pair, input=(2, 6, 6), model=one).verdict == "rounded"


def smooth() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def test_weights_alone_belong_to_the_module_beside_them_in_both_orders(tmp_path: Path) -> None:
    """They were read as layers of ReLU if they came first, so that the answer was *different*."""
    for module in (smooth(), nn.Sequential(nn.Linear(4, 6), nn.LeakyReLU(0.1), nn.Linear(6, 3))):
        save_file(module.state_dict(), tmp_path / "a.safetensors")
        for weights in (module.state_dict(), tmp_path / "a.safetensors"):
            assert lawful.same(module, weights, input=(4,)).verdict == "equal"
            assert lawful.same(weights, module, input=(4,)).verdict == "equal"


def test_an_activation_is_said_of_the_weights_alone(tmp_path: Path) -> None:
    module = smooth()
    save_file(module.state_dict(), tmp_path / "a.safetensors")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (torch.zeros(1, 4),), tmp_path / "a.onnx", dynamo=False)
    weights = tmp_path / "a.safetensors"
    for other in (module, tmp_path / "a.onnx"):
        for pair in ((weights, other), (other, weights)):
            assert lawful.same(*pair, activation="tanh").verdict == "equal"
            assert lawful.same(*pair, activation="relu").verdict == "different"
    with pytest.raises(LawfulError, match="do not say their activation"):  # an assumed one must not decide
        lawful.same(weights, tmp_path / "a.onnx")
    with pytest.raises(LawfulError, match="leave out --activation"):
        lawful.same(module, module, activation="tanh")


def test_weights_in_fewer_bits_are_a_rounded_copy_of_a_graph_and_of_smooth_layers(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    lawful.write(lawful.open(net.state_dict()).to_dag(), tmp_path / "a.json")
    half = {name: tensor.bfloat16() for name, tensor in net.state_dict().items()}
    for pair in ((tmp_path / "a.json", half), (half, tmp_path / "a.json")):
        assert lawful.same(*pair).verdict == "rounded"
    whole = smooth().state_dict()
    half = {name: tensor.bfloat16() for name, tensor in whole.items()}
    for pair in ((whole, half), (half, whole)):
        assert lawful.same(*pair, activation="tanh").verdict == "rounded"


def test_positions_that_older_folders_store_are_no_weights() -> None:
    module = smooth()
    state = {**module.state_dict(), "embeddings.position_ids": torch.arange(8)[None]}
    assert same_by_weights(module, state, input=(4,)).verdict == "equal"
    state["embeddings.position_ids"] = torch.arange(8).flip(0)
    with pytest.raises(LawfulError, match="the module has no"):
        same_by_weights(module, state, input=(4,))
