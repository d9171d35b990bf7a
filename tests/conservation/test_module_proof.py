"""Laws of modules, proved: the program of a module, its brackets in two arithmetics and two programs, forgeries."""

from __future__ import annotations

import copy
from dataclasses import replace
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import pytest
import torch
from torch import nn

from lawful import CertificateError, NotACertificate, Unsupported, verify
from lawful.conservation import GradientFlow, count_laws
from lawful.conservation.certificate import certificate
from lawful.conservation.closure.program_brackets import Sampled
from lawful.conservation.fields.module_gradient import _bracket, _field
from lawful.conservation.fields.normalisations import composite
from lawful.conservation.known.law import Law
from lawful.conservation.module_count import BracketRun, _within, module_laws
from lawful.conservation.module_count_proof import ProofSearch
from lawful.conservation.programs.module_function import lower, probe
from lawful.conservation.rank_proof import inverse_bound, program_of, prove_rank, round_point
from lawful.conservation.regions.module_data import BALLS
from lawful.program.core.jets import lift
from lawful.verify.conservation.module import Fields, dyadics
from lawful.verify.core.program import read_steps
from reproduction.claims.example_modules import EXAMPLES, Attention

REFUSED = (CertificateError, NotACertificate, Unsupported)


class Everything(nn.Module):
    """Tokens, a causal softmax, a rotation, slices, a gate, pieces and norms: all kinds of steps."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(5, 4), nn.LayerNorm(4)
        self.mix, self.last = nn.Linear(4, 12), nn.Linear(4, 3)
        self.register_buffer("angle", torch.arange(3.0))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        stream = self.table(tokens)
        query, key, value = self.mix(self.norm(stream)).chunk(3, dim=-1)
        turned = query * torch.cos(self.angle)[:, None] + query.flip(-1) * torch.sin(self.angle)[:, None]
        found = nn.functional.scaled_dot_product_attention(turned, key, value, is_causal=True)
        stream = stream + nn.functional.leaky_relu(found) * torch.sigmoid(found)
        return torch.log_softmax(self.last(nn.functional.elu(stream).mean(dim=1)), -1) + torch.tanh(value[:, 0, :3])


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, stride=2, groups=2), nn.Softplus(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(4, 3), nn.GELU("tanh"), nn.Linear(3, 2), nn.Softmax(-1),
    )  # fmt: skip


PROGRAMS = {
    "everything": (Everything, (3,)),
    "convolutional": (convolutional, (2, 4, 4)),
    "attention": (lambda: Attention(3, 2), (4, 3)),
    "batch norm": (lambda: nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.GELU(), nn.Linear(3, 1)), (2,)),
}


def sampled(name: str, mode: str = "eval") -> tuple[Any, Any, np.ndarray, torch.Tensor, torch.Tensor, np.ndarray]:
    torch.manual_seed(0)
    make, shape = PROGRAMS[name]
    case = probe(make(), shape, mode=mode)
    rows = 4 if mode == "train" else 1
    generator = torch.Generator().manual_seed(1)
    if case.vocabulary is None:
        inputs = torch.randint(-128, 128, (3, rows, *shape), generator=generator).double() / 64
        flat = inputs.reshape(3, -1).numpy()
    else:
        inputs = torch.randint(case.vocabulary, (3, rows, *shape), generator=generator)
        flat = nn.functional.one_hot(inputs, case.vocabulary).reshape(3, -1).double().numpy()
    weights = torch.randint(-128, 128, (3, rows, *case.output_shape), generator=generator).double() / 64
    theta = np.round(case.theta(0, 1.0).numpy() * 2**16) / 2**16
    return case, lower(case, inputs[0]), theta, inputs, weights, flat


@pytest.mark.parametrize(("name", "mode"), [*((name, "eval") for name in PROGRAMS), ("batch norm", "train")])
def test_the_program_has_the_brackets_of_the_module(name: str, mode: str) -> None:
    """Reverse mode over jets beside PyTorch's nested derivatives, up to two brackets deep."""
    case, program, theta, inputs, weights, flat = sampled(name, mode)
    fields = Sampled(program, theta, flat, weights.reshape(3, -1).numpy())
    for word in ([0], [1, 0], [2, 1, 0]):
        samples = [(inputs[k], weights[k], torch.zeros(0), torch.zeros(())) for k in reversed(word)]
        with composite():
            expected = _bracket(_field(case, GradientFlow()), len(word) - 1)(torch.tensor(theta), samples)
        found = fields.brackets(np.array([word]))[0]
        assert np.allclose(found, expected.detach().numpy(), atol=1e-10 * float(expected.abs().max()))


@pytest.mark.parametrize("name", ["everything", "convolutional", "attention"])
def test_two_programs_enclose_the_same_numbers(name: str) -> None:
    """The maker's jets and the verifier's Taylor series overlap, and contain what float64 computes."""
    _, program, theta, _, weights, flat = sampled(name)
    whole = np.round(theta * 2**16).astype(int), np.round(flat * 64).astype(int)
    ends = np.round(weights.reshape(3, -1).numpy() * 64).astype(int)
    steps = read_steps([step_of(step) for step in program.steps])
    words = np.array([[2, 1, 0], [0, 2, 1]])
    before = flint.ctx.prec
    flint.ctx.prec = 128
    try:
        point, samples, last = (lift(part, BALLS) for part in (whole[0] / 2**16, whole[1] / 2**6, ends / 2**6))
        ours = Sampled(program, point, samples, last).brackets(words)
        theirs = Fields(
            steps, dyadics([whole[0].tolist()], 16), dyadics(whole[1].tolist(), 6), dyadics(ends.tolist(), 6)
        ).brackets(words.tolist())
    finally:
        flint.ctx.prec = before
    rough = Sampled(program, theta, flat, weights.reshape(3, -1).numpy()).brackets(words)
    assert all(a.overlaps(b) for a, b in zip(ours.ravel(), theirs.ravel(), strict=True))
    middle = np.array([float(a.mid()) for a in ours.ravel()]).reshape(rough.shape)
    assert np.allclose(middle, rough, atol=1e-9 * np.abs(rough).max())


def step_of(step: Any) -> Any:
    from lawful.conservation.certificate import _step

    return _step(step)


SMALL = ["attention, inner width 2", "two convolutions", "residual block", "layer norm", "batch norm", "GELU", "SiLU"]


@pytest.mark.parametrize("name", SMALL)
def test_small_modules_are_proved_and_verified(name: str) -> None:
    torch.manual_seed(0)
    make, shape, laws = EXAMPLES[name]
    count = count_laws(make(), input_shape=shape)
    assert (count.laws, count.status, count.claim) == (laws, "proved", "somewhere")
    assert count.arithmetic == ("exact" if name in ("two convolutions", "residual block") else "balls")
    assert count.proof is not None
    assert count.proof.bound < 1
    found = verify(certificate(count))
    assert found.facts["laws"] == laws
    assert f"at most {laws} independent laws" in found.statement


PIECES = {
    "max pooling": (
        lambda: nn.Sequential(nn.Conv1d(1, 3, 2), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(6, 2)),
        (1, 6),
        3,
    ),
    "transposed": (
        lambda: nn.Sequential(nn.Conv1d(1, 2, 2), nn.ReLU(), nn.ConvTranspose1d(2, 1, 3, stride=2, padding=1)),
        (1, 4),
        2,
    ),
    "trained slopes": (lambda: nn.Sequential(nn.Linear(2, 3), nn.PReLU(3), nn.Linear(3, 2)), (2,), 3),
    "clamped": (lambda: nn.Sequential(nn.Linear(2, 3), nn.Hardtanh(), nn.Linear(3, 2)), (2,), 0),
    "weight norm": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 3)), nn.ReLU(), nn.Linear(3, 2)),
        (2,),
        6,
    ),
}


@pytest.mark.parametrize("name", PIECES)
def test_modules_made_of_pieces_are_proved(name: str) -> None:
    """Counted by closure with reverse over reverse derivatives; of weight norm, ‖v‖ of every row is conserved."""
    torch.manual_seed(0)
    make, shape, laws = PIECES[name]
    count = count_laws(make(), input_shape=shape)
    assert (count.laws, count.independent, count.status) == (laws, laws, "proved")
    assert verify(certificate(count)).facts["laws"] == laws


class Chosen(nn.Module):
    """Comparisons, clamps, maxima and a product of three."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(3, 4)
        self.pair, self.turned = nn.Bilinear(3, 3, 4), nn.ConvTranspose2d(2, 4, 3, stride=2, padding=1, groups=2)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        a, b = self.first(batch), self.second(batch)
        where = torch.where(~(a <= 0.1), a.clamp(-1, 0.5), torch.minimum(a, b).abs() + nn.functional.hardswish(a))
        tall = self.turned(torch.stack([a, b], 1)[..., None]).amax(-1)[:, :, :4].max(1)[0]
        return where + self.pair(batch, 2 * batch) + nn.functional.normalize(torch.maximum(a, b), dim=-1) + tall


def test_choices_compute_what_pytorch_computes() -> None:
    torch.manual_seed(0)
    case = probe(Chosen(), (3,), mode="eval")
    inputs = torch.randn(1, 3, dtype=torch.float64)
    theta, weights = case.theta(0, 1.0), torch.randn(1, 1, 4, dtype=torch.float64)
    fields = Sampled(lower(case, inputs), theta.numpy(), inputs.numpy(), weights.reshape(1, -1).numpy())
    expected = torch.func.grad(case.value)(theta, inputs, weights[0])
    assert np.allclose(fields.brackets(np.array([[0]]))[0], expected.numpy())


class Almost(nn.Module):
    """Its neurons are balanced but for a term that float64 does not see, and 60 binary digits neither."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(2, 2), nn.Linear(2, 1)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        hidden = self.first(batch)
        return self.last(torch.relu(hidden)) + 2.0**-90 * torch.sin(hidden).sum(-1, keepdim=True)


def test_a_law_that_holds_to_ninety_digits_is_none() -> None:
    torch.manual_seed(0)
    module = Almost()
    count = count_laws(module, input_shape=(2,))
    assert (count.laws, count.independent, count.status) == (2, 0, "numerical")
    assert "not as identities" in count.reason
    plain = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1), nn.Identity(), nn.Flatten())
    case = probe(module, (2,))
    proof = prove_rank(case, program_of(case), case.size - 2, round_point(case.theta(0, 1.0).numpy()), 0)
    assert proof is not None
    balances = count_laws(nn.Sequential(*plain, nn.BatchNorm1d(1, affine=False)), input_shape=(2,), mode="eval").known
    forged = certificate(replace(count, proof=proof, known=balances, independent=2, status="proved"))
    with pytest.raises(CertificateError, match="no identities"):
        verify(forged)


def test_a_bound_that_is_too_good_is_not_proved() -> None:
    """Attention of inner width 2 reaches 18 directions: 19 must fail."""
    torch.manual_seed(0)
    case = probe(Attention(3, 2), (4, 3))
    theta = round_point(case.theta(0, 1.0).numpy())
    assert prove_rank(case, program_of(case), 18, theta, 0) is not None
    assert prove_rank(case, program_of(case), 19, theta, 0) is None


def test_matrices_that_are_not_proved_invertible() -> None:
    one, wide = flint.arb(1), flint.arb(1, 2)
    singular = np.array([[one, one], [one, one]], dtype=object)
    assert inverse_bound(singular, 128) is None
    assert inverse_bound(np.array([[wide]], dtype=object), 128) is None
    assert inverse_bound(np.array([[one, one], [flint.arb(0), one]], dtype=object), 128) == 0


@pytest.fixture(scope="module")
def proof() -> dict[str, Any]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.Linear(3, 1))
    return certificate(count_laws(module, input_shape=(2,)))


def forged(proof: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return copy.deepcopy(proof) | changes


def test_forgeries_are_refused(proof: dict[str, Any]) -> None:
    verify(proof)
    laws, words, known = proof["laws"], proof["words"], proof["known"]
    lies: list[dict[str, Any]] = [
        {"laws": laws - 1},
        {"laws": laws + 1, "words": words[:-1], "columns": proof["columns"][:-1]},
        {"laws": laws - 1, "words": [*words, words[0]], "columns": [*proof["columns"], 0]},
        {"words": [words[1], *words[1:]]},
        {"words": [*words[:-1], [0, 0]]},
        {"columns": [proof["columns"][1], *proof["columns"][1:]]},
        {"known": known[:-1]},
        {"known": [known[0], *known[:-1]]},
        {"known": [[[[0], "1"]], *known[1:]]},
        {"classes": 1},
        {"classes": 2},
        {"theta": [0] * len(proof["theta"])},
        {"precision": 5000},
        {"theta_bits": -1},
        {"steps": proof["steps"][:-1]},
        {"words": []},
    ]
    for lie in lies:
        with pytest.raises(REFUSED):
            verify(forged(proof, **lie))


def test_programs_that_are_none(proof: dict[str, Any]) -> None:
    first, second, *rest = proof["steps"]
    for steps in (
        [second, first, *rest],
        [first, second, {"kind": "exp", "sources": [5]}, *rest],
        [first, second, {"kind": "magic", "sources": [0]}, *rest],
        [first, second, {"kind": "take", "sources": [0], "indices": [10**6]}, *rest],
        [first, second, {"kind": "matmul", "sources": [0, 1], "sizes": [1, 1, 1, 1]}, *rest],
        [first, second, {"kind": "add", "sources": [0, 1]}, *rest],
        [first, second, {"kind": "sum", "sources": [0], "sizes": [0]}, *rest],
        [first, second],
    ):
        with pytest.raises(REFUSED):
            verify(forged(proof, steps=steps))


def test_cross_entropy_has_fields_that_sum_to_zero() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 3))
    count = count_laws(nn.Sequential(*module, nn.Identity()), input_shape=(2,), loss="cross-entropy")
    assert (count.laws, count.status) == (3, "proved")  # the sums over outputs of two weights and a bias
    found = certificate(count)
    assert verify(found).facts["loss"] == "cross-entropy over 3 classes"
    with pytest.raises(REFUSED):
        verify(forged(found, classes=0, weights=[[row[0] + 1, *row[1:]] for row in found["weights"]]))


def test_directions_beyond_identities_are_rounding() -> None:
    """Float64 may see a direction too many (once an error): identities win, and without a program nobody does."""
    module = nn.Sequential(nn.Conv1d(1, 2, 2), nn.ReLU(), nn.Conv1d(2, 1, 2))
    search = ProofSearch(probe(module, (1, 4)))
    laws = list(module_laws(module, (1, 4)))
    run = BracketRun((8, 10, 10), 1e4, [], laws)
    assert _within(run, 11, search).dimensions == (8, 9, 9)
    no_laws = [Law("weight", (), {(edge,): Fraction(1)}) for edge in (0, 1)]
    assert _within(run._replace(laws=no_laws), 11, search).dimensions == (8, 10, 10)
    search.program = None
    found = _within(run, 11, search)
    assert (found.dimensions[-1], found.doubt[:32]) == (9, "10 directions beside 2 laws, of ")


def test_operations_without_a_rule_leave_the_count_numerical() -> None:
    class Unusual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return torch.special.bessel_j0(self.layer(batch)) + self.layer(batch)

    count = count_laws(Unusual(), input_shape=(2,))
    assert count.status in ("numerical", "undecided")
    with pytest.raises(Unsupported, match="no proof covers"):
        lower(probe(Unusual(), (2,)), torch.zeros(1, 2, dtype=torch.float64))


class SmallGpt(nn.Module):
    """One layer of GPT-2's shape with real-valued inputs: LayerNorm, fused QKV, two heads, GELU, learned positions."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.table, self.positions = nn.Parameter(torch.randn(5, 4)), nn.Parameter(torch.randn(3, 4))
        self.first, self.second, self.last = nn.LayerNorm(4), nn.LayerNorm(4), nn.LayerNorm(4)
        self.mix, self.out = nn.Linear(4, 12), nn.Linear(4, 4)
        self.up, self.down = nn.Linear(4, 3), nn.Linear(3, 4)
        self.head = None if tied else nn.Linear(4, 5, bias=False)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        stream = batch @ self.table + self.positions
        parts = self.mix(self.first(stream)).chunk(3, dim=-1)
        query, key, value = (part.view(len(batch), 3, 2, 2).transpose(1, 2) for part in parts)
        heads = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        stream = stream + self.out(heads.transpose(1, 2).reshape(len(batch), 3, 4))
        stream = self.last(stream + self.down(nn.functional.gelu(self.up(self.second(stream)))))
        return stream @ self.table.T if self.head is None else self.head(stream)


class SmallLlama(nn.Module):
    """One layer of Llama's shape: RMSNorm, rotary embedding, two query heads on one key/value head, SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(5, 4))
        self.first, self.second, self.last = (nn.RMSNorm(4, eps=1e-5) for _ in range(3))
        self.query, self.key, self.value = (nn.Linear(4, width, bias=False) for width in (4, 2, 2))
        self.out, self.head = nn.Linear(4, 4, bias=False), nn.Linear(4, 5, bias=False)
        self.gate, self.up, self.down = (nn.Linear(*ends, bias=False) for ends in ((4, 3), (4, 3), (3, 4)))
        angle = torch.arange(3.0)[:, None]
        self.register_buffer("cosine", torch.cos(angle))
        self.register_buffer("sine", torch.sin(angle))

    def turned(self, heads: torch.Tensor) -> torch.Tensor:
        first, second = heads.chunk(2, dim=-1)
        return torch.cat([first * self.cosine - second * self.sine, first * self.sine + second * self.cosine], dim=-1)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        stream = batch @ self.table
        inner = self.first(stream)
        query = self.turned(self.query(inner).view(len(batch), 3, 2, 2).transpose(1, 2))
        key = self.turned(self.key(inner)[:, None]).expand(-1, 2, -1, -1)
        value = self.value(inner)[:, None].expand(-1, 2, -1, -1)
        heads = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        stream = stream + self.out(heads.transpose(1, 2).reshape(len(batch), 3, 4))
        inner = self.second(stream)
        stream = stream + self.down(nn.functional.silu(self.gate(inner)) * self.up(inner))
        return self.head(self.last(stream))


@pytest.mark.parametrize(("make", "laws"), [(lambda: SmallGpt(tied=True), 36), (SmallLlama, 19)])
def test_whole_transformers_are_proved(make: Any, laws: int) -> None:
    """Per layer h·d_h(d_h+1) + 3d + (d+1) + (ff+1) and T; kv·d_h/2 + kv·d_h(d_h+1)/2 + 2d + ff, and d for the head."""
    torch.manual_seed(0)
    count = count_laws(make(), input_shape=(3, 5))
    assert (count.laws, count.independent, count.status) == (laws, laws, "proved")
    assert verify(certificate(count)).facts["laws"] == laws


def test_a_proof_that_takes_too_long_is_left_at_once_and_says_so() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))
    left = count_laws(module, input_shape=(2,), seconds=0.0)
    assert left.status == "numerical"
    assert left.proof is None
    assert "more than the 0 s that it is granted (--seconds)" in left.reason
    assert count_laws(module, input_shape=(2,)).proved
