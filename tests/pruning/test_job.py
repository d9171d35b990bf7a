"""Pruning to a size: scores and repairs against least squares, costs against counting, intervals against binomials."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional

import lawful
from lawful.errors import LawfulError, Unsupported
from lawful.pruning.job import least_squares
from lawful.pruning.job.case import JobSamples, PruningCase, read_case
from lawful.pruning.job.evidence import agree, clopper_pearson, largest_rank
from lawful.pruning.job.job import PruningJob, prune_to_target
from lawful.pruning.job.least_squares import LayerStatistics, gather, repair, unfold
from lawful.pruning.job.network import ModuleSubject, RunnableProgram
from lawful.pruning.job.score import _Replaced
from lawful.pruning.job.sizes import Target, read_target
from lawful.pruning.job.tuning import read_tune
from lawful.pruning.job.units import Costs, count_macs
from lawful.report.structure.pruning import job_text
from tests.command_line import in_process


class Residual(nn.Module):
    """Convolutions without biases, batch normalisation, one residual sum."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.stem, self.first = nn.Conv2d(1, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.inner, self.second = nn.Conv2d(width, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        self.outer, self.third = nn.Conv2d(8, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.head = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.first(self.stem(x)))
        x = functional.relu(x + self.third(self.outer(functional.relu(self.second(self.inner(x))))))
        return self.head(x.mean((2, 3)))  # type: ignore[no-any-return]


class Attention(nn.Module):
    """One block of attention and an MLP on eight places."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(12)
        self.query, self.key, self.value, self.out = (nn.Linear(12, 12) for _ in range(4))
        self.up, self.down, self.head = nn.Linear(12, 16), nn.Linear(16, 12), nn.Linear(12, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x)
        q, k, v = (layer(h).view(*h.shape[:2], -1, 3).transpose(1, 2) for layer in (self.query, self.key, self.value))
        mixed = (q @ k.transpose(2, 3) / 3**0.5).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(*h.shape[:2], -1))
        return self.head((x + self.down(functional.gelu(self.up(x)))).mean(1))  # type: ignore[no-any-return]


def dense() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 7), nn.ReLU(), nn.Linear(7, 3))


SIZES: dict[Any, tuple[int, ...]] = {dense: (5,), Residual: (1, 5, 5), Attention: (8, 12)}


def made(kind: Any, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    module: nn.Module = kind()
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_(), part.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
    return module.eval()


def samples(kind: Any, count: int = 60, seed: int = 0) -> JobSamples:
    rng = np.random.default_rng(seed)
    return JobSamples(rng.normal(size=(count, *SIZES[kind])), rng.integers(0, 3, count))


def case_of(kind: Any) -> PruningCase:
    return read_case(ModuleSubject.of(made(kind)), samples(kind))


def job(kind: Any, target: str, **options: Any) -> PruningJob:
    given = {"held_out": samples(kind, 40, 1), "timed": False} | options
    return prune_to_target(ModuleSubject.of(made(kind)), samples(kind), read_target(target), **given)


@pytest.mark.parametrize("kind", SIZES)
def test_scores_are_least_squares_after_replacement(kind: Any) -> None:
    """s_j is the minimum of tr(A D G D') over all D that remove unit j's columns: solved column block by block here."""
    case = case_of(kind)
    known = gather(case.network, case.sites, samples(kind).x)
    scores = _Replaced(case.sites, case.state, known, ridge=1e-9)

    def brute(unit: int, gone: set[int]) -> float:
        total = 0.0
        for weight in case.sites.units[unit].places:
            taps, W = case.sites.readers[weight].taps, case.state.arrays[weight]
            W = np.concatenate([W.reshape(len(W), -1), np.zeros((len(W), 1))], 1)
            G, A = known[weight].moments.numpy(), known[weight].minded.numpy()
            G = G + 1e-9 * np.diag(G)[:-1].mean() * np.eye(len(G))

            def columns(number: int, weight: str = weight, taps: int = taps) -> list[int]:
                places = case.sites.units[number].places.get(weight, ())
                return [place * taps + tap for place in places for tap in range(taps)]

            def least(leaving: set[int], W: Any = W, G: Any = G, A: Any = A, columns: Any = columns) -> float:
                out = sorted({at for number in leaving for at in columns(number)})
                stay = [at for at in range(len(G)) if at not in out]
                D = np.zeros_like(W)
                D[:, out] = -W[:, out]
                D[:, stay] = np.linalg.solve(G[np.ix_(stay, stay)], G[np.ix_(stay, out)] @ W[:, out].T).T
                return float(np.trace(A @ D @ G @ D.T))

            total += least({*gone, unit}) - least(gone)
        return total

    for unit in (0, len(case.sites.units) - 1):
        assert scores.current()[unit] == pytest.approx(brute(unit, set()), rel=1e-4, abs=1e-9)
    site = case.sites.sites[-1].units
    scores.remove(site[0])
    assert scores.current()[site[1]] == pytest.approx(brute(site[1], {site[0]}), rel=1e-3, abs=1e-9)


def test_statistics_are_moments_and_gradients() -> None:
    """G against patches cut out by hand, A against autograd on the module itself, with the same random signs."""
    module, case, data = made(Residual), case_of(Residual), samples(Residual, 60)
    found = gather(case.network, case.sites, data.x)["inner.weight"]
    x = torch.tensor(data.x, dtype=torch.float32)
    seen: dict[str, torch.Tensor] = {}
    module.get_submodule("inner").register_forward_hook(lambda part, given, out: seen.update(x=given[0], y=out))
    signs = torch.randint(0, 2, (60, 3), generator=torch.Generator().manual_seed(0)).float() * 2 - 1
    total = (module(x) * signs).sum()
    (slope,) = torch.autograd.grad(total, [seen["y"]])
    patches = functional.pad(seen["x"], (1, 1, 1, 1)).unfold(2, 3, 1).unfold(3, 3, 1)
    rows = patches.permute(0, 2, 3, 1, 4, 5).reshape(-1, 54).detach().double()
    assert torch.allclose(found.moments[:-1, :-1], rows.T @ rows / len(rows), rtol=1e-4, atol=1e-6)
    flat = slope.movedim(1, -1).reshape(-1, 8).double()
    assert torch.allclose(found.minded, flat.T @ flat / 60, rtol=1e-3, atol=1e-7)
    assert isinstance(found, LayerStatistics)


def test_windows_are_those_of_convolutions() -> None:
    for conv in (nn.Conv2d(2, 3, (3, 2), (2, 1), (1, 0), (1, 2)), nn.Conv1d(2, 3, 3, 2, 1)):
        size = (2, 7, 6) if isinstance(conv, nn.Conv2d) else (2, 9)
        program = ModuleSubject.of(conv).read(size, 4)
        node = next(each for each in program.nodes if "stride" in each.attributes)
        x = torch.randn(4, *size)
        rows = unfold(node, x) @ conv.weight.reshape(3, -1).T
        assert torch.allclose(
            rows, (conv(x) - conv.bias.view(-1, *[1] * (len(size) - 1))).movedim(1, -1).reshape(-1, 3), atol=1e-5
        )


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("cost", ["params", "flops"])
def test_predicted_costs_are_those_of_the_smaller_network(kind: Any, cost: str) -> None:
    case = case_of(kind)
    costs = case.costs(cost)
    gone = [site.units[0] for site in case.sites.sites] + [case.sites.sites[-1].units[2]]
    for unit in gone:
        costs.remove(unit)
    small = case.subject.cut(repair(case.network, case.state, case.sites, gone, samples(kind).x), case.size)[1]
    program = small.read(case.size, case.network.batch)
    counted = count_macs(program) if cost == "flops" else sum(node.size for node in program.parameters.values())
    assert costs.now == pytest.approx(counted) == pytest.approx(costs.left)
    costs.restore(gone)
    assert costs.now == pytest.approx(costs.total)


def test_token_ids_are_given_as_text_or_as_an_example() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.up, self.out = nn.Embedding(20, 8), nn.Linear(8, 12), nn.Linear(12, 3)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.out(self.up(self.table(ids).mean(1)).relu())

    module, data = made(Words), np.random.default_rng(0).integers(0, 20, (60, 6))
    jobs = [
        lawful.prune(module, input=given, target="params:0.7", data=data)
        for given in ("6:int", torch.zeros(2, 6, dtype=torch.int64))
    ]
    assert jobs[0].sizes == jobs[1].sizes
    assert jobs[0].parameters[1] < jobs[0].parameters[0]


def test_repair_recovers_what_others_can_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hidden unit that is a sum of two others wherever data lie is no loss, though its weights say nothing of it."""
    module = made(dense)
    with torch.no_grad():
        for place, bias in ((0, 3.0), (1, 3.0)):
            module[0].bias[place] = bias  # active on all the data
        module[0].weight[2], module[0].bias[2] = module[0].weight[:2].sum(0), module[0].bias[:2].sum()
    data = JobSamples(np.random.default_rng(0).uniform(-1, 1, (200, 5)))
    case = read_case(ModuleSubject.of(module), data)
    monkeypatch.setattr(least_squares, "RIDGE", 1e-9)
    new = repair(case.network, case.state, case.sites, [2], data.x)
    gap = case.network.with_tensors(new).outputs(data.x) - case.network.outputs(data.x)
    assert float(gap.abs().max()) < 1e-4
    silent = {name: value for name, value in new.items() if name.endswith("weight")}
    assert all(bool((value[:, 2] == 0).all()) for value in silent.values())


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("criterion", ["replaced", "magnitude", "taylor"])
def test_jobs_meet_their_targets_and_the_result_is_what_was_measured(kind: Any, criterion: Any) -> None:
    found = job(kind, "params:0.7", criterion=criterion)
    assert found.parameters[1] <= 0.7 * found.parameters[0]
    assert found.module is not None
    assert type(found.module) is type(made(kind))
    outside = samples(kind, 40, 1)
    x = torch.tensor(outside.x, dtype=torch.float32)
    with torch.no_grad():
        again = agree(made(kind)(x), found.module(x), outside.labels)
    assert again.unchanged == found.held_out.unchanged
    assert again.largest_change == pytest.approx(found.held_out.largest_change, rel=1e-3)
    assert sum(tensor.numel() for tensor in found.module.parameters()) == found.parameters[1]


class TwoHeads(nn.Module):
    """A trunk with scores of three labels, and two numbers beside them that a layer of their own makes."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.label = nn.Linear(5, 12), nn.Linear(12, 3)
        self.beside = nn.Sequential(nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = functional.relu(self.trunk(x))
        return self.label(h), self.beside(h)


@pytest.mark.parametrize("tune", [None, "distil:2"])
def test_every_output_is_scored_tuned_and_measured(tune: str | None) -> None:
    torch.manual_seed(0)
    module, data, outside = TwoHeads().eval(), samples(dense, 120), samples(dense, 40, 1)
    found = prune_to_target(
        ModuleSubject.of(module), data, read_target("params:0.7"), held_out=outside, timed=False,
        tune=None if tune is None else read_tune(tune),
    )  # fmt: skip
    assert found.module is not None
    x = torch.tensor(outside.x, dtype=torch.float32)
    with torch.no_grad():
        before, after = module(x), found.module(x)
    changes = [float((one - two).abs().max()) for one, two in zip(before, after, strict=True)]
    assert found.held_out.largest_change == pytest.approx(max(changes), rel=1e-4)
    assert found.held_out.unchanged == int((before[0].argmax(1) == after[0].argmax(1)).sum())
    assert found.held_out.accuracy is not None
    assert any("first of 2 outputs" in note for note in found.notes)


def test_a_layer_of_a_second_output_is_not_free() -> None:
    torch.manual_seed(0)
    case = read_case(ModuleSubject.of(TwoHeads()), samples(dense, 120))
    scores = {each.unit: each.score for each in case.order_units("params")}
    beside = [number for number in scores if case.sites.units[number].name.startswith("beside")]
    assert beside
    assert all(scores[number] > 0 for number in beside)


def test_what_a_target_missed_at_the_end_is_said() -> None:
    module, data = made(dense), samples(dense, 300)
    with torch.no_grad():
        labels = module(torch.tensor(data.x, dtype=torch.float32)).argmax(1).numpy()
    shifted = JobSamples(data.x[:50] + 3.0, labels[:50])  # other inputs than those that chose
    found = prune_to_target(
        ModuleSubject.of(module), JobSamples(data.x, labels), read_target("accuracy:80%"), held_out=shifted, timed=False
    )  # fmt: skip
    assert found.held_out.accuracy is not None
    before, after = found.held_out.accuracy
    assert (after < 0.8 * before) == any("less than 80.00%" in note for note in found.notes)


def test_samples_that_only_measure_choose_nothing() -> None:
    one, two = (job(Residual, "flops:0.6", held_out=samples(Residual, 30, seed)) for seed in (5, 6))
    assert one.module is not None
    assert two.module is not None
    for first, second in zip(one.module.state_dict().values(), two.module.state_dict().values(), strict=True):
        assert torch.equal(first, second)


def test_sizes_in_multiples() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 37), nn.ReLU(), nn.Linear(37, 24), nn.ReLU(), nn.Linear(24, 3))
    found = prune_to_target(
        ModuleSubject.of(module), samples(dense), Target("flops", 0.5, multiple=8), timed=False
    )  # fmt: skip
    assert all(size.after % 8 == 0 for size in found.sizes)
    assert 0.2 * found.macs[0] < found.macs[1] <= 0.5 * found.macs[0]


def test_accuracy_is_kept_on_samples_that_choose_sizes() -> None:
    module, data = made(dense), samples(dense, 300)
    with torch.no_grad():
        labels = module(torch.tensor(data.x, dtype=torch.float32)).argmax(1).numpy()
    found = prune_to_target(
        ModuleSubject.of(module), JobSamples(data.x, labels), read_target("accuracy:95%"), timed=False
    )  # fmt: skip
    assert found.chosen_on == 60
    assert found.held_out.samples == 60
    assert found.calibration == 180
    assert found.parameters[1] < found.parameters[0]


def test_plans_resume_and_forged_ones_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    first = job(dense, "params:0.6", plan=path)
    assert job(dense, "params:0.6", plan=path).sizes == first.sizes
    plan = json.loads(path.read_text())
    twice, strange, other = copy.deepcopy(plan), copy.deepcopy(plan), copy.deepcopy(plan)
    twice["order"].append(twice["order"][0])
    strange["order"][0]["unit"] += 1
    other["network"] = "0" * 64
    for forged, said in ((twice, "twice"), (strange, "no unit"), (other, "another network"), ([], "no plan")):
        path.write_text(json.dumps(forged))
        with pytest.raises(LawfulError, match=said):
            job(dense, "params:0.6", plan=path)


def test_tuning_is_kept_only_where_it_helps() -> None:
    def spoil(small: nn.Module, *_: Any) -> None:
        with torch.no_grad():
            for tensor in small.parameters():
                tensor.zero_()

    module, data = made(dense), samples(dense, 100)
    with torch.no_grad():
        known = JobSamples(data.x, module(torch.tensor(data.x, dtype=torch.float32)).argmax(1).numpy())
    target = read_target("params:0.8")
    kept = prune_to_target(ModuleSubject.of(module), known, target, tune=spoil, timed=False)
    assert not kept.tuned
    assert any("worse" in note for note in kept.notes)
    assert job(dense, "params:0.8", tune=lambda small, *_: small).tuned


def test_confidence_bounds_are_those_of_the_binomial() -> None:
    """Clopper and Pearson 1934: at the bound, as many successes or more have probability 5%."""
    for successes, trials in ((9946, 10_000), (717, 719), (3, 7), (50, 50)):
        bound = clopper_pearson(successes, trials)
        assert stats.binom.sf(successes - 1, trials, bound) == pytest.approx(0.05, rel=1e-6)
    assert clopper_pearson(299, 299) == pytest.approx(0.05 ** (1 / 299))
    for count in (299, 1000, 5000):
        rank = largest_rank(count)
        assert rank is not None
        assert stats.binom.sf(rank - 1, count, 0.99) <= 0.05 < stats.binom.sf(rank - 2, count, 0.99)
    assert largest_rank(298) is None


def test_intervals_cover_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    hits = [clopper_pearson(int(rng.binomial(200, 0.97)), 200) <= 0.97 for _ in range(2000)]
    assert np.mean(hits) >= 0.95 - 3 * (0.05 * 0.95 / 2000) ** 0.5


@pytest.mark.parametrize("text", ["", "params", "params:0", "params:1.5", "size:0.5", "flops:nan", "flops:x%"])
def test_targets_that_say_nothing(text: str) -> None:
    with pytest.raises(LawfulError, match="a target is"):
        read_target(text)


def test_refusals() -> None:
    with pytest.raises(LawfulError, match="too few"):
        prune_to_target(ModuleSubject.of(made(dense)), samples(dense, 2), read_target("params:0.5"))
    data = JobSamples(samples(dense).x)
    with pytest.raises(LawfulError, match="needs labels"):
        prune_to_target(ModuleSubject.of(made(dense)), data, read_target("accuracy:99%"))
    with pytest.raises(LawfulError, match="are left when every site has one unit"):
        job(dense, "params:0.01")
    with pytest.raises(LawfulError, match="scored by"):
        job(dense, "params:0.5", criterion="luck")
    with pytest.raises(Unsupported, match="no layer"):
        prune_to_target(ModuleSubject.of(nn.Linear(5, 3)), samples(dense), read_target("params:0.5"))


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_units_of_inputs_do_not_matter(scale: float) -> None:
    """Data in other units, with first weights to match: the same sizes."""
    module, data = made(dense), samples(dense)
    with torch.no_grad():
        module[0].weight /= scale
    found = prune_to_target(
        ModuleSubject.of(module), JobSamples(data.x * scale, data.labels), read_target("params:0.5"), timed=False
    )  # fmt: skip
    same = prune_to_target(ModuleSubject.of(made(dense)), data, read_target("params:0.5"), timed=False)
    assert found.sizes == same.sizes


def test_files_of_layers_keep_their_format(tmp_path: Path) -> None:
    network = lawful.open(made(dense))
    lawful.write(network, tmp_path / "net.npz")
    np.savez(tmp_path / "data.npz", x=samples(dense).x, y=samples(dense).labels)
    out = in_process(
        "prune", tmp_path / "net.npz", "--target", "params:0.5", "--data", tmp_path / "data.npz",
        "--out", tmp_path / "small.npz", "--json",
    )  # fmt: skip
    said = out.json
    assert lawful.open(tmp_path / "small.npz").parameters == said["parameters_after"] <= 0.5 * said["parameters_before"]
    assert said["held_out"]["samples"] == 12


def test_half_precision_and_dropout() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 16), nn.GELU(), nn.Dropout(0.5), nn.Linear(16, 3)).bfloat16()
    found = prune_to_target(ModuleSubject.of(module), samples(dense), read_target("params:0.6"), timed=False)
    assert found.module is not None
    assert {tensor.dtype for tensor in found.module.parameters()} == {torch.bfloat16}


def test_runs_twice_alike() -> None:
    assert RunnableProgram(ModuleSubject.of(made(dense)).read((5,), 4)).batch == 4
    one, two = job(Attention, "flops:0.7"), job(Attention, "flops:0.7")
    assert one.sizes == two.sizes
    assert one.held_out == two.held_out
    assert isinstance(case_of(dense).costs("params"), Costs)


def test_targets_that_are_no_labels_are_said(tmp_path: Path) -> None:
    lawful.write(lawful.open(made(dense)), tmp_path / "net.npz")
    np.savez(tmp_path / "data.npz", x=samples(dense).x, y=samples(dense).labels + 0.5)
    options = ("prune", tmp_path / "net.npz", "--data", tmp_path / "data.npz", "--target")
    found = in_process(*options, "params:0.5", "--json").json
    assert found["held_out"]["accuracy_before"] is None
    assert "y is not used" in found["notes"][0]
    refused = in_process(*options, "accuracy:90%")
    assert refused.returncode == 2
    assert "one whole number for each sample" in refused.stderr


def test_one_held_out_sample_is_one() -> None:
    found = prune_to_target(
        ModuleSubject.of(made(dense)), samples(dense), read_target("params:0.5"),
        held_out=samples(dense).take(slice(0, 1)), timed=False,
    )  # fmt: skip
    said = job_text(found)
    assert "on 1 held-out sample" in said
    assert "1 held-out samples" not in said
