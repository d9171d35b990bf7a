"""Modules whose training follows another field than the gradient of what they compute: counted, never proved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from lawful import Unsupported
from lawful.conservation import count_laws
from lawful.conservation.programs.module_function import probe


class Formula(nn.Module):
    """A function of its own layers."""

    def __init__(self, function: Callable[..., torch.Tensor], **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


class Doubled(torch.autograd.Function):
    """Twice the slope on the way back."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values: torch.Tensor) -> torch.Tensor:
        return values.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, slope: torch.Tensor) -> torch.Tensor:
        return 2 * slope

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor) -> torch.Tensor:
        return tangent.clone()


def two_layers(between: Callable[[torch.Tensor], torch.Tensor]) -> nn.Module:
    return Formula(lambda s, x: s.b(between(s.a(x))), a=nn.Linear(2, 3), b=nn.Linear(3, 2))


FIELDS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    # nothing moves the first layer: its 9 entries
    "detached layer": (lambda: two_layers(lambda h: torch.relu(h).detach()), 9),
    # a scale that follows the weights but is no part of the slope keeps the linear laws of 2-3-2
    "detached scale": (
        lambda: Formula(lambda s, x: s.b(s.a(x) * s.a.weight.norm().detach()), a=nn.Linear(2, 3), b=nn.Linear(3, 2)),
        6,
    ),
    # ‖a_j‖² − 2‖b_j‖² instead of ‖a_j‖² − ‖b_j‖²
    "own backward pass": (lambda: two_layers(lambda h: torch.relu(Doubled.apply(h))), 3),
}


@pytest.mark.parametrize("name", FIELDS)
def test_fields_that_are_no_gradients(name: str) -> None:
    torch.manual_seed(0)
    make, laws = FIELDS[name]
    count = count_laws(make(), input_shape=(2,))
    assert (count.laws, count.status) == (laws, "numerical")
    assert "does not follow the gradient" in count.reason


@pytest.mark.parametrize("name", ["detached scale", "own backward pass"])
def test_their_laws_are_conserved_by_training(name: str) -> None:
    torch.manual_seed(0)
    module = FIELDS[name][0]().double()
    laws = count_laws(module, input_shape=(2,)).known
    assert len(laws)
    output = module(torch.randn(5, 2, dtype=torch.float64))
    slopes = torch.autograd.grad((output * torch.randn_like(output)).sum(), list(module.parameters()))
    flat = torch.cat([slope.flatten() for slope in slopes]).numpy()
    theta = torch.cat([value.detach().flatten() for value in module.parameters()]).numpy()
    assert np.abs(laws.gradients(theta) @ flat).max() < 1e-12


def test_a_padding_row_rests_and_takes_its_part_of_the_laws_away() -> None:
    """The row rests (3 laws), and only along the two directions across it is the old 3x3 matrix conserved (3 laws)."""
    torch.manual_seed(0)
    parts: dict[str, nn.Module] = {"l": nn.Linear(3, 3), "h": nn.Linear(3, 2)}
    forward = lambda s, x: s.h(functional.gelu(s.l(s.e(x))))  # noqa: E731
    count = count_laws(Formula(forward, e=nn.Embedding(5, 3, padding_idx=0), **parts), input_shape=(2,))
    assert (count.laws, count.status, count.independent) == (6, "numerical", 3)
    assert "padding keeps a row of e.weight still" in count.reason
    assert count_laws(Formula(forward, e=nn.Embedding(5, 3), **parts), input_shape=(2,)).status == "proved"


def test_a_large_table_with_padding_gives_away_only_what_leaves_it_alone() -> None:
    """Heads of attention keep theirs; the width that the table spans has none."""

    def large(padding: int | None) -> nn.Module:
        torch.manual_seed(0)
        return Formula(
            lambda s, x: s.h(torch.relu(s.l(s.e(x)))),
            e=nn.Embedding(900, 8, padding_idx=padding),
            l=nn.Linear(8, 8, bias=False),
            h=nn.Linear(8, 2),
        )

    counts = [count_laws(large(padding), input_shape=(2,)) for padding in (None, 0)]
    assert [(count.status, count.laws) for count in counts] == [("at least", 36 + 8), ("at least", 8)]
    assert "padding" in counts[1].reason


def test_hooks() -> None:
    """One that looks on changes nothing; one that changes gradients is refused."""
    module = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    module[1].register_full_backward_hook(lambda part, given, taken: None)
    assert count_laws(module).status == "proved"
    module[1].register_full_backward_hook(lambda part, given, taken: (3 * given[0],))
    with pytest.raises(Unsupported, match="a hook changes the gradient of 0"):
        count_laws(module)
    module = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    module[0].weight.register_hook(lambda slope: 0 * slope)
    with pytest.raises(Unsupported, match=r"0\.weight"):
        count_laws(module)
    module = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    module[0].register_full_backward_hook(lambda part, given, taken: (3 * given[0],))  # the input's gradient is None
    with pytest.raises(Unsupported, match="backward pass fails: TypeError"):
        count_laws(module)


def test_positions_are_no_tokens() -> None:
    """A table of positions may come first, or beside inputs that are numbers."""
    torch.manual_seed(0)
    places = torch.arange(3)
    tokens = Formula(
        lambda s, x: s.h(torch.tanh(s.p(places) + s.e(x))),
        p=nn.Embedding(7, 2),
        e=nn.Embedding(4, 2),
        h=nn.Linear(2, 1),
    )
    assert probe(tokens, (3,)).vocabulary == 4
    numbers = Formula(
        lambda s, x: s.h(torch.tanh(s.a(x) + s.p(places))), p=nn.Embedding(3, 2), a=nn.Linear(2, 2), h=nn.Linear(2, 1)
    )
    count = count_laws(numbers, input_shape=(3, 2))
    assert (count.laws, count.status) == (2, "proved")  # the bias against the sum of positions


@pytest.mark.parametrize("first", [True, False])
def test_spectral_norms_are_taken_where_they_are(first: bool) -> None:
    """The vectors of power iterations follow the weights, so any are allowed: ‖W‖² is left, and nothing is proved."""
    norm = nn.utils.parametrizations.spectral_norm
    torch.manual_seed(0)
    one, two = nn.Linear(3, 3), nn.Linear(3, 2)
    module = nn.Sequential(norm(one) if first else one, nn.Tanh(), two if first else norm(two))
    count = count_laws(module, input_shape=(3,))
    assert (count.laws, count.status, len(count.known)) == (1, "numerical", 1)
    assert any("power iterations may be any" in each for each in count.reading.assumed)


def test_functions_that_mix_a_batch() -> None:
    """Statistics of the batch by a function: the first bias rests, and the proof is about batches too."""
    torch.manual_seed(0)
    module = Formula(
        lambda s, x: s.b(torch.tanh(functional.batch_norm(s.a(x), None, None, training=True))),
        a=nn.Linear(2, 2),
        b=nn.Linear(2, 1),
    )
    case = probe(module, (2,))
    assert case.mixes
    assert not probe(nn.Linear(2, 1), (2,)).mixes
    count = count_laws(module, input_shape=(2,))
    assert (count.laws, count.status) == (2, "proved")
