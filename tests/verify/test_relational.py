"""Two assignments run beside each other: group elements are proved, and whatever changes outputs is refused by node."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints.conftest import architecture
from checkpoints.test_same import certified
from torch import nn
from torch.nn import functional

from lawful.checkpoints.architecture import CheckpointArchitecture
from lawful.checkpoints.compare.certificate import list_program, tensors_digest
from lawful.checkpoints.read_architecture import read_architecture
from lawful.errors import CertificateError, NotACertificate
from lawful.verify import verify
from lawful.verify.checkpoints.element import ListedFrame
from lawful.verify.checkpoints.folds import ListedMove, read_folds
from lawful.verify.core.residues import Lanes
from lawful.verify.relational.growth import parameter_growth, words_of
from lawful.verify.relational.prove import Proof, prove


class Post(nn.Module):
    """BERT's shape: norms after the sums, biases of queries, keys and values apart, a tied table."""

    def __init__(self, width: int = 8, heads: int = 2, inner: int = 12) -> None:
        super().__init__()
        self.heads = heads
        self.token, self.place = nn.Embedding(20, width), nn.Parameter(torch.randn(4, width))
        self.start, self.middle, self.end = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.start(self.token(x) + self.place)
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        read = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = self.middle(x + self.out(read))
        x = self.end(x + self.down(functional.gelu(self.up(x))))
        return x @ self.token.weight.T


def lenet() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3, padding=1),
                         nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(24, 8), nn.ReLU(),
                         nn.Linear(8, 3))  # fmt: skip


OTHERS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "lenet": (lenet, "1,8,8"),
    "bert": (Post, "4:int"),
    "relu": (lambda: nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2)), "3"),
    "tanh": (lambda: nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)), "3"),
    "linear": (lambda: nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), "3"),
}


@cache
def read(family: str) -> CheckpointArchitecture:
    if family not in OTHERS:
        return architecture(family)
    torch.manual_seed(0)
    return read_architecture(OTHERS[family][0]().eval(), OTHERS[family][1])


class Claim:
    """What happens to the axes of tensors, exactly."""

    def __init__(self, family: str) -> None:
        self.found = read(family)
        state = self.found.state()
        self.shapes = {name: tuple(tensor.shape) for name, tensor in state.items() if tensor.is_floating_point()}
        assert self.found.program is not None
        self.program = list_program(self.found.program, list(self.shapes), (), state)
        self.frames: dict[str, list[ListedFrame]] = {}
        self.forms: list[Any] = []
        self.shifts: dict[str, list[np.ndarray]] = {}
        self.folds: list[Any] = []

    def put(self, names: str, dim: int, source: Any = None, factor: Any = None, divisor: Any = None, rows: Any = (),
            form: Any = None) -> Claim:  # fmt: skip
        """A permutation, factors and a matrix along one dimension of tensors."""
        for name in names.split():
            count = self.shapes[name][dim]
            ones = np.ones(count)
            top = ones if factor is None else np.array(factor, dtype=float)
            below = ones if divisor is None else np.array(divisor, dtype=float)
            order = np.arange(count) if source is None else np.array(source)
            numbers = []
            if form is not None:
                self.forms.append(form)
                numbers = [(len(self.forms) - 1, np.array(rows))]
            frame = ListedFrame((dim,), order, top / below, [], set(), numbers, (top, below))
            self.frames.setdefault(name, []).append(frame)
        return self

    def prove(self) -> Proof:
        def held(name: str) -> tuple[np.ndarray, np.ndarray]:
            value = self.found.state()[name].double().numpy()
            return value, value

        folds = read_folds(self.folds, self.shapes)
        return prove(self.program, self.shapes, folds, self.frames, self.shifts, self.forms, held)

    def proved(self) -> bool:
        proof = self.prove()
        assert not proof.open, proof.open
        return True

    def refused_at(self, *operators: str) -> None:
        with pytest.raises(CertificateError, match=r"its values part at %\d+ ") as refusal:
            self.prove()
        assert str(refusal.value).split()[-1] in operators, refusal.value


SWAPPED = [4, 5, 6, 7, 0, 1, 2, 3]  # two heads of four
KEPT = list(range(8))
BLOCK = "blocks.0."


def fused(*parts: list[int]) -> list[int]:
    return [8 * part + row for part, rows in enumerate(parts) for row in rows]


def gpt_heads(q: list[int], k: list[int], v: list[int], out: list[int]) -> Claim:
    rows = fused(q, k, v)
    return Claim("gpt").put(f"{BLOCK}qkv.weight {BLOCK}qkv.bias", 0, rows).put(f"{BLOCK}out.weight", 1, out)


def test_heads_that_change_places_together_are_proved() -> None:
    assert gpt_heads(SWAPPED, SWAPPED, SWAPPED, SWAPPED).proved()


@pytest.mark.parametrize("moved", ["qk", "q", "k", "v", "o", "vo", "qko", "qkv"])
def test_heads_that_change_places_on_one_side_are_refused(moved: str) -> None:
    claim = gpt_heads(*(SWAPPED if each in moved else KEPT for each in "qkvo"))
    claim.refused_at("softmax", "normalise")


def units(family: str, factor: Any, divisor: Any = None, order: Any = None) -> Claim:
    claim = Claim(family).put("0.weight 0.bias", 0, order, factor, divisor)
    return claim.put("2.weight", 1, order, divisor, factor)


def test_units_of_relu_have_positive_factors_and_those_of_tanh_signs() -> None:
    order = [3, 1, 0, 2, 5, 4]
    assert units("relu", [2.0, 3.0, 0.1, 1e-9, 7e9, 1.0], order=order).proved()
    assert units("relu", [1.0, 1.0, 0.7, 1.0, 1.0, 1.0], [3.0, 0.3, 5.0, 1e-300, 1.0, 1.0]).proved()
    assert units("tanh", [-1.0, 1.0, 1.0, -1.0, 1.0, 1.0], order=order).proved()
    units("relu", [-1.0, 1.0, 1.0, 1.0, 1.0, 1.0]).refused_at("relu")
    units("relu", [-1e-200, 1.0, 1.0, 1.0, 1.0, 1.0]).refused_at("relu")
    units("tanh", [2.0, 1.0, 1.0, 1.0, 1.0, 1.0]).refused_at("tanh")


def test_a_factor_whose_inverse_is_rounded_is_refused() -> None:
    claim = Claim("relu").put("0.weight 0.bias", 0, None, [3.0, 1, 1, 1, 1, 1])
    claim.put("2.weight", 1, None, [1 / 3.0, 1, 1, 1, 1, 1]).refused_at("add", "contract")


@pytest.mark.parametrize("bits", [200, 900])
def test_the_sign_of_a_product_of_many_factors_is_never_guessed(bits: int) -> None:
    """A factor that is listed in no frame by itself has residues of some small number with probability 2^-64 alone."""
    claim = Claim("relu")
    numerators = np.array([-(2.0**bits) - 2.0 ** (bits - 50), 1, 1, 1, 1, 1])
    claim.put("0.weight 0.bias", 0, None, numerators).put("2.weight", 1, None, None, numerators).refused_at("relu")


def test_all_of_gl_acts_between_linear_layers_and_its_inverse_undoes_it() -> None:
    matrix = np.random.default_rng(0).normal(size=(4, 4))

    def mixed(dual: Any) -> Claim:
        claim = Claim("linear").put("0.weight", 0, rows=[range(4)], form=matrix)
        claim.put("0.bias", 0, rows=[range(4)], form=matrix)
        return claim.put("1.weight", 1, rows=[range(4)], form=dual)

    assert mixed(0).proved()
    mixed(np.linalg.inv(matrix).T).refused_at("add", "contract")  # a rounded inverse is none


def test_channels_pass_pools_and_a_flattening() -> None:
    def moved(places: Any, kernel: Any = None) -> Claim:
        order, factor = [2, 0, 1, 3], [2.0, 1.0, 0.5, 3.0]
        claim = Claim("lenet").put("0.weight 0.bias", 0, order, factor).put("3.weight", 1, order, None, factor)
        if kernel is not None:
            claim.put("3.weight", 3, kernel)
        second = [5, 4, 3, 2, 1, 0]
        claim.put("3.weight 3.bias", 0, second)
        return claim.put("7.weight", 1, places(second))

    def right(second: list[int]) -> list[int]:
        return [4 * channel + place for channel in second for place in range(4)]

    assert moved(right).proved()
    moved(lambda second: [channel + 6 * place for place in range(4) for channel in second]).refused_at("relu")
    moved(right, [2, 1, 0]).refused_at("relu")
    claim = Claim("lenet").put("0.weight 0.bias", 0, None, [-1.0, 1, 1, 1])
    claim.put("3.weight", 1, None, [-1.0, 1, 1, 1]).refused_at("relu", "amax")


def test_a_rotation_of_the_stream_has_to_fix_one_under_layernorm() -> None:
    """Writers and readers of the residual stream are all turned: only the norm can tell."""
    signs = np.array([-1.0, 1, 1, 1, 1, 1, 1, 1])

    def turned(**acting: Any) -> Claim:
        claim = Claim("gpt").put("token.weight position", 1, **acting)
        for block in ("blocks.0.", "blocks.1."):
            claim.put(f"{block}out.weight {block}down.weight {block}out.bias {block}down.bias", 0, **acting)
            claim.put(f"{block}first.weight {block}second.weight", 0, acting.get("source"))
            claim.put(f"{block}first.bias {block}second.bias", 0, **acting)
            claim.put(f"{block}qkv.weight {block}up.weight", 1, **acting)
        claim.put("last.weight", 0, acting.get("source")).put("last.bias", 0, **acting)
        return claim.put("head.weight", 1, **acting)

    assert turned(source=[3, 1, 2, 0, 7, 6, 5, 4]).proved()
    turned(factor=signs).refused_at("normalise")
    Claim("gpt").put("token.weight", 1, [1, 0, 2, 3, 4, 5, 6, 7]).refused_at("normalise")


def test_words_and_positions_stay_where_they_are() -> None:
    words = [1, 0, *range(2, 40)]
    Claim("gpt").put("position", 0, [1, 0, 2]).refused_at("normalise")
    Claim("llama").put("token.weight", 0, words).refused_at("normalise")
    Claim("llama").put("head.weight", 0, words).refused_at("contract")
    Claim("gpt-tied").put("token.weight", 0, words).refused_at("normalise", "contract")


@pytest.mark.parametrize("factor", [2.0, -1.0])
def test_gelu_has_no_factors(factor: float) -> None:
    claim = Claim("gpt").put(f"{BLOCK}up.weight {BLOCK}up.bias", 0, None, [factor] + [1.0] * 11)
    claim.put(f"{BLOCK}down.weight", 1, None, None, [factor] + [1.0] * 11).refused_at("erf", "normalise")


def rotary(*phases: tuple[float, float]) -> np.ndarray:
    found = np.zeros((4, 4))
    for i, (a, b) in enumerate(phases):
        found[i, i] = found[i + 2, i + 2] = a
        found[i + 2, i], found[i, i + 2] = b, -b
    return found


def keys_and_queries(query: Any, key: Any) -> Claim:
    """Llama with 4 heads of 4 in two groups."""
    claim = Claim("llama").put(f"{BLOCK}q.weight", 0, rows=[range(4 * h, 4 * h + 4) for h in range(4)], form=query)
    return claim.put(f"{BLOCK}k.weight", 0, rows=[range(4 * h, 4 * h + 4) for h in range(2)], form=key)


def test_rotary_pairs_have_phases_and_sizes_and_nothing_else() -> None:
    phases = rotary((0.6, 0.8), (2.0, -0.5))
    assert keys_and_queries(phases, 0).proved()
    keys_and_queries(phases, rotary((0.6, 0.8), (0.5, 0.25))).refused_at("softmax")
    adjacent = np.kron(np.eye(2), np.array([[0.0, -1.0], [1.0, 0.0]]))
    keys_and_queries(adjacent, adjacent).refused_at("softmax")
    pairs = np.eye(4)[[1, 0, 3, 2]]
    keys_and_queries(pairs, pairs).refused_at("softmax")
    keys_and_queries(np.random.default_rng(1).normal(size=(4, 4)), 0).refused_at("softmax")


def test_query_heads_stay_in_their_group() -> None:
    def queries(heads: list[int]) -> Claim:
        rows = [4 * h + i for h in heads for i in range(4)]
        return Claim("llama").put(f"{BLOCK}q.weight", 0, rows).put(f"{BLOCK}out.weight", 1, rows)

    assert queries([1, 0, 3, 2]).proved()
    queries([2, 1, 0, 3]).refused_at("softmax")


def test_gates_have_no_signs_and_what_they_multiply_has() -> None:
    signs = [-1.0] + [1.0] * 11
    assert Claim("llama").put(f"{BLOCK}up.weight", 0, None, signs).put(f"{BLOCK}down.weight", 1, None, signs).proved()
    claim = Claim("llama").put(f"{BLOCK}gate.weight", 0, None, signs)
    claim.put(f"{BLOCK}down.weight", 1, None, signs).refused_at("sigmoid", "normalise")


def test_rmsnorm_knows_the_size_of_its_stream() -> None:
    twice = np.full(16, 2.0)
    claim = Claim("llama").put("token.weight", 1, None, twice)
    for block in ("blocks.0.", "blocks.1."):
        claim.put(f"{block}out.weight {block}down.weight", 0, None, twice)
    claim.refused_at("normalise")


def test_gains_are_folded_into_all_their_readers_or_not_at_all() -> None:
    def folded(*readers: str) -> Claim:
        claim = Claim("llama")
        listed = [{"weight": f"{BLOCK}{name}.weight", "axis": 1, "bias": None} for name in readers]
        claim.folds = [{"fold": "gain", "gain": f"{BLOCK}first.weight", "offset": None, "plus": 0.0,
                        "readers": listed, "centred": False}]  # fmt: skip
        return claim

    assert folded("q", "k", "v").proved()
    folded("q", "k").refused_at("normalise")
    folded("q", "v").refused_at("softmax")
    wrong = folded("q", "k", "v")
    wrong.folds[0]["centred"] = True  # RMSNorm sees means
    wrong.refused_at("softmax")
    wrong = folded("q", "k", "v")
    wrong.folds[0]["plus"] = 1.0
    wrong.refused_at("softmax", "normalise")


def test_statistics_are_folded_with_their_own_epsilon() -> None:
    def folded(epsilon: float = 1e-5, bias: str | None = "first.b.bias") -> Claim:
        claim = Claim("resnet")
        writer = {"weight": "first.b.weight", "axis": 0, "bias": bias}
        claim.folds = [{"fold": "statistics", "gain": "first.m.weight", "offset": "first.m.bias",
                        "mean": "first.m.running_mean", "variance": "first.m.running_var", "epsilon": epsilon,
                        "writer": writer}]  # fmt: skip
        return claim

    assert folded().proved()
    folded(1e-4).refused_at("power", "relu")
    folded(bias=None).refused_at("power", "relu")
    claim = Claim("resnet").put("first.n.running_var", 0, None, [4.0] * 5)
    claim.put("first.n.weight", 0, None, [2.0] * 5).refused_at("power")


def test_a_writer_of_the_stream_that_is_left_out_is_missed() -> None:
    order = [1, 0, 2, 3, 4, 5]
    claim = Claim("resnet").put("stem.weight norm.weight norm.bias norm.running_mean norm.running_var", 0, order)
    claim.put("first.a.weight down.weight", 1, order)
    names = "first.b.weight first.b.bias first.m.bias first.m.running_mean first.m.running_var"
    claim.put(names, 0, order)
    claim.refused_at("relu")
    assert claim.put("first.m.weight", 0, order).proved()


def test_biases_of_keys_may_shift_and_those_of_queries_and_values_may_not() -> None:
    def shifted(**pieces: Any) -> Claim:
        claim = Claim("bert")
        claim.shifts = {name.replace("_", "."): [np.array(piece, dtype=float)] for name, piece in pieces.items()}
        return claim

    shift = [0.5, -1.0, 0.25, 3.0, 0.0, 1.0, 1.0, 2.0]
    assert shifted(key_bias=shift).proved()
    shifted(query_bias=shift).refused_at("softmax")
    shifted(value_bias=shift).refused_at("normalise")
    assert shifted(out_bias=np.full(1, 2.0)).proved()  # the norm after it takes the mean off
    shifted(up_bias=[1.0] + [0.0] * 11).refused_at("erf")
    shifted(token_weight=np.ones((1, 8)), place=-np.ones((1, 8))).refused_at("contract")  # the table is read twice


def test_what_is_added_in_one_place_may_be_taken_off_in_another() -> None:
    shift = np.random.default_rng(0).normal(size=(1, 8))
    claim = Claim("gpt")
    claim.shifts = {"token.weight": [shift], "position": [-shift]}
    assert claim.proved()
    claim.shifts = {"token.weight": [shift], "position": [-shift * (1 + 2.0**-52)]}
    claim.refused_at("normalise")


@pytest.mark.parametrize("family", ["mlp", "lenet", "resnet", "gpt", "gpt-tied", "llama", "bert", "vit"])
def test_nothing_that_changes_outputs_is_proved(family: str) -> None:
    """A random change of a random axis, beside an evaluation in float64: nothing wrong is shown."""
    found = read(family)
    rng = np.random.default_rng(0)
    state = {name: tensor.double() for name, tensor in found.state().items() if tensor.is_floating_point()}
    rest = {name: tensor for name, tensor in found.state().items() if not tensor.is_floating_point()}
    inputs = [found.draw_inputs(seed) for seed in (1, 2)]
    before = [each[0] for each in found.replays(state | rest, inputs)]
    wrong = 0
    for _ in range(25):
        claim = Claim(family)
        name = str(rng.choice([each for each, shape in claim.shapes.items() if shape]))
        dim = int(rng.integers(len(claim.shapes[name])))
        count = claim.shapes[name][dim]
        order, factor = np.arange(count), np.ones(count)
        if rng.random() < 0.5 and count > 1:
            one, two = rng.choice(count, 2, replace=False)
            order[[one, two]] = order[[two, one]]
        else:
            factor[rng.integers(count)] = rng.choice([-1.0, 2.0, 0.5])
        claim.put(name, dim, order, factor)
        laid = [-1 if k == dim else 1 for k in range(state[name].ndim)]
        changed = (
            state
            | rest
            | {name: state[name].index_select(dim, torch.tensor(order)) * torch.tensor(factor).reshape(laid)}
        )
        after = [each[0] for each in found.replays(changed, inputs)]
        gap = max(float((one - two).abs().max() / one.abs().max()) for one, two in zip(before, after, strict=True))
        try:
            shown = not claim.prove().open
        except CertificateError:
            shown = False
        assert not (shown and gap > 1e-9), (name, dim, gap)
        wrong += gap > 1e-9
    assert wrong > 10


def test_programs_that_do_not_fit_are_no_certificates() -> None:
    claim = Claim("relu")
    assert claim.program is not None
    nodes = claim.program["nodes"]
    place = next(k for k, node in enumerate(nodes) if node[0] == "contract")
    for damaged in (
        [*nodes[:place], ["contract", nodes[place][1], {"spec": "ab,bc->ac"}, nodes[place][3]], *nodes[place + 1 :]],
        [*nodes[:place], [*nodes[place][:3], [9, 9]], *nodes[place + 1 :]],
        [["parameter", [], {"name": "nothing"}, [3]], *nodes],
        [],
    ):
        claim.program = {"nodes": damaged, "outputs": [len(nodes) - 1]}
        with pytest.raises((CertificateError, NotACertificate)):
            claim.prove()
    claim.program = {"nodes": [*nodes, ["mystery", [0], {}, [1]]], "outputs": [len(nodes) - 1]}
    assert claim.prove().open == "mystery"


def test_residues_of_floats_and_fractions_are_exact() -> None:
    field = Lanes()
    values = np.array([0.1, -3.5, 2.0**-1040, 1e300, 0.0])
    for lane, p in enumerate(field.p.tolist()):
        for place, value in enumerate(values.tolist()):
            top, below = value.as_integer_ratio()
            assert int(field.floats(values)[lane, place]) == top * pow(below, -1, p) % p
    one, two = field.draw((5, 70)), field.draw((70, 6))
    made = field.matmul(one, two)
    exact = one[0].astype(object) @ two[0].astype(object) % int(field.p[0])
    assert np.array_equal(made[0].astype(object), exact)
    assert (field.times(one, field.inverse(one)) == 1).all()


def forged(moved: str) -> tuple[dict[str, Any], list[dict[str, np.ndarray]]]:
    """A and A with heads of some parts exchanged, with a certificate that lists just that."""
    state = dict(read("gpt").state())
    rows = fused(*(SWAPPED if each in moved else KEPT for each in "qkv"))
    second = dict(state)
    for name in (f"{BLOCK}qkv.weight", f"{BLOCK}qkv.bias"):
        second[name] = state[name][torch.tensor(rows)]
    certificate, files = certified("gpt", state)
    files[1] = {name: tensor.double().numpy() for name, tensor in second.items()}
    certificate["about"][1] = tensors_digest(second)
    ones = base64.b64encode(np.ones(24).tobytes()).decode()
    back = np.argsort(rows).tolist()
    names = [f"{BLOCK}qkv.weight", f"{BLOCK}qkv.bias"]
    kept = [each for each in certificate["frames"] if each["tensor"] not in names or each["dims"] != [0]]
    certificate["frames"] = kept + [
        {"tensor": name, "dims": [0], "source": back, "factor": ones, "blocks": []} for name in names
    ]
    return certificate, files


def test_a_certificate_of_heads_exchanged_on_one_side_is_rejected() -> None:
    certificate, files = forged("")
    assert verify(json.dumps(certificate), *files).facts["function"]
    certificate, files = forged("q")
    with pytest.raises(CertificateError, match=r"part at .* softmax"):
        verify(json.dumps(certificate), *files)
    certificate.pop("program")
    assert "Not checked" in verify(json.dumps(certificate), *files).statement


def test_a_program_that_leaves_tensors_out_says_so() -> None:
    certificate, files = forged("q")
    certificate["program"] = {"nodes": [["input", [], {"name": "x"}, [2]]], "outputs": [0]}
    found = verify(json.dumps(certificate), *files)
    assert "reads 29 of the tensors not at all" in found.statement
    certificate["program"]["nodes"].append(["parameter", [], {"name": f"{BLOCK}qkv.bias"}, [24]])
    assert "reads 29 of the tensors not at all" in verify(json.dumps(certificate), *files).statement
    certificate["program"]["outputs"] = [1]
    with pytest.raises(CertificateError, match="part at"):
        verify(json.dumps(certificate), *files)


def test_what_a_program_holds_is_read_from_the_files() -> None:
    certificate, files = forged("q")
    held = ["held", [], {"name": f"{BLOCK}qkv.bias"}, [24]]
    certificate["program"] = {"nodes": [held], "outputs": [0]}
    with pytest.raises(CertificateError, match="takes for a constant"):
        verify(json.dumps(certificate), *files)


def test_programs_of_any_size_are_refused_before_memory_is_asked_for() -> None:
    certificate, files = forged("")
    wide = ["take", [0], {"offset": 0, "strides": [0, 0]}, [100_000, 10_000]]
    certificate["program"] = {"nodes": [["input", [], {"name": "x"}, [2]], wide], "outputs": [1]}
    assert "no rule covers programs with so many numbers" in verify(json.dumps(certificate), *files).statement


def whether(nodes: list[Any], frames: dict[str, list[ListedFrame]], shifts: dict[str, list[np.ndarray]]) -> Proof:
    """A small program with parameters c and x of one number each; its last node is the output."""
    leaves = [["parameter", [], {"name": name}, [1]] for name in "cx"]
    zeros = base64.b64encode(zlib.compress(np.zeros(1).tobytes())).decode()
    zero = ["constant", [], {"kind": "f", "values": f"z:{zeros}"}, [1]]
    nodes = [*leaves, zero, *nodes]
    program = {"nodes": nodes, "outputs": [len(nodes) - 1]}
    return prove(program, {"c": (1,), "x": (1,)}, [], frames, shifts, [], lambda name: (np.zeros(1), np.zeros(1)))


def test_numbers_that_are_asked_whether_they_hold_are_no_factors() -> None:
    """where(2c, x/2, 0) is half of where(c, x, 0), though 2c · x/2 is c x; not(c + 3) - 3 is not not(c)."""
    two, half = (
        ListedFrame((0,), np.array([0]), np.array([s]), [], set(), [], (np.array([s]), np.ones(1))) for s in (2.0, 0.5)
    )
    with pytest.raises(CertificateError, match="where"):
        whether([["where", [0, 1, 2], {}, [1]]], {"c": [two], "x": [half]}, {})
    three = {"c": [np.array([3.0])], "x": [np.array([3.0])]}
    with pytest.raises(CertificateError, match="not"):
        whether([["not", [0], {}, [1]], ["add", [1, 3], {}, [1]]], {}, three)
    for op in ("and", "or", "xor"):
        with pytest.raises(CertificateError, match=op):
            whether([[op, [0, 1], {}, [1]]], {"c": [two], "x": [half]}, {})
    assert not whether([["gt", [0, 2], {}, [1]], ["where", [3, 1, 2], {}, [1]]], {"c": [two]}, {}).open


def test_a_few_lines_do_not_take_gigabytes() -> None:
    """Padding is made whole; and values that are read at the end are all kept until then."""
    conv = {"stride": [5000] * 2, "padding": [5000] * 2, "dilation": [1, 1], "groups": 1, "transposed": False,
            "output_padding": [0, 0]}  # fmt: skip
    image = ["input", [], {"name": "x"}, [1, 1, 1, 1]]
    padded = [image, image, ["conv", [0, 1], conv, [1, 1, 3, 3]]]
    wide = [["input", [], {"name": str(k)}, [1_000_000]] for k in range(9)]
    kept = [*wide, ["take", list(range(9)), {"offset": 0, "strides": [0]}, [1]]]
    for nodes in (padded, kept):
        program = {"nodes": nodes, "outputs": [len(nodes) - 1]}
        proof = prove(program, {"c": (1,)}, [], {}, {}, [], lambda name: (np.zeros(1), np.zeros(1)))
        assert proof.open == "programs with so many numbers at a time"


@pytest.mark.parametrize("source", [0, 2])
def test_powers_of_powers_are_not_told_by_their_residues(source: int) -> None:
    """x^E is 1 modulo every p with p - 1 | E, be x a parameter or a number: 1 in 30 of such certificates passed."""
    three = base64.b64encode(zlib.compress(np.full(1, 3.0).tobytes())).decode()
    leaves = [["parameter", [], {"name": name}, [1]] for name in "cx"]
    nodes = [*leaves, ["constant", [], {"kind": "f", "values": f"z:{three}"}, [1]]]
    for turn in range(20):
        nodes.append(["power", [len(nodes) - 1 if turn else source], {"exponent": 64.0}, [1]])
    program = {"nodes": nodes, "outputs": [len(nodes) - 1]}
    proof = prove(program, {"c": (1,), "x": (1,)}, [], {}, {}, [], lambda name: (np.zeros(1), np.zeros(1)))
    assert proof.open == "products of so many values"


def test_the_chance_of_an_error_follows_degrees() -> None:
    claim = Claim("relu")
    assert claim.prove().bits > 40
    assert words_of(np.array([3.0, 0.5])) == 3 / 64  # 6 halves and one
    assert words_of(np.array([2**62 + 1])) > 61 / 64
    shapes = {"c": (1,), "x": (1,)}
    folds = [ListedMove("c", "x")]
    once, thrice = (parameter_growth(shapes, folds * count, {}, {}, [], {})["x"].degree for count in (1, 3))
    assert thrice > once > 2


def test_a_matrix_that_is_dropped_has_its_degree_before() -> None:
    """A determinant is 0 for products of two vectors, which is all that a matrix without degree was drawn as."""
    nodes: list[Any] = [["parameter", [], {"name": "w"}, [2, 2]]]
    nodes += [["take", [0], {"offset": place, "strides": [0]}, [1]] for place in range(4)]
    minus = base64.b64encode(np.full(1, -1.0).tobytes()).decode()
    nodes += [["mul", [1, 4], {}, [1]], ["mul", [2, 3], {}, [1]]]
    nodes += [["constant", [], {"kind": "f", "values": minus}, [1]], ["mul", [6, 7], {}, [1]], ["add", [5, 8], {}, [1]]]
    shapes = {"w": (2, 2)}
    folds = read_folds([{"fold": "drop", "tensor": "w"}], shapes)
    with pytest.raises(CertificateError, match="part at"):
        prove({"nodes": nodes, "outputs": [9]}, shapes, folds, {}, {}, [], lambda name: (np.zeros(1), np.zeros(1)))


def test_quotients_by_what_a_matrix_was_added_to_are_left_open() -> None:
    """g takes over W o and then o' is divided by it: a quotient whose degree in W nobody counts."""
    shapes = {"w": (2, 2), "v": (2, 2), "g": (2,), "o": (2,), "p": (2,)}
    bare = {"fold": "gain", "plus": 0.0, "centred": False}
    folds = [
        {**bare, "gain": None, "offset": "o", "readers": [{"weight": "w", "axis": 1, "bias": "g"}]},
        {**bare, "gain": "g", "offset": "p", "readers": [{"weight": "v", "axis": 1, "bias": None}]},
    ]
    program = {"nodes": [["parameter", [], {"name": "w"}, [2, 2]]], "outputs": [0]}
    no_numbers = np.zeros(1), np.zeros(1)
    proof = prove(program, shapes, read_folds(folds, shapes), {}, {}, [], lambda name: no_numbers)
    assert "a quotient" in proof.open
