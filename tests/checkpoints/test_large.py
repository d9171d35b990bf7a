"""What large modules need: tensors made one by one, graphs carried out call by call, modules without weights."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints.conftest import architecture, disguise, narrow, wide
from checkpoints.models import FAMILIES, make
from safetensors.torch import load_file, save_file

from lawful.checkpoints import architecture as reading
from lawful.checkpoints.align import assignment, lazy_tensors
from lawful.checkpoints.align.align import shiftless_alone
from lawful.checkpoints.align.lazy_tensors import MadeTensors, folded_rows, folded_tensors
from lawful.checkpoints.compare.certificate import _Matrices, copy_certificate
from lawful.checkpoints.compare.decide import same_checkpoints
from lawful.checkpoints.compare.entries import compare
from lawful.checkpoints.compare.exact_element import ExactElement
from lawful.checkpoints.group.axis_actions import as_rows, frames, in_shape, move_tensors
from lawful.checkpoints.group.random_members import draw, random_shifts
from lawful.checkpoints.group.spaces import AxisRows, BlockMove, Kind, MatrixBlock, OrbitGroup, UnitSpace, turning
from lawful.checkpoints.merge import merge_pair
from lawful.checkpoints.opening import CheckpointPair, OpenCheckpoint, open_checkpoints
from lawful.checkpoints.placement import align_pair
from lawful.checkpoints.read_architecture import read_architecture
from lawful.checkpoints.rewrite.folds import State, apply_folds
from lawful.cli.checkpoints import FloatTensors
from lawful.errors import CertificateError, LawfulError
from lawful.formats.tensors.safetensors import write_tensors
from lawful.sources.checkpoints.save import write_weights
from lawful.verify import verify


@pytest.mark.parametrize("family", FAMILIES)
def test_the_graph_computes_what_the_module_computes(family: str) -> None:
    found = architecture(family)
    many = [found.draw_inputs(seed) for seed in range(2)]
    for inputs, outputs in zip(many, found.replays(found.state(), many), strict=True):
        expected = found.outputs(found.state(), inputs)
        assert all(torch.allclose(one, two, rtol=1e-6) for one, two in zip(expected, outputs, strict=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_clusters_fold_like_the_whole(family: str) -> None:
    found = architecture(family)
    state = {name: t.double() if t.is_floating_point() else t for name, t in found.state().items()}
    whole, parts = apply_folds(state, found.folds), folded_tensors(state, found.folds)
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


@pytest.mark.parametrize("family", FAMILIES)
def test_some_rows_fold_like_all_of_them(family: str) -> None:
    found = architecture(family)
    kinds = dict.fromkeys(found.state(), torch.float64)
    whole = folded_tensors(found.state(), found.folds)
    for name, tensor in found.state().items():
        for axis in range(tensor.ndim if tensor.is_floating_point() else 0):
            places = np.arange(tensor.shape[axis])[::2]
            some = folded_rows(found.state(), found.folds, name, axis, places, kinds)
            if some is not None:
                assert torch.allclose(some, whole[name].index_select(axis, torch.as_tensor(places)), rtol=1e-12)


def test_a_tensor_without_its_shifts_does_not_see_them() -> None:
    found = architecture("gpt")
    state = wide(found.state())
    steps = random_shifts(found.group, np.random.default_rng(0))
    assert steps
    for name, pieces in steps.items():
        shifted = sum(pieces, state[name])
        one, two = (shiftless_alone(each, name, found.group.shifts) for each in (state[name], shifted))
        assert not torch.allclose(shifted, state[name])
        assert torch.allclose(one, two, atol=1e-9)


def test_two_of_the_largest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_tensors, "_SHELF", lazy_tensors._Shelf())  # what other tests left there takes room
    monkeypatch.setattr(lazy_tensors, "KEPT", 100)
    made: list[str] = []

    def make_one(name: str) -> State:
        made.append(name)
        return {name: torch.zeros(1000)}

    tensors = MadeTensors("abc", make_one)
    for name in "ababcbca":
        tensors[name]
    assert "".join(made) == "abca"


@pytest.mark.parametrize("family", ["gpt", "llama", "resnet"])
def test_large_modules_get_the_same_answers(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every threshold of size at nothing: no tensor is kept, nothing is read from the module."""
    monkeypatch.setattr(reading, "MANY_NUMBERS", 0)
    monkeypatch.setattr(lazy_tensors, "KEPT", 0)
    monkeypatch.setattr(lazy_tensors, "FEW", 0)
    monkeypatch.setattr(lazy_tensors, "MANY", 100)  # matrices in float32, vectors in float64
    found = read_architecture(make(family), FAMILIES[family][1])
    assert found.large
    assert found.notes == ()
    for kind, word in ((torch.float32, "equal"), (torch.bfloat16, "rounded")):
        hidden = narrow(disguise(found, found.state(), 1), kind)
        assert same_checkpoints(found, found.state(), hidden).verdict == word
    name = next(name for name, shape in found.group.shapes.items() if len(shape) > 1)
    hidden = narrow(disguise(found, found.state(), 1), torch.float32)
    hidden[name] = hidden[name] * 1.01
    assert same_checkpoints(found, found.state(), hidden).verdict == "different"


def test_made_tensors_are_kept_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_tensors, "_SHELF", lazy_tensors._Shelf())  # what other tests left there takes room
    monkeypatch.setattr(lazy_tensors, "KEPT", 100)
    made: list[str] = []

    def make_one(name: str) -> dict[str, torch.Tensor]:
        made.append(name)
        return {name: torch.zeros(10)}

    tensors = MadeTensors("abc", make_one)
    for name in "aabbcc":
        assert tensors[name].shape == (10,)
    assert tensors["b"].shape == (10,)
    assert made == ["a", "b", "c"]
    assert tensors["a"].shape == (10,)  # was let go: two have room
    tensors.forget("a")
    assert tensors["a"].shape == (10,)
    assert made == ["a", "b", "c", "a", "a"]
    with pytest.raises(KeyError):
        tensors["d"]


def test_a_large_folder_of_hugging_face_is_read_without_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    monkeypatch.setattr(reading, "MANY_NUMBERS", 0)
    monkeypatch.setattr("lawful.checkpoints.opening.MANY_NUMBERS", 0)
    settings = {"vocab_size": 60, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32}  # fmt: skip
    config = transformers.LlamaConfig(**settings, architectures=["LlamaForCausalLM"])
    torch.manual_seed(0)
    module = transformers.LlamaForCausalLM(config)
    for name in ("a", "b"):
        module.save_pretrained(tmp_path / name)
    pair = open_checkpoints(tmp_path / "a", tmp_path / "b")
    assert pair.architecture.large
    hidden = disguise(pair.architecture, pair.first.state, 2)
    kept = {pair.first.keys[name]: tensor.bfloat16() for name, tensor in hidden.items() if name in pair.first.keys}
    save_file(kept, tmp_path / "b" / "model.safetensors")
    pair = open_checkpoints(tmp_path / "a", tmp_path / "b")
    verdict = same_checkpoints(pair.architecture, pair.first.state, pair.second.state)
    assert verdict.verdict == "rounded"
    files = [FloatTensors(tmp_path / name) for name in ("a", "b")]
    assert verify(copy_certificate(pair, verdict), *files).facts["tensors"] == len(files[0])


def test_the_verifier_asks_for_one_cluster_of_tensors_at_a_time() -> None:
    """Files are mappings: what is alive at one time is what folds join, and not a whole file."""
    found = architecture("gpt")
    hidden = narrow(disguise(found, found.state(), 2), torch.float32)
    pair = CheckpointPair(
        found, *(OpenCheckpoint(state, {name: name for name in state}, "") for state in (found.state(), hidden))
    )
    certificate = copy_certificate(pair, same_checkpoints(found, pair.first.state, pair.second.state))
    made: list[weakref.ref[Watched]] = []
    most = 0

    class File(Mapping[str, np.ndarray]):
        def __init__(self, state: State) -> None:
            self.state = {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}

        def __getitem__(self, name: str) -> np.ndarray:
            nonlocal most
            array = self.state[name].double().numpy().view(Watched)
            made.append(weakref.ref(array))
            most = max(most, sum(each.nbytes for one in made if (each := one()) is not None))
            return array

        def __iter__(self) -> Iterator[str]:
            return iter(self.state)

        def __len__(self) -> int:
            return len(self.state)

    files = File(pair.first.state), File(pair.second.state)
    assert verify(certificate, *files).facts["tensors"] == len(files[0])
    whole = sum(8 * tensor.numel() for tensor in files[0].state.values())
    assert most < whole  # of the two files together


class Watched(np.ndarray):
    """An array that can be referred to weakly."""


@pytest.mark.parametrize("family", ["llama", "gpt"])
def test_large_tensors_are_measured_in_parts(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = architecture(family)
    hidden = narrow(disguise(found, found.state(), 3), torch.float32)
    whole = compare(found, found.state(), hidden).distances
    monkeypatch.setattr("lawful.checkpoints.compare.distances.SLAB", 40)
    for one, two in zip(whole, compare(found, found.state(), hidden).distances, strict=True):
        assert (one.tensor, one.exact, one.moved_only) == (two.tensor, two.exact, two.moved_only)
        for field in ("relative", "noise", "entry", "excess", "off", "size"):
            assert getattr(one, field) == pytest.approx(getattr(two, field), rel=1e-6)


@pytest.mark.parametrize("kind", ["O", "O fixing 1"])
@pytest.mark.parametrize("dim", [0, 1])
def test_a_reflection_acts_like_its_matrix(kind: Kind, dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lawful.checkpoints.group.random_members.MIRRORED", 1)
    rows = AxisRows("w", (dim,), np.arange(6)[:, None], (1.0,))
    group = OrbitGroup((MatrixBlock("w", 6, kind, (rows,)),), (), {"w": (6, 6)}, 0)
    move = draw(group, np.random.default_rng(0), mirrored=True)[0]
    assert isinstance(move, BlockMove)
    mirror = np.eye(6) - 2 * np.outer(move.matrix, move.matrix)
    assert kind == "O" or np.allclose(mirror @ np.ones(6), 1.0)
    tensor = torch.randn(6, 6, dtype=torch.float64)
    dense = move_tensors({"w": tensor}, frames(group, {0: BlockMove(mirror)}))["w"]
    acting = frames(group, {0: move})
    assert torch.allclose(move_tensors({"w": tensor}, acting)["w"], dense)
    assert torch.allclose(move_tensors({"w": dense}, acting, back=True)["w"], tensor)


@pytest.mark.parametrize("family", ["llama", "gpt"])
def test_of_many_units_a_few_columns_tell_most_apart(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Matched by every third column first, units with a twin by all; the answers are the same."""
    found = architecture(family)
    state = {name: tensor.clone() for name, tensor in found.state().items()}
    space = next(space for space in found.group.spaces if isinstance(space, UnitSpace) and space.permutes)
    for rows in space.members:
        picked = as_rows(state[rows.tensor], rows.dims)
        picked[rows.places[1, 0]] = picked[rows.places[0, 0]]
        state[rows.tensor] = in_shape(picked, rows.dims, state[rows.tensor].shape)
    hidden = narrow(disguise(found, state, 4), torch.float32)
    whole = compare(found, state, hidden)
    monkeypatch.setattr(assignment, "MANY_UNITS", 2)
    monkeypatch.setattr(assignment, "FEW", 3)
    some = compare(found, state, hidden)
    assert whole.fits
    assert some.fits
    stranger = {name: tensor.flip(0) for name, tensor in hidden.items()}
    assert not compare(found, state, stranger).fits


@pytest.mark.parametrize(("change", "words"), [
    (lambda state, name: {**state, name: state[name] * torch.inf}, "NaN or infinite"),
    (lambda state, name: {**state, name: state[name].to(torch.int8)}, "int8"),
    (lambda state, name: {key: tensor for key, tensor in state.items() if key != name}, "has no"),
    (lambda state, name: {**state, name: state[name][:-1]}, "and that of"),
])  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_before_its_architecture_is_read(
    change: Callable[[State, str], State], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: object, **__: object) -> None:
        raise AssertionError("the graph was read first")

    monkeypatch.setattr("lawful.checkpoints.read_architecture.read_architecture", late)
    module = make("mlp")
    state = dict(module.state_dict())
    with pytest.raises(LawfulError, match=words):
        open_checkpoints(state, change(state, next(iter(state))), model=module, input=FAMILIES["mlp"][1])


def test_certificates_of_coarse_files_hold_matrices_in_single_precision() -> None:
    found = architecture("llama")
    coarse = {name: tensor.bfloat16() for name, tensor in found.state().items()}
    sizes = {}
    for kind, state in ((torch.float32, found.state()), (torch.bfloat16, coarse)):
        hidden = narrow(disguise(found, state, 2), kind)
        pair = CheckpointPair(
            found, *(OpenCheckpoint(each, {name: name for name in each}, "") for each in (state, hidden))
        )
        certificate = copy_certificate(pair, same_checkpoints(found, state, hidden))
        sizes[kind] = sum(len(each.get("values", "")) for each in certificate["matrices"])
        files = [{name: tensor.double().numpy() for name, tensor in each.items()} for each in (state, hidden)]
        assert verify(certificate, *files).facts["numbers"] == sum(array.size for array in files[0].values())
        rows = next(iter(files[1].values()))
        rows[0] = rows[0] * 1.5
        with pytest.raises(CertificateError):
            verify(certificate, *files)
    assert sizes[torch.bfloat16] < 0.7 * sizes[torch.float32]


def test_certificates_list_the_matrix_that_is_given_never_its_rounded_inverse() -> None:
    block = MatrixBlock("", 4, "rotary", (), ((0, 2), (1, 3)))
    rng = np.random.default_rng(0)
    for _ in range(500):  # nine are what the inverse of their inverse is rounded to
        matrix = turning(block, rng.normal(size=2) + 1j * rng.normal(size=2))
        dual = np.asarray(np.linalg.inv(matrix).T)
        matrices = _Matrices(ExactElement({}, {}, primary=frozenset([matrix.tobytes()])), narrow=False)
        numbers = matrices.place(dual, matrix), matrices.place(matrix, dual)
        assert ["dual" in each for each in matrices.json()] == [True, False]
        assert numbers == (0, 1)


def test_what_a_large_module_is_aligned_to_is_written_tensor_by_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, (_, size) = make("mlp"), FAMILIES["mlp"]
    hidden = narrow(disguise(architecture("mlp"), dict(module.state_dict()), 2), torch.float32)
    save_file({name: tensor.contiguous() for name, tensor in hidden.items()}, tmp_path / "b.safetensors")
    pair = open_checkpoints(module, tmp_path / "b.safetensors", model=module, input=size)
    small, mean = align_pair(pair).weights, merge_pair(pair).weights
    monkeypatch.setattr(reading, "MANY_NUMBERS", 0)
    monkeypatch.setattr(lazy_tensors, "KEPT", 0)
    monkeypatch.setattr(lazy_tensors, "FEW", 0)
    made = align_pair(pair).weights
    assert isinstance(small, dict)
    assert not isinstance(made, dict)
    asked: list[str] = []

    class Counted(MadeTensors):
        def __getitem__(self, name: str) -> torch.Tensor:
            asked.append(name)
            return made[name]

    write_weights(Counted(made, lambda name: {}), tmp_path / "c.safetensors", like=tmp_path / "b.safetensors")
    read = load_file(tmp_path / "c.safetensors")
    assert sorted(asked) == sorted(small)  # each once
    assert all(torch.equal(read[name], tensor) for name, tensor in small.items())
    assert all(torch.equal(tensor, mean[name]) for name, tensor in merge_pair(pair).weights.items())


def test_tensors_of_all_types_are_written_one_by_one(tmp_path: Path) -> None:
    state = {"byte": torch.tensor([True, False, True]), "half": torch.randn(3).bfloat16(), "none": torch.zeros(0, 2),
             "one": torch.tensor(7), "wide": torch.randn(2, 3, dtype=torch.float64).T}  # fmt: skip
    described = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in state.items()}
    write_tensors(tmp_path / "a.safetensors", described, state.__getitem__, {"format": "pt"})
    read = load_file(tmp_path / "a.safetensors")
    assert all(torch.equal(read[name], tensor) and read[name].dtype == tensor.dtype for name, tensor in state.items())
    with pytest.raises(LawfulError, match="is of shape"):
        write_tensors(tmp_path / "b.safetensors", {"one": (torch.int64, (1,))}, state.__getitem__)
    with pytest.raises(LawfulError, match="is not written"):
        write_tensors(tmp_path / "b.safetensors", {"one": (torch.complex64, ())}, state.__getitem__)
