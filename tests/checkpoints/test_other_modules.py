"""The same weights in a module that computes something else are never equal."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from checkpoints.conftest import same_by_weights as same
from checkpoints.models import make
from torch import nn

import lawful
from lawful.checkpoints.compare.certificate import copy_certificate
from lawful.checkpoints.opening import open_checkpoints
from lawful.checkpoints.verdict import decide
from lawful.verify import verify

GPT, LLAMA, IMAGE = "3:int", "3:int", "3,8,8"


def _other(change: Callable[[nn.Module], None], family: str) -> tuple[nn.Module, nn.Module]:
    one = make(family)
    two = copy.deepcopy(one)
    change(two)
    return one, two


def _epsilon(module: nn.Module) -> None:
    for part in module.modules():
        if hasattr(part, "eps"):
            part.eps *= 1.5


def _gelu(module: nn.Module) -> None:
    module[5] = nn.GELU(approximate="tanh")


def _relu(module: nn.Module) -> None:
    module[1] = nn.LeakyReLU(0.2)


@pytest.mark.parametrize(
    ("change", "family", "size", "words"),
    [
        (_epsilon, "llama", LLAMA, "epsilon=0.01"),
        (_epsilon, "gpt", GPT, "epsilon=1e-05"),
        (_epsilon, "resnet", IMAGE, "value=1e-05"),
        (_gelu, "mlp", "3", "erf in A, tanh in B"),
        (_relu, "mlp", "3", "relu"),
    ],
)
def test_the_same_weights_in_another_module_are_never_equal(
    change: Callable[[nn.Module], None], family: str, size: str, words: str
) -> None:
    verdict = same(*_other(change, family), input=size)
    assert verdict.verdict in ("different", "undecided")
    assert words in verdict.reason


def test_a_tiny_epsilon_is_seen_though_no_output_shows_it() -> None:
    one = make("llama")
    for part in one.modules():
        if hasattr(part, "eps"):
            part.eps = 1e-13
    two = copy.deepcopy(one)
    two.last.eps = 1e-14
    verdict = same(one, two, input=LLAMA)
    assert verdict.verdict == "undecided"
    assert "epsilon=1e-13" in verdict.reason


class Rotary(nn.Module):
    """Queries and keys turned by a table that is no part of the state."""

    def __init__(self, base: float) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(6, 4, bias=False) for _ in range(3))
        self.register_buffer("angles", torch.arange(5)[:, None] * base ** -torch.arange(2.0), persistent=False)

    def turned(self, x: torch.Tensor) -> torch.Tensor:
        cos, sin = self.angles.cos(), self.angles.sin()
        a, b = x[..., :2], x[..., 2:]
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.turned(self.q(x)) @ self.turned(self.k(x)).transpose(-1, -2)
        return scores.softmax(-1) @ self.v(x)


def test_another_base_of_rotary_positions_is_different() -> None:
    torch.manual_seed(0)
    one, two = Rotary(10.0), Rotary(11.0)
    two.load_state_dict(one.state_dict())
    assert same(one, two, input="5,6").verdict == "different"


class _Settings(dict[str, int | None]):
    def to_dict(self) -> dict[str, int | None]:
        return dict(self)


class _Windowed(nn.Module):
    """Sums over the last tokens, all of them or those in a window."""

    def __init__(self, window: int | None) -> None:
        super().__init__()
        self.config = _Settings(window=window)
        self.token, self.head = nn.Embedding(20, 6), nn.Linear(6, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        place = torch.arange(ids.shape[1])
        seen = place[None] <= place[:, None]
        if self.config["window"] is not None:
            seen = seen & (place[None] > place[:, None] - self.config["window"])
        found: torch.Tensor = self.head(torch.tanh(seen.to(self.token.weight) @ self.token(ids)))
        return found


@pytest.mark.parametrize("window", [6, 4096])
def test_a_window_that_short_inputs_do_not_reach_is_not_equal(window: int) -> None:
    torch.manual_seed(0)
    one, two = _Windowed(None), _Windowed(window)
    two.load_state_dict(one.state_dict())
    short = same(one, two, input="4:int")
    if window < 10:  # longer inputs are tried, as far as they are cheap
        assert short.verdict == "different"
    else:
        assert short.verdict == "undecided"
        assert f"--input {window + 1}:int" in short.reason
    assert two.training


def test_a_head_that_is_tied_in_one_module_is_the_same_function() -> None:
    torch.manual_seed(0)
    tied, own = make("gpt-tied"), make("gpt")
    own.load_state_dict({**tied.state_dict(), "head.weight": tied.state_dict()["token.weight"]}, strict=False)
    assert same(tied, own, input=GPT).verdict == "equal"
    with torch.no_grad():
        own.head.weight[3, 1] *= 1.5
    assert same(tied, own, input=GPT).verdict == "different"


def test_what_is_dropped_in_training_alone_is_no_difference() -> None:
    one = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.1), nn.Linear(4, 2))
    two = copy.deepcopy(one)
    two[2] = nn.Dropout(0.5)
    assert same(one, two, input=(3,)).verdict == "equal"


class _Unread(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.unread, self.last = nn.Linear(3, 4), nn.Linear(3, 5), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(torch.relu(self.first(x)))
        return found


def test_a_tensor_that_nothing_reads_may_hold_anything_and_the_certificate_says_so() -> None:
    one = _Unread()
    two = {name: tensor.clone() for name, tensor in one.state_dict().items()}
    pair = open_checkpoints(one, dict(two), input=(3,))
    assert decide(pair)[1].within == "exactly"
    two["unread.weight"] *= 2
    pair = open_checkpoints(one, two, input=(3,))
    verdict = decide(pair)[1]
    assert verdict.verdict == "equal"
    assert "left out, since no output sees them: unread.weight" in verdict.reason
    files = [{n: t.double().numpy() for n, t in each.items()} for each in (one.state_dict(), two)]
    found = verify(copy_certificate(pair, verdict), *files)
    assert f"{15 + 5} numbers that are not zero are left out as dead: unread.bias, unread.weight" in found.statement
    two["first.weight"][0] *= 2
    assert decide(open_checkpoints(one, two, input=(3,)))[1].verdict == "different"


class Capped(nn.Module):
    """Two layers with functions before and between, which do nothing to ordinary numbers."""

    def __init__(self, before: Any = None, between: Any = None, split: bool = False) -> None:
        super().__init__()
        self.before, self.between = before or (lambda x: x), between or (lambda x: x)
        self.first, self.last = nn.Linear(3, 6), nn.Linear(3, 2)
        self.halves = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)]) if split else None
        if split:
            del self.first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        one, two = self.first(x).chunk(2, -1) if self.halves is None else [half(x) for half in self.halves]
        return torch.sigmoid(self.last(self.between(torch.tanh(one) * two)))


@pytest.mark.parametrize("place", ["before", "between"])
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("cap", [
    lambda x: x.clamp(max=40.0),
    lambda x: torch.where(x > 40.0, x * 0, x),
    lambda x: torch.maximum(x, x * 0 - 40.0),
    lambda x: nn.functional.threshold(x, -40.0, 0.0),
    lambda x: x + torch.relu(x - 40.0),
    lambda x: x * x / x,  # NaN at 0
    lambda x: x * (1 + 1e-9),  # which rounding to single precision would hide
])  # fmt: skip
def test_a_cap_that_no_trial_reaches_is_never_equal(cap: Any, split: bool, place: str) -> None:
    """Modules that are written in two ways are tried at random weights, which may not reach it."""
    torch.manual_seed(0)
    plain, capped = Capped(), Capped(split=split, **{place: cap})
    state = dict(plain.state_dict())
    if split:
        for name in ("weight", "bias"):
            for number, half in enumerate(state.pop(f"first.{name}").chunk(2)):
                state[f"halves.{number}.{name}"] = half
    capped.load_state_dict(state)
    assert same(plain, capped, input=(3,)).verdict != "equal"
    if not split:
        assert lawful.same(plain, plain, input=(3,)).verdict == "equal"


def test_modules_that_differ_far_out_alone_are_different() -> None:
    torch.manual_seed(0)
    capped = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU6(), nn.Conv2d(2, 2, 3), nn.Tanh())
    free = nn.Sequential(capped[0], nn.ReLU(), *capped[2:])
    assert lawful.same(capped, free, input=(1, 5, 5)).verdict == "different"


class Rounded(nn.Module):
    """A cast to fewer bits inside, which a program over the reals does not show."""

    def __init__(self, cast: torch.dtype) -> None:
        super().__init__()
        self.first, self.last, self.cast = nn.Linear(3, 6), nn.Linear(6, 2), cast

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.first(x).to(self.cast).to(x.dtype)))


@pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16])
def test_a_module_that_rounds_inside_is_not_equal_to_one_that_does_not(cast: torch.dtype) -> None:
    torch.manual_seed(0)
    plain, rounded = Rounded(torch.float32), Rounded(cast)
    rounded.load_state_dict(plain.state_dict())
    assert lawful.same(plain, rounded, input=(3,)).verdict != "equal"
    assert len(lawful.fingerprint([plain, rounded], input=(3,)).groups) == 2
    assert lawful.same(rounded, copy.deepcopy(rounded), input=(3,)).verdict == "equal"


class _Scaled(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * (1 + 1e-13)


def test_what_no_trial_sees_is_not_called_exact() -> None:
    """Modules written in two ways are compared at random weights: a factor of 1 + 1e-13 is in the rounding there."""
    layers = nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)
    one, two = nn.Sequential(*layers).double(), _Scaled(*layers).double()
    found = same(one, two, input="4")
    assert found.within != "exactly"
    assert "they agree to 1e-11" in found.reason
    assert same(one, nn.Sequential(*layers).double(), input="4").within == "exactly"
