"""Whole blocks that leave and training afterwards: classes load what is left; a killed run ends with the same bytes."""

from __future__ import annotations

import copy
import importlib
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from lawful.errors import LawfulError
from lawful.pruning.job import tuning
from lawful.pruning.job.blocks import find_blocks
from lawful.pruning.job.case import JobSamples, read_case
from lawful.pruning.job.job import PruningJob, prune_to_target
from lawful.pruning.job.network import ModuleSubject
from lawful.pruning.job.sizes import read_target
from lawful.pruning.job.tuning import Distillation, read_tune
from tests.command_line import in_process


class Branch(nn.Module):
    """Two layers, normalised before; the sum is `inside` or written by the parent."""

    def __init__(self, width: int, inside: bool) -> None:
        super().__init__()
        self.norm, self.up, self.down, self.inside = (
            nn.LayerNorm(width),
            nn.Linear(width, 12),
            nn.Linear(12, width),
            inside,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.down(functional.gelu(self.up(self.norm(x))))
        return x + out if self.inside else out


class Stream(nn.Module):
    """Residual blocks in a list, in a sequence, or as attributes."""

    def __init__(self, depth: int = 3, how: str = "list") -> None:
        super().__init__()
        self.how, self.stem, self.head = how, nn.Linear(5, 8), nn.Linear(8, 3)
        made = [Branch(8, how != "list") for _ in range(depth)]
        if how == "attributes":
            self.one, self.two, self.three = made
        else:
            self.blocks = nn.Sequential(*made) if how == "sequence" else nn.ModuleList(made)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        if self.how == "attributes":
            x = self.three(self.two(self.one(x)))
        elif self.how == "sequence":
            x = self.blocks(x)
        else:
            for block in self.blocks:
                x = x + block(x)
        return self.head(x)


class Image(nn.Module):
    """Residual blocks of convolutions with batch normalisation, ReLU behind the sum."""

    def __init__(self, depth: int = 2) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(1, 4, 3, 1, 1), nn.Linear(4, 3)
        self.blocks = nn.Sequential(*[Residual() for _ in range(depth)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(functional.relu(self.stem(x))).mean((2, 3)))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 6, 3, 1, 1, bias=False), nn.Conv2d(6, 4, 3, 1, 1, bias=False)
        self.norm, self.last = nn.BatchNorm2d(6), nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(x + self.last(self.second(functional.relu(self.norm(self.first(x))))))


def weak(module: nn.Module, block: str, layer: str) -> nn.Module:
    """One block hardly does anything."""
    torch.manual_seed(1)
    with torch.no_grad():
        for tensor in module.get_submodule(f"{block}.{layer}").parameters():
            tensor.mul_(1e-4)
    return module.eval()


def samples(*size: int, count: int = 120, seed: int = 0) -> JobSamples:
    rng = np.random.default_rng(seed)
    return JobSamples(rng.normal(size=(count, *size)), rng.integers(0, 3, count))


def job(module: nn.Module, data: JobSamples, target: str, **options: Any) -> PruningJob:
    given = {"held_out": samples(*data.x.shape[1:], seed=1), "timed": False} | options
    return prune_to_target(ModuleSubject.of(module), data, read_target(target), **given)


@pytest.mark.parametrize("how", ["list", "sequence"])
def test_a_block_leaves_whole_and_a_shorter_class_loads_what_is_left(how: str) -> None:
    torch.manual_seed(0)
    module = weak(Stream(how=how), "blocks.1", "down")
    found = job(module, samples(5), "params:0.75")
    assert found.blocks == ("blocks.1",)
    assert found.parameters[1] <= 0.75 * found.parameters[0]
    assert found.module is not None
    shorter = Stream(depth=2, how=how)
    shorter.load_state_dict(found.module.state_dict())  # later blocks moved up
    x = torch.randn(20, 5)
    assert torch.equal(shorter.eval()(x), found.module(x))
    assert torch.allclose(found.module(x), module(x), atol=1e-2)
    assert found.sizes[-1].kind == "blocks"
    assert (found.sizes[-1].before, found.sizes[-1].after) == (3, 2)


def test_blocks_without_a_container_leave_a_stand_in() -> None:
    torch.manual_seed(0)
    module = weak(Stream(how="attributes"), "two", "down")
    found = job(module, samples(5), "params:0.75")
    assert found.blocks == ("two",)
    assert found.module is not None
    assert not any(name.startswith("two.") for name in found.module.state_dict())
    assert any("two left: its input stands in its place" in note for note in found.notes)


def test_blocks_of_convolutions() -> None:
    torch.manual_seed(0)
    module = weak(Image(), "blocks.0", "last")
    found = job(module, samples(1, 6, 6), "flops:0.6")
    assert found.blocks == ("blocks.0",)
    assert found.module is not None
    shorter = Image(depth=1).eval()
    shorter.load_state_dict(found.module.state_dict())
    x = torch.randn(9, 1, 6, 6)
    assert torch.allclose(shorter(x), module(x), atol=1e-2)


def test_blocks_stay_where_units_are_better_and_where_they_are_to_stay() -> None:
    """Every block matters, and half of all inner neurons are silent: nothing is gained by less depth."""
    torch.manual_seed(0)
    module = Stream(how="sequence")
    with torch.no_grad():
        for block in module.blocks:
            block.down.weight.mul_(4.0)
            block.down.weight[:, 6:] = 0.0
    found = job(module.eval(), samples(5), "params:0.6")
    assert found.blocks == ()
    assert found.held_out.largest_change < 1e-4
    assert not job(weak(Stream(), "blocks.1", "down"), samples(5), "params:0.75", blocks=False).blocks


def test_a_target_that_units_alone_miss_is_met_without_blocks() -> None:
    torch.manual_seed(0)
    module = Stream(how="sequence").eval()
    with pytest.raises(LawfulError, match="are left when every site"):
        job(module, samples(5), "params:0.25", blocks=False)
    found = job(module, samples(5), "params:0.25")
    assert len(found.blocks) >= 1
    assert found.parameters[1] <= 0.25 * found.parameters[0]


def test_layers_behind_a_block_take_over_what_it_said() -> None:
    """A block that adds a constant is no loss: the next layer's bias follows, though its norm sees another stream."""
    torch.manual_seed(0)
    module = Stream(depth=1, how="sequence").eval()
    with torch.no_grad():
        module.blocks[0].down.weight.zero_()
        module.blocks[0].down.bias.normal_(0, 3)
    found = job(module, samples(5), "params:0.3")
    assert found.blocks == ("blocks.0",)
    assert found.held_out.largest_change < 1e-3


def test_tied_weights_and_configs_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=11, n_positions=8, n_embd=8, n_layer=3, n_head=2)
    model = weak(transformers.GPT2LMHeadModel(config), "transformer.h.1.mlp", "c_proj")
    with torch.no_grad():
        model.transformer.h[1].attn.c_proj.weight.mul_(1e-4)
    rng = np.random.default_rng(0)
    tokens = JobSamples(rng.integers(0, 11, (60, 8)).astype(float))
    found = prune_to_target(
        ModuleSubject.of(model, whole=True), tokens, read_target("params:0.69"), timed=False
    )  # fmt: skip
    assert found.blocks == ("transformer.h.1",)
    assert found.module is not None
    made = type(model)(found.module.config)  # type: ignore[call-arg, arg-type]
    assert made.config.n_layer == 2
    missing, unexpected = made.load_state_dict(found.module.state_dict(), strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    given = torch.as_tensor(tokens.x[:4]).long()
    assert torch.allclose(made.eval()(given).logits, found.module(given)[0], atol=1e-6)


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_units_of_outputs_do_not_decide_which_block_leaves(scale: float) -> None:
    torch.manual_seed(0)
    module = weak(Stream(), "blocks.1", "down")
    with torch.no_grad():
        for tensor in module.head.parameters():
            tensor.mul_(scale)
    assert job(module, samples(5), "params:0.75").blocks == ("blocks.1",)


def test_parts_that_are_used_twice_or_change_sizes_are_no_blocks() -> None:
    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.twice, self.wide = Branch(5, True), nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.wide(self.twice(self.twice(x)))  # type: ignore[no-any-return]

    case = read_case(ModuleSubject.of(Again().eval()), samples(5))
    assert find_blocks(case, "params") == []


def bytes_of(found: PruningJob) -> list[bytes]:
    assert found.module is not None
    return [tensor.detach().numpy().tobytes() for tensor in found.module.state_dict().values()]


def test_no_batch_of_distillation_is_a_single_sample(tmp_path: Path) -> None:
    """Batch normalisation refuses one sample in training, and 65 samples in batches of 64 leave one over."""
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))
    small = copy.deepcopy(module)
    Distillation(1)(small.train(), module, torch.randn(65, 4), None, tmp_path / "progress")
    assert not torch.equal(small[0].weight, module[0].weight)


def test_distillation_that_was_killed_ends_with_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module, data = Stream(how="sequence").eval(), samples(5)
    whole = job(module, data, "params:0.5", tune=Distillation(4))
    saved = tuning._save

    def dies(path: Path, content: dict[str, Any]) -> None:
        saved(path, content)
        if content["epoch"] == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "_save", dies)
    plan = tmp_path / "plan.json"
    with pytest.raises(KeyboardInterrupt):
        job(module, data, "params:0.5", tune=Distillation(4), plan=plan)
    assert list(tmp_path.glob("*.tuning"))
    epochs: list[int] = []
    monkeypatch.setattr(tuning, "_save", lambda path, content: epochs.append(content["epoch"]))
    again = job(module, data, "params:0.5", tune=Distillation(4), plan=plan)
    assert epochs == [3, 4]
    assert bytes_of(again) == bytes_of(whole)
    assert not list(tmp_path.glob("*.tuning"))
    epochs.clear()
    third = job(module, data, "params:0.5", tune=Distillation(4), plan=plan)  # all is there
    assert (epochs, bytes_of(third)) == ([], bytes_of(whole))
    job(module, data, "params:0.5", tune=Distillation(3), plan=plan)  # another tuning starts anew
    assert epochs == [1, 2, 3]


def test_a_process_killed_while_tuning_ends_with_the_same_file(tmp_path: Path) -> None:
    """SIGKILL after the second epoch's checkpoint, from the command line; then the same command again."""
    (tmp_path / "nets.py").write_text(
        "import torch\nfrom torch import nn\ntorch.manual_seed(0)\n"
        "def net(): return nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 3))\n"
    )
    (tmp_path / "tuned.py").write_text(
        textwrap.dedent("""
        import os, signal, torch
        def tune(small, original, x, y, checkpoint):
            start = torch.load(checkpoint, weights_only=True) if checkpoint.exists() else {"epoch": 0}
            if start["epoch"]: small.load_state_dict(start["small"])
            for epoch in range(start["epoch"], 4):
                for tensor in small.parameters():
                    tensor.data += 1e-3 * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(epoch))
                torch.save({"epoch": epoch + 1, "small": small.state_dict()}, checkpoint)
                if epoch == 1 and os.environ.get("DIES"): os.kill(os.getpid(), signal.SIGKILL)
        """)
    )
    data = samples(5)
    np.savez(tmp_path / "data.npz", x=data.x)
    command = [
        sys.executable, "-m", "lawful", "prune", "nets:net", "--input", "5", "--target", "params:0.6",
        "--data", "data.npz", "--tune", "tuned:tune", "--plan",
    ]  # fmt: skip

    def run(plan: str, out: str, **more: str) -> int:
        environment = {**os.environ, **more}
        return subprocess.run(
            [*command, plan, "--out", out], cwd=tmp_path, env=environment, capture_output=True, check=False, timeout=300
        ).returncode

    assert run("a.json", "a.safetensors") == 0
    assert run("b.json", "b.safetensors", DIES="1") == -signal.SIGKILL
    assert not (tmp_path / "b.safetensors").exists()
    assert run("b.json", "b.safetensors") == 0
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_commands_tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(
        textwrap.dedent("""
        import sys
        import numpy as np
        from safetensors.numpy import load_file, save_file
        small, data = load_file(sys.argv[1]), np.load(sys.argv[2])
        assert len(data["x"]) == len(data["outputs"]) == len(data["y"])
        save_file(small, sys.argv[3])
        """)
    )
    monkeypatch.chdir(tmp_path)
    module, data = nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 3)).eval(), samples(5)
    untouched = job(module, data, "params:0.6", tune=lambda *_: None)
    tuned = job(module, data, "params:0.6", tune=read_tune(f"{sys.executable} train.py {{small}} {{data}} {{out}}"))
    assert tuned.tuned
    assert bytes_of(tuned) == bytes_of(untouched)
    for command, said in (
        (f"{sys.executable} -c 'raise SystemExit(3)' {{out}}", "exit code 3"),
        ("no-such-command {out}", "cannot be run"),
        (f"{sys.executable} -c 0 {{out}}", "wrote no weights"),
    ):
        with pytest.raises(LawfulError, match=said):
            job(module, data, "params:0.6", tune=read_tune(command))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("distil:0", "epochs"),
        ("distil:x", "epochs"),
        ("train", "tuning is"),
        ("", "tuning is"),
        ("json:nothing", "imported"),
    ],
)
def test_tunings_that_are_none(text: str, said: str) -> None:
    with pytest.raises(LawfulError, match=said):
        read_tune(text)


def test_blocks_and_distillation_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shallow.py").write_text(
        "from tests.pruning.test_blocks_and_tuning import Stream, weak\nimport torch\n"
        "def net():\n    torch.manual_seed(0)\n    return weak(Stream(how='sequence'), 'blocks.1', 'down')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    data = samples(5, count=200)
    np.savez("data.npz", x=data.x, y=data.labels)
    out = in_process(
        "prune", "shallow:net", "--input", "5", "--target", "params:0.75", "--data", "data.npz", "--tune", "distil:2",
        "--out", "small.safetensors",
    )  # fmt: skip
    assert "whole: 3 -> 2 blocks" in out.stdout
    assert "blocks.1 left" in out.stdout
    kept = in_process(
        "prune", "shallow:net", "--input", "5", "--target", "params:0.75", "--data", "data.npz", "--no-blocks"
    )  # fmt: skip
    assert "blocks.1 left" not in kept.stdout
    save_file(importlib.import_module("shallow").net().state_dict(), "full.safetensors")
    in_process(  # a checkpoint in another format than it came in: the work that is done is written
        "prune", "full.safetensors", "--model", "shallow:net", "--input", "5", "--target", "params:0.75",
        "--data", "data.npz", "--no-blocks", "--out", "small.pt",
    )  # fmt: skip
    assert torch.load("small.pt", weights_only=True).keys() == load_file("full.safetensors").keys()
