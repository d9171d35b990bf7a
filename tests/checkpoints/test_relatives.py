"""Sketches that no disguise changes, an index of them, relatives found among strangers; merging after alignment."""

from __future__ import annotations

import copy
import json
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from torch import nn

from lawful.api.checkpoints.index import checkpoints_in, find, index_folder
from lawful.checkpoints.architecture import check_numbers
from lawful.checkpoints.group.axis_actions import frames, move_tensors
from lawful.checkpoints.group.random_members import draw
from lawful.checkpoints.identity.sketch import sketch
from lawful.checkpoints.merge import barrier, merge_pair
from lawful.checkpoints.opening import open_checkpoints
from lawful.checkpoints.read_architecture import read_architecture
from lawful.checkpoints.rewrite.folds import apply_folds
from lawful.errors import LawfulError
from lawful.symmetry import symmetries
from lawful.symmetry.orbit import disguise

DIGITS = load_digits()
X, Y = torch.tensor(DIGITS.data / 16.0, dtype=torch.float32), torch.tensor(DIGITS.target)


def _perceptron(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 10))


def _trained(module: nn.Module, steps: int, seed: int, rate: float = 1e-3) -> nn.Module:
    generator, optimiser = torch.Generator().manual_seed(seed), torch.optim.Adam(module.parameters(), lr=rate)
    for _ in range(steps):
        rows = torch.randint(len(X), (64,), generator=generator)
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(X[rows]), Y[rows]).backward()
        optimiser.step()
    return module


class Block(nn.Module):
    """Attention with tied queries' width, a gain before it, and a GELU layer: rotations, heads, units."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, activation="gelu", batch_first=True, norm_first=True)
        self.out = nn.Linear(8, 11)

    def forward(self, ids):
        return self.out(self.layer(self.tokens(ids)))


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_a_single_number_that_is_none_is_found_wherever_it_stands(kind):
    largest = torch.full((3, 37), torch.finfo(kind).max, dtype=kind)
    check_numbers({"w": largest, "none": torch.zeros(0, dtype=kind), "ids": torch.arange(3)}, "it")
    for value in (torch.nan, torch.inf, -torch.inf):
        for place in (0, 17, 36, 37, 110):
            for tensor in (largest.clone(), largest.clone().T):
                tensor[place % len(tensor), place // len(tensor)] = value
                with pytest.raises(LawfulError, match="it: w holds NaN"):
                    check_numbers({"w": tensor}, "it")


@pytest.mark.parametrize("make", ["perceptron", "convolutions", "transformer"])
def test_a_sketch_does_not_change_in_disguise(make):
    torch.manual_seed(0)
    module, size = {
        "perceptron": (_perceptron(0), (64,)),
        "convolutions": (nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 2), nn.ReLU(), nn.Flatten(),
                                       nn.Linear(3 * 25, 5)), (1, 8, 8)),
        "transformer": (Block().eval(), "6:int"),
    }[make]  # fmt: skip
    module = module.double()
    other = disguise(module, size, symmetries(module, size, mode="eval"), seed=3).weights
    found = read_architecture(module, size)
    one, two = sketch(found, found.state()), sketch(found, found.state(other))
    assert len(one) >= 3 or make == "transformer"
    assert np.abs(one - two).max() < 1e-5
    assert np.linalg.norm(one, axis=1) == pytest.approx(1.0, abs=1e-5)
    folded = apply_folds({name: tensor.double() for name, tensor in found.state().items()}, found.folds)
    turned = folded | move_tensors(
        folded, frames(found.group, draw(found.group, np.random.default_rng(1))), list(found.group.shapes)
    )
    bare = replace(found, folds=())
    assert np.abs(sketch(bare, folded) - sketch(bare, turned)).max() < 1e-5  # rotated streams, other heads too


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """20 strangers trained on digits, and four children of the first: fine-tuned, low rank, pruned, rounded to int8."""
    place = tmp_path_factory.mktemp("zoo")
    parent = _trained(_perceptron(0), 250, 0)
    save_file(parent.state_dict(), place / "parent.safetensors")
    for seed in range(1, 21):
        save_file(_trained(_perceptron(seed), 150, seed).state_dict(), place / f"stranger{seed}.safetensors")
    tuned = _trained(copy.deepcopy(parent), 150, 99)
    lora, pruned, rounded = (copy.deepcopy(parent) for _ in range(3))
    with torch.no_grad():
        weight = lora[0].weight
        weight += 0.3 * weight.norm() / 15 * torch.outer(torch.randn(32), torch.randn(64)) / 45
        for module in pruned:
            if isinstance(module, nn.Linear):
                cut = module.weight.abs().flatten().kthvalue(module.weight.numel() // 10).values
                module.weight *= module.weight.abs() > cut
        for each in rounded.parameters():
            step = each.abs().max() / 127
            each.copy_((each / step).round() * step)
    children = {"tuned": tuned, "lora": lora, "pruned": pruned, "rounded": rounded}
    (place / "children").mkdir()
    for name, module in children.items():
        save_file(module.state_dict(), place / "children" / f"{name}.safetensors")
    twin = disguise(parent, (64,), symmetries(parent, (64,), mode="eval"), seed=5)
    save_file(
        {name: tensor.contiguous() for name, tensor in twin.weights.items()},
        place / "children" / "disguised.safetensors",
    )
    return place


def test_children_are_found_among_strangers(folder):
    """All children first, then a gap, then all strangers: separated completely."""
    index = folder / "index.sqlite"
    done = index_folder([folder], index, model=lambda: _perceptron(0), input=(64,))
    assert (done.added, done.kept, done.failed) == (26, 0, ())
    again = index_folder([folder], index, model=lambda: _perceptron(0), input=(64,))
    assert (again.added, again.kept) == (0, 26)
    found = find(folder / "parent.safetensors", index, model=lambda: _perceptron(0), input=(64,), top=25)
    assert (found.compared, found.calibrated) == (25, True)
    names = [each.path.rsplit("/", 1)[1].removesuffix(".safetensors") for each in found.relatives]
    assert set(names[:5]) == {"tuned", "lora", "pruned", "rounded", "disguised"}
    assert found.relatives[names.index("disguised")].likeness > 0.999
    assert found.relatives[4].likeness > 0.5 > 0.2 > found.relatives[5].likeness
    # The tree joins the family before any stranger comes in.
    groups = {number: {number} for number in range(len(found.tree) + 1)}
    for number, join in enumerate(found.tree, len(groups)):
        groups[number] = groups[join.groups[0]] | groups[join.groups[1]]
    assert {0, 1, 2, 3, 4, 5} in groups.values()
    assert groups[number] == set(range(len(found.tree) + 1))
    joined = [join.groups for join in found.tree]
    assert len({group for pair in joined for group in pair}) == 2 * len(joined), "each group is joined once"


def test_perceptrons_need_no_model(folder, lawful):
    index = folder / "plain.sqlite"
    made = lawful("fingerprint", folder, "--index", index, "--activation", "relu", "--json").json
    assert (made["added"], made["unread"]) == (26, [])
    found = lawful("find", folder / "parent.safetensors", "--index", index, "--top", 3, "--json").json
    assert len(found["relatives"]) == 3
    assert all("children" in each["path"] for each in found["relatives"])
    assert found["certified"] is False
    text = lawful("find", folder / "children" / "tuned.safetensors", "--index", index).stdout
    assert "no proof" in text


def test_many_are_sketched_by_other_processes_and_what_is_finished_stays(tmp_path, monkeypatch):
    """The sweep's folder keeps finished sketches if the process dies before the index has them; then it goes."""
    for seed in range(6):
        save_file(_perceptron(seed).state_dict(), tmp_path / f"{seed}.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"not this")
    alone, many = tmp_path / "alone.sqlite", tmp_path / "many.sqlite"
    index_folder([tmp_path], alone)

    def killed(*given, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("lawful.api.checkpoints.index.Store", killed)
    with pytest.raises(KeyboardInterrupt):
        index_folder([tmp_path], many, workers=1)
    monkeypatch.undo()
    assert (tmp_path / "many.sqlite.sweep" / "results.sqlite").exists()
    done = index_folder([tmp_path], many, workers=1)
    assert (done.added, done.kept, len(done.failed)) == (6, 0, 1)
    assert not (tmp_path / "many.sqlite.sweep").exists()
    rows = [
        sqlite3.connect(file).execute("select * from checkpoints order by path").fetchall() for file in (alone, many)
    ]
    assert rows[0] == rows[1]
    (tmp_path / "broken.safetensors").unlink()  # it would be tried again, by a process that takes seconds to start
    assert index_folder([tmp_path], many, workers=1).kept == 6
    with pytest.raises(LawfulError, match="module:factory"):
        index_folder([tmp_path], tmp_path / "other.sqlite", model=lambda: _perceptron(0), input=(64,), workers=1)


def test_identical_files_are_named_so(tmp_path):
    for name in ("a", "b"):
        save_file(_perceptron(1).state_dict(), tmp_path / f"{name}.safetensors")
    index = tmp_path / "i.sqlite"
    index_folder([tmp_path], index, model=lambda: _perceptron(0), input=(64,))
    found = find(tmp_path / "a.safetensors", index, model=lambda: _perceptron(0), input=(64,))
    assert [(each.identical, round(each.likeness, 3)) for each in found.relatives] == [(True, 1.0)]
    assert not found.calibrated


def test_bad_input(tmp_path, lawful):
    state = _perceptron(0).state_dict()
    save_file(state, tmp_path / "good.safetensors")
    save_file(state | {"0.weight": torch.full((32, 64), float("nan"))}, tmp_path / "nan.safetensors")
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "good.safetensors").read_bytes()[:200])
    (tmp_path / "link.safetensors").symlink_to(tmp_path / "nowhere")
    index = tmp_path / "i.sqlite"
    done = index_folder([tmp_path], index)
    assert done.added == 1
    assert len(done.failed) == 3
    with pytest.raises(LawfulError, match="NaN or infinite"):  # the other blocks of its sketch would say something
        find(tmp_path / "nan.safetensors", index, model=lambda: _perceptron(0), input=(64,))
    with pytest.raises(LawfulError, match="no such file"):
        checkpoints_in([tmp_path / "nowhere"])
    with pytest.raises(LawfulError, match="at least 1"):
        find(tmp_path / "good.safetensors", index, top=0)
    (tmp_path / "text.sqlite").write_text("not a database, but a text of some length")
    assert (
        "not an index"
        in lawful("find", tmp_path / "good.safetensors", "--index", tmp_path / "text.sqlite", code=2).stderr
    )
    sqlite3.connect(tmp_path / "other.sqlite").execute("create table t (a)").connection.commit()
    assert (
        "another version"
        in lawful("find", tmp_path / "good.safetensors", "--index", tmp_path / "other.sqlite", code=2).stderr
    )
    store = sqlite3.connect(tmp_path / "older.sqlite")
    store.execute("pragma user_version = 2")
    store.execute("create table checkpoints (path text)").connection.commit()
    with pytest.raises(LawfulError, match="another version"):  # its sketches are not comparable with new ones
        index_folder([tmp_path / "good.safetensors"], tmp_path / "older.sqlite")
    assert lawful("find", tmp_path / "good.safetensors", "--index", tmp_path / "absent.sqlite", code=2).stderr
    save_file({"0.weight": torch.randn(3, 2), "2.weight": torch.randn(1, 3)}, tmp_path / "small.safetensors")
    assert "undecided" in lawful("find", tmp_path / "small.safetensors", "--index", index, code=3).stdout


def test_hostile_index_is_data(tmp_path):
    """A view that never ends, and sketches of the wrong size or with NaN."""
    save_file(_perceptron(0).state_dict(), tmp_path / "good.safetensors")
    index = tmp_path / "i.sqlite"
    index_folder([tmp_path], index)
    store = sqlite3.connect(index)
    store.execute("update checkpoints set sketch = ?, path = 'x'", (b"\0" * 12,))
    store.commit()
    with pytest.raises(LawfulError, match="damaged"):
        find(tmp_path / "good.safetensors", index)
    blocks = store.execute("select blocks from checkpoints").fetchone()[0]
    store.execute("update checkpoints set sketch = ?", (np.full(64 * blocks, np.nan, dtype="<f4").tobytes(),))
    store.commit()
    with pytest.raises(LawfulError, match="not finite"):
        find(tmp_path / "good.safetensors", index)
    store.execute("drop table checkpoints")
    store.execute(
        "create view checkpoints as with recursive n(k) as (select 1 union all select k + 1 from n) "
        "select k as path, k as digest, k as sketch, 'f' as family, 3 as blocks from n"
    )
    store.commit()
    with pytest.raises(LawfulError, match="cannot be used"):
        find(tmp_path / "good.safetensors", index)


# Merging


def test_the_barrier_falls_with_alignment():
    """Git Re-Basin (Ainsworth 2023) on a small trained perceptron, with scales: two trainings, one disguised."""
    one = _trained(_perceptron(0), 300, 0)
    near = _trained(copy.deepcopy(one), 100, 7)
    group = read_architecture(one, (64,)).group  # neurons change places, and are scaled
    state = dict(near.double().state_dict())
    two = state | move_tensors(state, frames(group, draw(group, np.random.default_rng(2))), list(group.shapes))
    pair = open_checkpoints(one, two, model=one, input=(64,))

    def loss(outputs):
        return float(nn.functional.cross_entropy(outputs[0], Y))

    found = merge_pair(pair, inputs=[X.double()], loss=loss)
    before, after = found.line.barriers
    assert before > 1.0
    assert after < 0.05
    assert found.aligned.after < 0.5 < found.aligned.before


def test_merge_on_the_command_line(lawful, tmp_path):
    one = _trained(_perceptron(0), 100, 0)
    two = _trained(copy.deepcopy(one), 50, 1)
    for name, module in (("a", one), ("b", two)):
        save_file(module.state_dict(), tmp_path / f"{name}.safetensors")
    np.savez(tmp_path / "data.npz", x=X.numpy()[:200], y=Y.numpy()[:200])
    files = [tmp_path / "a.safetensors", tmp_path / "b.safetensors"]
    options = ["--activation", "relu", "--data", tmp_path / "data.npz", "--out", tmp_path / "mean.safetensors"]
    found = lawful("merge", *files, *options, "--json").json
    assert len(found["line"]["steps"]) == 11
    assert max(found["line"]["barrier_after"], found["line"]["barrier_before"]) < 0.05
    from safetensors.torch import load_file

    _perceptron(0).load_state_dict(load_file(tmp_path / "mean.safetensors"), strict=True)
    assert "barrier" in lawful("merge", *files, *options).stdout
    assert "between 0 and 1" in lawful("merge", *files, "--activation", "relu", "--weight", 2, code=2).stderr
    np.savez(tmp_path / "bare.npz", x=X.numpy()[:5])
    bare = lawful("merge", *files, "--activation", "relu", "--data", tmp_path / "bare.npz", code=2)
    assert "needs targets" in bare.stderr
    json.dumps(found)


def test_barrier_of_a_line_is_zero():
    assert barrier(np.array([0.0, 0.5, 1.0]), np.array([1.0, 1.5, 2.0])) == 0.0
