"""Every law that is stated of a module is held against real gradients of it, in the mode that the answer names.

The module is copied, put into that mode and differentiated by autograd as a training loop would, with PyTorch's own
random numbers: nothing of the code that counts is used. A law h is conserved if ⟨∇h, ∇loss⟩ = 0 for every draw.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from lawful.conservation import count_laws
from lawful.conservation.certificate import certificate
from lawful.errors import CertificateError, LawfulError, Unsupported
from lawful.sources.modules.randomness import draw_from, read_draws
from lawful.verify import verify

STEPS = 6  # batches, draws and output gradients for each module
ROUNDING = 1e-9


class Written(nn.Module):
    """Layers and what forward makes of them."""

    def __init__(self, forward: Callable, *layers: nn.Module) -> None:
        super().__init__()
        self.call, self.layers = forward, nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.call(self, x, *self.layers)


def bare(*sizes: int) -> list[nn.Module]:
    return [nn.Linear(a, b, bias=False) for a, b in pairwise(sizes)]


def frozen(module: nn.Module, name: str) -> nn.Module:
    module.get_parameter(name).requires_grad_(False)
    return module


def tied() -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Dropout(0.3), nn.Linear(3, 3, bias=False))
    module[2].weight = module[0].weight
    return module


def stochastic_depth(self: Written, x: torch.Tensor, first: nn.Module, second: nn.Module) -> torch.Tensor:
    kept = torch.empty((len(x), 1), dtype=x.dtype).bernoulli_(0.8).div_(0.8) if self.training else 1.0
    return x + kept * second(first(x))


def branch(self: Written, x: torch.Tensor, first: nn.Module, second: nn.Module) -> torch.Tensor:
    return second(torch.tanh(first(x)) if self.training else first(x))


def noisy(self: Written, x: torch.Tensor, first: nn.Module, second: nn.Module) -> torch.Tensor:
    hidden = first(x)
    return second(hidden + torch.randn_like(hidden) if self.training else hidden)


def dropped_weights(self: Written, x: torch.Tensor, first: nn.Module, second: nn.Module) -> torch.Tensor:
    weight = functional.dropout(second.weight, 0.5, self.training)
    return functional.linear(first(x), weight)


def compared(self: Written, x: torch.Tensor, first: nn.Module, second: nn.Module) -> torch.Tensor:
    hidden = first(x)
    return second(hidden * (torch.rand(hidden.shape) < 0.5) if self.training else hidden)


def detached(self: Written, x: torch.Tensor, first: nn.Module, second: nn.Module) -> torch.Tensor:
    return second(first(x)) + first(x).detach()[:, :2]


def without_gradients(self: Written, x: torch.Tensor, first: nn.Module, second: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        scale = first(x).abs().sum()
    return second(first(x)) * scale


# The number of laws where it is known: a dropout mask is a gate, so a linear layer before it keeps its balances alone
MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int | None]] = {
    "dropout": (lambda: nn.Sequential(*bare(3, 4), nn.Dropout(0.5), *bare(4, 2)), (3,), 4),
    "dropout on inputs": (lambda: nn.Sequential(nn.Dropout(0.5), *bare(3, 2, 2)), (3,), 3),
    "dropout on outputs": (lambda: nn.Sequential(*bare(3, 2, 2), nn.Dropout(0.5)), (3,), 3),
    "dropout after ReLU": (lambda: nn.Sequential(*bare(3, 3), nn.ReLU(), nn.Dropout(0.5), *bare(3, 2)), (3,), 3),
    "dropout that is off": (lambda: nn.Sequential(*bare(3, 2), nn.Dropout(0.0), *bare(2, 2)), (3,), 3),
    "dropout of everything": (lambda: nn.Sequential(*bare(2, 2), nn.Dropout(1.0), nn.Linear(2, 2)), (2,), 8),
    "dropout in place": (lambda: nn.Sequential(*bare(3, 3), nn.Dropout(0.4, inplace=True), *bare(3, 2)), (3,), 3),
    "alpha dropout": (lambda: nn.Sequential(*bare(3, 3), nn.AlphaDropout(0.4), *bare(3, 2)), (3,), None),
    "channels": (
        lambda: nn.Sequential(nn.Conv1d(1, 2, 2, bias=False), nn.Dropout1d(0.5), nn.Conv1d(2, 1, 1, bias=False)),
        (1, 3),
        2,
    ),
    "rrelu": (lambda: nn.Sequential(*bare(3, 2), nn.RReLU(), *bare(2, 2)), (3,), 2),
    "stochastic depth": (lambda: Written(stochastic_depth, *bare(3, 2, 3)), (3,), 3),
    "functional dropout": (
        lambda: Written(lambda s, x, a, b: b(functional.dropout(a(x), 0.5, s.training)), *bare(3, 3, 2)),
        (3,),
        3,
    ),
    "dropped weights": (lambda: Written(dropped_weights, *bare(3, 2, 2)), (3,), None),
    "a mask by comparison": (lambda: Written(compared, *bare(3, 3, 2)), (3,), 3),
    "noise": (lambda: Written(noisy, *bare(3, 3, 2)), (3,), None),
    "a branch on training": (lambda: Written(branch, *bare(3, 3, 2)), (3,), 0),
    "batch norm": (lambda: nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.ReLU(), nn.Linear(2, 1)), (2,), None),
    "frozen": (lambda: frozen(nn.Sequential(*bare(3, 3), nn.Dropout(0.5), *bare(3, 2)), "0.weight"), (3,), 0),
    "tied": (tied, (3,), 0),
    "weight norm": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)), nn.Dropout(0.5), nn.Linear(2, 1)),
        (2,),
        None,
    ),
    "spectral norm": (
        lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(2, 2)), nn.Linear(2, 2)),
        (2,),
        None,
    ),
    "attention": (
        lambda: Written(
            lambda s, x, a: a(x, x, x, need_weights=False)[0],
            nn.MultiheadAttention(2, 1, dropout=0.3, batch_first=True),
        ),
        (2, 2),
        None,
    ),
    "detached": (lambda: Written(detached, *bare(3, 3, 2)), (3,), None),
    "without gradients": (lambda: Written(without_gradients, *bare(3, 3, 2)), (3,), None),
}


def real_gradients(module: nn.Module, shape: tuple[int, ...], mode: str) -> list[np.ndarray]:
    """Gradients of random losses on random batches, as a training loop takes them."""
    twin = copy.deepcopy(module).double().train(mode == "train")
    torch.manual_seed(7)
    found = []
    for _ in range(STEPS):
        output = twin(torch.randn(5, *shape, dtype=torch.float64))
        twin.zero_grad()
        if output.requires_grad:
            output.backward(torch.randn_like(output))
        trained = [value for value in twin.parameters() if value.requires_grad]
        parts = [torch.zeros_like(value) if value.grad is None else value.grad for value in trained]
        found.append(torch.cat([part.flatten() for part in parts]).numpy())
    return found


def broken_laws(count, module: nn.Module, shape: tuple[int, ...], mode: str) -> int:
    """How many of the stated laws a real gradient moves."""
    theta = torch.cat([value.detach().double().flatten() for value in module.parameters() if value.requires_grad])
    slopes = count.known.gradients(theta.numpy())
    moved = np.zeros(len(slopes), dtype=bool)
    for gradient in real_gradients(module, shape, mode):
        size = np.linalg.norm(slopes, axis=1) * np.linalg.norm(gradient)
        moved |= np.abs(slopes @ gradient) > ROUNDING * np.maximum(size, 1e-300)
    return int(moved.sum())


@pytest.mark.parametrize("name", MODULES)
def test_no_stated_law_is_moved_by_a_real_gradient(name: str) -> None:
    make, shape, known = MODULES[name]
    torch.manual_seed(0)
    module = make()
    count = count_laws(module, input_shape=shape)
    assert known is None or count.laws == known
    assert broken_laws(count, module, shape, "train") == 0


def test_the_check_finds_laws_of_the_other_mode() -> None:
    """10 laws of eval mode, of which masks break 6 (`Linear, Dropout(.5), Linear`, 3-4-2)."""
    torch.manual_seed(0)
    module = MODULES["dropout"][0]()
    count = count_laws(module, input_shape=(3,), mode="eval")
    assert (count.laws, count.mode) == (10, "eval")
    assert any("eval mode" in each for each in count.reading.assumed)
    assert broken_laws(count, module, (3,), "eval") == 0
    assert broken_laws(count, module, (3,), "train") == 6


def test_masks_are_in_the_certificate() -> None:
    """The fields of a proof open and close gates by 0 and 1: a mask that is never drawn proves nothing."""
    torch.manual_seed(0)
    proof = certificate(count_laws(MODULES["dropout"][0](), input_shape=(3,)))
    assert proof["draws"] == [["gate", 4]]
    assert "4 random numbers" in verify(proof).statement
    half = copy.deepcopy(proof)
    half["inputs"][0][-1] = 2 ** (proof["sample_bits"] - 1)
    with pytest.raises(CertificateError, match="neither 0 nor 1"):
        verify(half)
    plain = {key: value for key, value in proof.items() if key != "draws"}
    with pytest.raises(CertificateError, match="digests"):
        verify(plain)  # the same steps without random numbers are another program
    more = copy.deepcopy(proof)
    more["laws"] += 1
    with pytest.raises(CertificateError):
        verify(more)


class Odd(nn.Module):
    """A layer, and something that no gradient shows."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.layer, self.lstm = how, nn.Linear(2, 2), nn.LSTM(2, 2, 2, dropout=0.5, batch_first=True)
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        match self.how:
            case "numpy" if self.training:
                return self.layer(x) * float(np.random.rand() < 2)  # noqa: NPY002
            case "generator" if self.training:
                return self.layer(x) * torch.empty(2, dtype=x.dtype).exponential_()
            case "recurrent":
                return self.lstm(x[:, None])[0][:, -1]
            case "average" if self.training:
                self.seen.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return self.layer(x - self.seen)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("numpy", "draws random numbers in a way that is not read"),
        ("generator", "draws from exponential_"),
        ("recurrent", "between the layers of a recurrent layer"),
        ("average", "every call changes seen"),
    ],
)
def test_what_training_follows_is_refused_if_it_is_not_known(how: str, words: str) -> None:
    torch.manual_seed(0)
    module = Odd(how)
    state = torch.get_rng_state()
    with pytest.raises(Unsupported, match=words):
        count_laws(module, input_shape=(2,))
    assert torch.equal(torch.get_rng_state(), state)
    assert count_laws(Odd("numpy"), input_shape=(2,), mode="eval").laws >= 0  # another function, which is known


def test_dropout_draws_what_pytorch_draws() -> None:
    """With a mask in place of the generator, layers compute what they compute with the same mask drawn."""
    torch.manual_seed(0)
    x = torch.randn(2, 3, 4, dtype=torch.float64) + 3
    for layer in (
        nn.Dropout(0.3),
        nn.Dropout1d(0.3),
        nn.AlphaDropout(0.3),
        nn.FeatureAlphaDropout(0.3),
        nn.RReLU(0.1, 0.4),
    ):
        draws = read_draws(lambda: layer(x))  # noqa: B023
        given = -x if isinstance(layer, nn.RReLU) else x
        torch.manual_seed(1)
        found = layer(given)
        if isinstance(layer, nn.RReLU):
            numbers = (found / given - 0.1) / 0.3
        else:
            alpha = 1.0507009873554805 * 1.6732632423543772  # minus the limit of SELU: what alpha dropout drops to
            lost = -alpha * 0.7 / np.sqrt(0.7 * (1 + 0.3 * alpha**2))
            off = torch.full_like(found, lost if "alpha" in draws[0].function else 0.0)
            numbers = (~torch.isclose(found, off)).double()
            numbers = numbers[:, :, 0] if "feature" in draws[0].function else numbers
        with draw_from(numbers.flatten()):
            assert torch.allclose(layer(given), found)


# Cross-entropy: which outputs are classes


def test_classes_are_the_axis_of_pytorch() -> None:
    """For (n, classes, height, width) the classes are axis 1: each sum over classes is kept, not each entry."""
    torch.manual_seed(0)
    module = nn.Conv2d(1, 3, 2)
    count = count_laws(module, input_shape=(1, 3, 3), loss="ce")
    assert (count.laws, count.status) == (5, "proved")
    assert count.reading.assumed == ("the 3 classes of cross-entropy are axis 1 of the output, as in PyTorch",)
    theta = torch.cat([value.detach().double().flatten() for value in module.parameters()])
    twin = copy.deepcopy(module).double()
    loss = functional.cross_entropy(twin(torch.randn(4, 1, 3, 3).double()), torch.randint(3, (4, 2, 2)))
    loss.backward()
    gradient = torch.cat([value.grad.flatten() for value in twin.parameters()]).numpy()
    assert np.abs(count.known.gradients(theta.numpy()) @ gradient).max() < 1e-12
    assert np.abs(gradient[-3:]).min() > 1e-6  # each bias moves
    last = count_laws(module, input_shape=(1, 3, 3), loss="ce", classes_axis=3)
    assert last.laws != 5 or last.reading.assumed == ()
    assert verify(certificate(count)).facts["loss"] == "cross-entropy over 3 classes"


def test_tokens_have_their_classes_last() -> None:
    """A language model predicts at every position: cross-entropy of (n T, V)."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Embedding(3, 2), nn.Linear(2, 4))
    count = count_laws(module, input_shape=(2,), loss="ce")
    assert any("axis 2 of the output, as language models" in each for each in count.reading.assumed)
    twin = copy.deepcopy(module).double()
    functional.cross_entropy(twin(torch.randint(3, (5, 2))).flatten(0, 1), torch.randint(4, (10,))).backward()
    gradient = torch.cat([value.grad.flatten() for value in twin.parameters()]).numpy()
    theta = torch.cat([value.detach().double().flatten() for value in module.parameters()]).numpy()
    assert np.abs(count.known.gradients(theta) @ gradient).max() < 1e-12


@pytest.mark.parametrize("axis", [0, 3, -1])
def test_an_axis_that_is_none_is_refused(axis: int) -> None:
    with pytest.raises(LawfulError, match="axis"):
        count_laws(nn.Conv1d(1, 2, 1), input_shape=(1, 2), loss="ce", classes_axis=axis)


def test_the_command_line_says_the_mode(lawful, tmp_path, monkeypatch) -> None:
    (tmp_path / "dropping.py").write_text(
        "from torch import nn\n\n\ndef make():\n"
        "    return nn.Sequential(nn.Linear(2, 2, bias=False), nn.Dropout(0.5), nn.Linear(2, 1, bias=False))\n"
    )
    monkeypatch.chdir(tmp_path)
    trained = lawful("laws", "dropping:make", "--json").json
    assert (trained["laws"], trained["mode"]) == (2, "train")
    assert any("dropout draws new random numbers" in each for each in trained["reading"]["assumed"])
    evaluated = lawful("laws", "dropping:make", "--mode", "eval", "--json").json
    assert (evaluated["laws"], evaluated["mode"]) == (3, "eval")
    assert any("eval mode" in each for each in evaluated["reading"]["assumed"])
