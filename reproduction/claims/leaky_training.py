"""Claims of paper 3 about trained networks over effective depths: Figures 1 and 3, signs, learned maps."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import torch

from lawful.api.training.leaky_files import load_task, read_run
from lawful.api.training.leaky_runs import LeakyPlan, run_leaky
from lawful.papers.leaky import Energies, LeakyResNet, TeacherTask, energies, solve_depths, teacher, trace
from lawful.report.training.leaky import bounded_figure, bounded_values, depth_figure
from reproduction.claim import Erratum, Outcome, Size, claim
from reproduction.claims.extremes import largest
from reproduction.long_runs import long_run

PAPER_SIZE = LeakyPlan("20-5-20", tolerance=0.01, evaluations=8000, grids=3)  # width 200, 50 layers, 1000 samples
PAPER_DEPTHS = (4.0, 7.0, 11.0, 16.0, 22.0)  # Appendix B: from 4 to 22
DEPTH_SIZES = Size(
    "teacher 6-2-6, width 12, 24 layers, 40 samples, effective depths 4 to 16",
    "teacher 20-5-20, width 200, 50 layers, 1000 samples, effective depths 4 to 22",
    "teacher 20-5-20, width 200, 50 layers, 1000 samples, effective depths 4 to 22",
)


@cache
def _depths(full: bool) -> tuple[int, tuple[Energies, ...]]:
    """Geodesics over effective depths: 20-5-20 at the paper's size, 6-2-6 in seconds. The rank and the energies."""
    if full:
        with long_run("p3-depths") as folder:
            run_leaky(PAPER_SIZE, PAPER_DEPTHS, folder)
            ridge, networks = read_run(folder)
            train = load_task(folder / "train.npz")
            return 5, tuple(energies(trace(network, train, ridge)) for network, _ in networks)
    train, _ = teacher((6, 2, 6), 40)
    start = LeakyResNet.random(width=12, layers=24, effective_depth=4.0, inputs=6, outputs=6, softness=0.01)
    found = solve_depths(start, train, 0.06, (4.0, 8.0, 16.0), tolerance=5e-3, evaluations=3000, adaptations=3)
    return 2, tuple(energies(trace(geodesic.network, train, 0.06)) for geodesic in found)


@claim(
    "p3-figure-1",
    "Figure 1",
    "over effective depths, -2𝓗/L approaches the true rank from below and the smallest cost of identity from above; "
    "inside the bottleneck the kinetic energy vanishes and W has as many singular values as the rank; along the path 𝓗 "
    "varies less than the energies",
    size=DEPTH_SIZES,
    criterion="ours: estimates that rise to above 0.75 of the rank, costs of identity that end within 0.95 to 1.2 of "
    "it, kinetic energies that fall by a quarter from depth to depth, singular values above 0.3 of the largest, 𝓗 that "
    "varies by less than a hundredth of what the energies do",
    experiment=True,
)
def figure_one(full: bool) -> Outcome:
    """Solve for geodesics, compare three estimates of the rank, count singular values where the path is slowest."""
    rank, found = _depths(full)
    estimates, costs = [e.bottleneck_rank for e in found], [e.coi_min for e in found]
    deepest = found[-1]
    slow = int(np.argmin(deepest.kinetic))
    spectrum = deepest.singular_values[slow]
    large = int((spectrum > 0.3 * spectrum[0]).sum())
    kinetic = [float(e.kinetic.min()) for e in found]
    variation = [float(np.ptp(e.rank_smooth) / np.ptp(e.coi)) for e in found]
    apart = abs(float(np.median(deepest.rank) - np.median(deepest.rank_weights)))
    holds = (
        all(e.trusted for e in found)
        and estimates == sorted(estimates)
        and all(abs(later - rank) < abs(before - rank) for before, later in pairwise(costs))
        and 0.75 * rank < estimates[-1] < rank
        and 0.95 * rank < costs[-1] < 1.2 * rank
        and all(later < 0.75 * before for before, later in pairwise(kinetic))
        and large == rank
        and apart < 0.1 * rank
        and all(varies < 0.01 for varies in variation)
    )
    return Outcome(
        holds,
        {
            "true_rank": rank,
            "effective_depths": [e.effective_depth for e in found],
            "estimates": estimates,
            "estimates_from_weights_alone": [float(np.median(e.rank_weights)) for e in found],
            "smallest_costs_of_identity": costs,
            "smallest_kinetic": kinetic,
            "large_singular_values": large,
            "variation_of_the_hamiltonian_over_the_potential": variation,
            "stationarity": [e.stationarity for e in found],
        },
        figure=depth_figure(found, rank),
    )


@claim(
    "p3-nonnegative",
    "Proposition 5",
    "where the path is slow, its representations become non-negative as the effective depth grows",
    size=DEPTH_SIZES,
    criterion="ours: at the deepest network a share of negative entries below 1e-3 where the path is slowest, lower "
    "than at the smallest depth (the proposition speaks of the limit)",
    experiment=True,
)
def nonnegative(full: bool) -> Outcome:
    """The negative share of the slowest representation, over effective depths, against that of the inputs."""
    _, found = _depths(full)
    shares = [float(e.negative_share[int(np.argmin(e.kinetic))]) for e in found]
    start = float(found[-1].negative_share[0])
    return Outcome(
        shares[-1] < 1e-3 and shares[-1] < shares[0] and start > 0.1,
        {"negative_share_where_slowest": shares, "negative_share_of_inputs": start},
    )


@claim(
    "p3-figure-3",
    "Figure 3, Appendix B",
    "the path length and the sizes of B and Bσ(A)ᵀ stay relatively constant as the effective depth grows",
    size=DEPTH_SIZES,
    criterion="ours: no quantity grows by more than half of its value at the smallest depth, over all depths that were "
    "run; medians over the layers; the paper gives no number",
    experiment=True,
)
def figure_three(full: bool) -> Outcome:
    """How many times its first value each quantity reaches, beside the weights, which do grow with the depth."""
    _, found = _depths(full)
    values = bounded_values(found)
    growth = {name: largest(series) / series[0] for name, series in values.items()}
    weights = [float(np.linalg.norm(e.singular_values, axis=1).mean()) for e in found]
    return Outcome(
        largest(growth.values()) <= 1.5 and all(e.trusted for e in found),
        {"effective_depths": [e.effective_depth for e in found], "largest_over_first": growth, **values,
         "growth_of_the_weights": weights[-1] / weights[0]},
        figure=bounded_figure(found),
    )  # fmt: skip


@claim(
    "p3-learned-maps",
    "Appendix B",
    "with learned, unpenalised linear maps in and out the regularised cost need not have a minimum",
    erratum=Erratum(
        "the linear maps can be either learned or fixed",
        "fixed, or learned with a penalty: for f*(x) = |x| the weights can shrink while the map out grows; "
        "the cost tends to 0, which W = 0 alone could reach, and W = 0 is linear",
        "explicit networks with smaller and smaller weights, and the best linear fit",
    ),
    size=Size("3 inputs, 8 layers", "6 inputs, 8 layers"),
)
def learned_maps(full: bool) -> Outcome:
    """`W = δ σ(±x)` in the first layer, the map out divided by δ: the same outputs at a cost of order δ²."""
    inputs, layers, depth, ridge = 6 if full else 3, 8, 2.0, 0.1
    x = np.random.default_rng(0).normal(size=(40, inputs))
    task = TeacherTask(x, np.abs(x))
    eye, step = np.eye(inputs), 1 / layers
    into = np.concatenate([eye, -eye, 0 * eye])
    kept = (1 - step * depth) ** (layers - 1)
    costs, errors, penalised = [], [], []
    shrinking = (1.0, 1e-2, 1e-4, 1e-6)
    for delta in shrinking:
        weights = np.zeros((layers, 3 * inputs, 3 * inputs + 1))
        weights[0, 2 * inputs :, : 2 * inputs] = delta * np.concatenate([eye, eye], axis=1)
        out = np.concatenate([0 * eye, 0 * eye, eye / (delta * step * kept)], axis=1)
        net = LeakyResNet(weights, depth, into=into, out=out, learn_maps=True)
        with torch.no_grad():
            costs.append(float(net.cost(torch.from_numpy(x), torch.from_numpy(task.targets.copy()), ridge)))
            errors.append(float((net(torch.from_numpy(x)) - torch.from_numpy(task.targets.copy())).abs().max()))
        penalised.append(costs[-1] + ridge / 2 * float((out**2).sum()))
    linear = float(np.linalg.lstsq(x, task.targets, rcond=None)[1].sum()) / len(x)
    falls = costs == sorted(costs, reverse=True) and costs[-1] < 1e-9
    rises = penalised == sorted(penalised)  # with a penalty on the map out the same networks cost more and more
    return Outcome(
        largest(errors) < 1e-9 and falls and rises and linear > 0.1,
        {"scales": shrinking, "costs": costs, "costs_with_a_penalty": penalised, "largest_error": largest(errors),
         "best_linear_error": linear},
        printed_holds=costs[-1] > 1e-3 * costs[0],
    )  # fmt: skip


CLAIMS = (figure_one, nonnegative, figure_three, learned_maps)
