"""Energies and block readings as JSON and text."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lawful.figure import Figure, Panel, Series
from lawful.report.page.page import Action, Opening, Section, Table, render
from lawful.report.plain import pick
from lawful.sentences import training as sentences

if TYPE_CHECKING:
    from lawful.api.training.leaky_resnets import LeakyRuns
    from lawful.papers.leaky import BlockHistory, BlockReading, BlockReadings, Energies

CARRIES_OVER = (
    "Carries over from Leaky ResNets: effective dimension, cost of identity (COI),",
    "movement and stable energy per block. Does not: the bottleneck rank, which needs",
    "layers W relu(A) trained with weight decay to a geodesic.",
)


def is_trusted(found: Energies) -> bool:
    """Whether the path is stationary enough for its momenta, and with them Hamiltonian and rank, to mean much."""
    return found.trusted


def energies_json(found: Energies) -> dict[str, Any]:
    """The documented keys of one effective depth."""
    values = -found.effective_depth / 2 * found.rank
    return {
        **pick(found, "effective_depth stationarity"),
        "trusted": is_trusted(found),
        "bottleneck_rank": found.bottleneck_rank if is_trusted(found) else None,
        "coi_min": found.coi_min,
        "hamiltonian": {
            "p": found.p,
            "values": values,
            "median": float(np.median(values)),
            "min": float(values.min()),
            "max": float(values.max()),
        },
        "rank_estimates": {
            "momenta": float(np.median(found.rank)),
            "momenta_second_order": float(np.median(found.rank_smooth)),
            "weights_alone": float(np.median(found.rank_weights)),
            "stable": float(np.median(found.rank_stable)),
        },
        **pick(found, "kinetic coi steps path_length negative_share singular_values"),
    }


def run_json(all_found: Sequence[Energies]) -> dict[str, Any]:
    """The deepest network's keys, and all networks under `depths`."""
    depths = [energies_json(energies) for energies in all_found]
    return {**depths[-1], "depths": depths}


def _is_shallow(found: Energies) -> bool:
    """Whether `-2𝓗/L̃` rounds to no rank at all: it tends to the rank as L̃ grows, and starts below zero."""
    return found.bottleneck_rank < 0.5


def _rank_sentence(found: Energies) -> str:
    """The bottleneck rank of a network, or why it has no estimate."""
    if not is_trusted(found):
        return sentences.no_rank(found.effective_depth, found.stationarity, found.trusted_to)
    if _is_shallow(found):
        return (
            f"too shallow for a bottleneck rank: -2H/L is {found.bottleneck_rank:.2f} at depth "
            f"{found.effective_depth:g}, and estimates a rank at large depths alone"
        )
    return f"bottleneck rank about {found.bottleneck_rank:.2f} (smallest cost of identity {found.coi_min:.2f})"


def run_text(all_found: Sequence[Energies]) -> str:
    """A table over effective depths, then what to make of it."""
    deepest = all_found[-1]
    if not is_trusted(deepest):
        headline = f"{_rank_sentence(deepest)} (give `lawful leaky` that --tolerance and more --evaluations)"
    elif _is_shallow(deepest):
        headline = f"{_rank_sentence(deepest)} (give `lawful leaky` a larger --effective-depth)"
    else:
        headline = f"{_rank_sentence(deepest)} at depth {deepest.effective_depth:g}"
    lines = [
        headline,
        "",
        "depth  -2H/L    min    max  from W  stable  min COI  stationarity",
    ]
    for energies in all_found:
        ranks = (energies.bottleneck_rank, energies.rank.min(), energies.rank.max())
        shown = "".join(f"{value:7.2f}" for value in ranks) if is_trusted(energies) else f"{'-':>7}{'-':>7}{'-':>7}"
        lines.append(
            f"{energies.effective_depth:5g}{shown} {np.median(energies.rank_weights):7.2f}"
            f" {np.median(energies.rank_stable):7.2f} {energies.coi_min:8.2f} {energies.stationarity:13.1e}"
        )
    slowest = int(np.argmin(energies.kinetic))
    lines += [
        "",
        f"slowest at p = {energies.p[slowest]:.2f}: kinetic {energies.kinetic[slowest]:.3g}, "
        f"negative part {100 * energies.negative_share[slowest]:.1f}% of the representation",
    ]
    if not all(is_trusted(energies) for energies in all_found):
        lines += [f"-: not stationary to {deepest.trusted_to:g}; the Hamiltonian of these rows would mean nothing."]
    return "\n".join(lines)


def blocks_json(found: BlockReadings) -> dict[str, Any]:
    """The keys of another network: what needs a Leaky ResNet is null."""
    return {
        "hamiltonian": None,
        "bottleneck_rank": None,
        "stationarity": None,
        "kinetic": None,
        "coi_min": min(block.coi for block in found.blocks),
        "steps": found.suggested_steps,
        "narrowest": found.narrowest.name,
        **pick(found, "fast slow found_by samples"),
        "blocks": [_block_json(block) for block in found.blocks],
        "notes": list(CARRIES_OVER),
    }


def _block_json(block: BlockReading) -> dict[str, Any]:
    dimension, coi, distance, hamiltonian = block.errors
    return {
        **pick(block, "name width samples projected stable_rank=dimension coi distance kinetic hamiltonian"),
        **pick(block, "similarity alignment negative_share"),
        "errors": {"stable_rank": dimension, "coi": coi, "distance": distance, "hamiltonian": hamiltonian},
    }


def blocks_text(found: BlockReadings) -> str:
    """A table of blocks, and what carries over."""
    narrow = found.narrowest
    wide = _name_width(found.names)
    lines = [
        sentences.narrowest(narrow.name, narrow.dimension, narrow.width, narrow.samples),
        f"blocks: {found.found_by}",
        "",
        f"{'block':{wide}} {'width':>5} {'samples':>7} {'dimension':>9} {'':6} {'COI':>8} {'moves by':>8} {'CKA':>5} "
        f"{'cos':>5}",
        f"{'(input)':{wide}} {'':5} {'':7} {found.dimension_in:9.2f}",
    ]
    for block in found.blocks:
        word = " fast" if block.name in found.fast else " slow" if block.name in found.slow else ""
        error = f"±{block.errors[0]:.2g}" if np.isfinite(block.errors[0]) else ""
        lines.append(
            f"{block.name[-wide:]:{wide}} {block.width:5} {block.samples:7} {block.dimension:9.2f} {error:6} "
            f"{block.coi:8.2f} {block.distance:8.3f} {block.similarity:5.2f} {block.alignment:5.2f}{word}"
        )
    return "\n".join([*lines, "", *CARRIES_OVER])


def _name_width(names: Sequence[str]) -> int:
    """Room for the blocks' names; of very long ones the end is shown."""
    return min(max(12, *map(len, names)), 48)


def runs_json(found: LeakyRuns) -> dict[str, Any]:
    """The documented keys of `lawful leaky --json`."""
    words = {"out": found.folder, "networks": list(found.networks), "converged": found.converged}
    return words if len(found.starts) == 1 else words | {"spread": spread_json(found.starts)}


def runs_text(found: LeakyRuns) -> str:
    """A row per network, or per effective depth if there are several starts."""
    if len(found.starts) == 1:
        return summary_text(found.networks, found.folder)
    return spread_text(found.starts, found.folder)


def history_json(found: BlockHistory) -> dict[str, Any]:
    """The steps, and everything that is known of the blocks at each; what needs a Leaky ResNet is null."""
    return {
        "hamiltonian": None,
        "bottleneck_rank": None,
        "stationarity": None,
        "coi_min": float(found.table("coi").min()),
        **pick(found, "steps names"),
        "stable_rank": found.table("dimension"),
        "coi": found.table("coi"),
        "distance": found.table("distance"),
        "checkpoints": [blocks_json(readings) for readings in found.readings],
        "notes": list(CARRIES_OVER),
    }


def history_text(found: BlockHistory) -> str:
    """Effective dimension: a row per block, a column per checkpoint (the first, the last and six between)."""
    shown = np.unique(np.linspace(0, len(found.steps) - 1, 8).astype(int))
    table, wide = found.table("dimension")[:, shown], _name_width(found.names)
    lines = [
        f"effective dimension of {len(found.names)} blocks at {len(found.steps)} checkpoints",
        "",
        f"{'step':{wide}}" + "".join(f" {found.steps[column]:>7}" for column in shown),
    ]
    lines += [
        f"{name[-wide:]:{wide}}" + "".join(f" {value:7.2f}" for value in row)
        for name, row in zip(found.names, table, strict=True)
    ]
    return "\n".join([*lines, "", *CARRIES_OVER])


def spread_json(every: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Mean and standard deviation of cost over the seeds, by effective depth."""
    return [
        {
            "effective_depth": column[0]["effective_depth"],
            "mean_cost": float(np.mean([path["cost"] for path in column])),
            "standard_deviation": float(np.std([path["cost"] for path in column], ddof=1)),
            "worst_stationarity": max(path["stationarity"] for path in column),
        }
        for column in zip(*every, strict=True)
    ]


def spread_text(every: Sequence[Sequence[Mapping[str, Any]]], folder: str) -> str:
    """Several random starts beside each other."""
    done = sum(bool(path["converged"]) for column in every for path in column)
    lines = [f"{folder}: {len(every)} seeds, {done} of {sum(map(len, every))} networks are geodesics", ""]
    lines.append("depth   mean cost     spread   worst stationarity")
    lines += [
        f"{row['effective_depth']:5g} {row['mean_cost']:11.5g} {row['standard_deviation']:10.2g} "
        f"{row['worst_stationarity']:20.1e}"
        for row in spread_json(every)
    ]
    return "\n".join(lines)


def summary_text(summaries: Sequence[Mapping[str, Any]], folder: str) -> str:
    """What training reached."""
    lines = [f"{folder}: {len(summaries)} networks, {sum(bool(s['converged']) for s in summaries)} are geodesics", ""]
    lines.append("depth        cost   stationarity   evaluations   seconds")
    lines += [
        f"{s['effective_depth']:5g} {s['cost']:11.5g} {s['stationarity']:14.1e} "
        f"{s['evaluations']:13,} {s['seconds']:9.1f}"
        for s in summaries
    ]
    return "\n".join(lines)


# The pages


HEATS = (("dimension", "effective dimension"), ("coi", "cost of identity"), ("distance", "moves by"),
         ("hamiltonian", "stable Hamiltonian"))  # fmt: skip


def blocks_page(found: BlockReadings, source: str, asked: str = "", options: str = "") -> str:
    """The page of one network; `asked` names it as a command does, `options` what it was read on."""
    narrow = found.narrowest
    lead = (
        f"Narrowest after block {narrow.name}: effective dimension {narrow.dimension:.2f} of {narrow.width}; "
        f"{narrow.samples} samples; blocks are {found.found_by}."
    )
    sections = [
        Section("Blocks", [_table(found), " ".join(CARRIES_OVER)]),
    ]
    actions = [
        Action("See everything else about it", "All answers on one page, most useful first.",
               f"lawful audit {asked} --html audit.html"),
        Action("Take the numbers along", "Every block as JSON.", f"lawful bottleneck {asked}{options} --json"),
    ] if asked else []  # fmt: skip
    opening = Opening(file=source, kind="residual stream", stage=blocks_figure(found), actions=actions)
    headline = f"Effective dimension {narrow.dimension:.2f} of {narrow.width} at the narrowest."
    return render(headline, lead, sections, opening=opening)


def history_page(found: BlockHistory, source: str, asked: str = "", options: str = "") -> str:
    """The page of one network over training; `asked` names the folder as a command does, `options` the data."""
    last = found.readings[-1].narrowest
    lead = (
        f"{len(found.steps)} checkpoints, steps {found.steps[0]} to {found.steps[-1]}, {len(found.names)} blocks; "
        f"at the end the stream is narrowest after {last.name}: effective dimension {last.dimension:.2f}."
    )
    rows = [
        (step, block.name, block.dimension, block.coi, block.distance, block.hamiltonian)
        for step, readings in zip(found.steps, found.readings, strict=True)
        for block in readings.blocks
    ]
    numbers = Table(("step", "block", "dimension", "cost of identity", "moves by", "stable Hamiltonian"), rows[:5000])
    sections = [
        Section("At the end", [blocks_figure(found.readings[-1])]),
        Section("Numbers", [numbers]),
    ]
    take = Action("Take the numbers along", "Every block of every checkpoint.",
                  f"lawful bottleneck {asked}{options} --json")  # fmt: skip
    stage = history_figure(found)
    opening = Opening(file=source, kind="residual stream over training", stage=stage, actions=[take] if asked else [])
    headline = f"Effective dimension {last.dimension:.2f} at the narrowest, after {len(found.steps)} checkpoints."
    return render(headline, lead, sections, opening=opening)


def run_page(all_found: Sequence[Energies], figure: Figure, bounded: Figure, source: str) -> str:
    """The page of a run of Leaky ResNets over effective depths; `bounded` is drawn where two paths are stationary."""
    deepest = all_found[-1]
    where = (
        f" at effective depth {deepest.effective_depth:g}" if is_trusted(deepest) and not _is_shallow(deepest) else ""
    )
    sentence = _rank_sentence(deepest)
    lead = f"{sentence[0].upper()}{sentence[1:]}{where}."
    columns = ("effective depth", "rank", "rank from W", "stable rank estimate", "smallest cost of identity",
               "stationarity")  # fmt: skip
    rows = [
        (e.effective_depth, e.bottleneck_rank if is_trusted(e) else None, float(np.median(e.rank_weights)),
         float(np.median(e.rank_stable)), e.coi_min, e.stationarity)
        for e in all_found
    ]  # fmt: skip
    sections = [Section("Along the paths", list(map(_along, all_found)))]
    if sum(map(is_trusted, all_found)) > 1:
        sections.append(Section("Lengths and momenta", [bounded]))
    sections.append(Section("Numbers", [Table(columns, rows)]))
    run = shlex.quote(source)
    actions = [
        Action("Save the evidence of the deepest network", "An independent checker verifies its rank.",
               f"lawful bottleneck {run} --save rank.json && lawful verify rank.json {run}"),
        Action("Draw the energies", "For a paper or a talk.", f"lawful bottleneck {run} --figure energies.svg"),
    ]  # fmt: skip
    actions = actions if is_trusted(deepest) else actions[1:]
    opening = Opening(file=source, kind="Leaky ResNets", stage=figure, actions=actions)
    depths = f"{len(all_found)} effective depth{'s' * (len(all_found) != 1)}, up to {deepest.effective_depth:g}."
    return render(lead, depths, sections, opening=opening)


def _along(found: Energies) -> Figure:
    cut = 4 * found.coi_min
    energies = Panel(
        [
            Series(np.minimum(found.coi, cut), found.p, "cost of identity"),
            Series(np.minimum(found.kinetic, cut), found.p, "kinetic"),
            Series(found.rank_stable, found.p, "stable -2H/L"),
        ],
        "energies, high ends cut", "depth p", "energy",
    )  # fmt: skip
    spectra = Panel(
        [Series(values, found.p) for values in found.singular_values.T],
        "singular values of W",
        "depth p",
        "singular value",
    )
    return Figure(f"Effective depth {found.effective_depth:g}, stationarity {found.stationarity:.1e}.",
                  (energies, spectra))  # fmt: skip


def blocks_figure(found: BlockReadings) -> Figure:
    """Dimension with its standard error, energies, and the movement of each block, over depth."""
    depth = np.arange(1, len(found.blocks) + 1)
    dimension = np.array([block.dimension for block in found.blocks])
    error = np.nan_to_num(np.array([block.errors[0] for block in found.blocks]))
    shapes = Panel(
        [Series(dimension - error, depth, style="band", upper=dimension + error),
         Series(np.r_[found.dimension_in, dimension], np.r_[0, depth])],
        "effective dimension", "block", "dimension",
    )  # fmt: skip
    energies = Panel(
        [
            Series([block.coi for block in found.blocks], depth, "cost of identity"),
            Series([block.kinetic for block in found.blocks], depth, "kinetic"),
        ],
        "energies", "block", "energy", log_y=all(min(block.coi, block.kinetic) > 0 for block in found.blocks),
    )  # fmt: skip
    total = Panel([Series([block.hamiltonian for block in found.blocks], depth)], "stable Hamiltonian", "block",
                  "(kinetic − cost of identity) / 2")  # fmt: skip
    motion = Panel(
        [
            Series([block.distance for block in found.blocks], depth, "moves by"),
            Series([block.similarity for block in found.blocks], depth, "CKA"),
            Series([block.alignment for block in found.blocks], depth, "alignment"),
        ],
        "motion", "block", "relative",
    )  # fmt: skip
    return Figure(
        "The residual stream after each block, numbered as in the table (0 is what enters the first); the band is a "
        "standard error.", (shapes, energies, total, motion),
    )  # fmt: skip


def history_figure(found: BlockHistory) -> Figure:
    """Heat maps: a row per block, a column per checkpoint."""
    panels = [
        Panel([Series(found.table(name), found.steps, style="heat", rows=found.names)], title, "step", "block")
        for name, title in HEATS
    ]
    return Figure(
        "Blocks from first (top) to last, one column for each checkpoint; point at a cell to read it.", panels
    )


def _table(found: BlockReadings) -> Table:
    columns = ("", "block", "width", "samples", "dimension", "error", "cost of identity", "moves by", "kinetic",
               "stable Hamiltonian", "CKA", "alignment", "negative share")  # fmt: skip
    rows = [
        (number, b.name, b.width, b.samples, b.dimension, b.errors[0], b.coi, b.distance, b.kinetic, b.hamiltonian,
         b.similarity, b.alignment, b.negative_share)
        for number, b in enumerate(found.blocks, 1)
    ]  # fmt: skip
    return Table(columns, rows, "The dimension is the stable rank; errors leave out a quarter of the samples in turn.")


def depth_figure(all_found: Sequence[Energies], rank: int | None = None) -> Figure:
    """P3 Figure 1: estimates over effective depth, then spectra and energies of the deepest network.

    No Hamiltonian is drawn of a path that is not stationary.
    """
    depths = [energies.effective_depth for energies in all_found]
    deepest, stationary = all_found[-1], [energies for energies in all_found if energies.trusted]
    sure = [energies.effective_depth for energies in stationary]
    cut = 4 * deepest.coi_min  # input and output can be a hundred times higher
    estimates = Panel(
        [
            *([Series([energies.rank_smooth.min() for energies in stationary], sure, style="band",
                      upper=[energies.rank_smooth.max() for energies in stationary]),
               Series([energies.bottleneck_rank for energies in stationary], sure, "-2H/L̃")] if stationary else []),
            Series([np.median(energies.rank_stable) for energies in all_found], depths, "stable -2H/L̃"),
            Series([energies.coi_min for energies in all_found], depths, "min COI"),
        ],
        "estimates of the rank", "effective depth L̃", horizontal=() if rank is None else (rank,),
    )  # fmt: skip
    spectra = Panel(
        [Series(values, deepest.p) for values in deepest.singular_values.T],
        f"singular values of W, L̃ = {deepest.effective_depth:g}", "p",
    )  # fmt: skip
    along = Panel(
        [
            *([Series(deepest.rank_smooth, deepest.p, "-2H/L̃")] if deepest.trusted else []),
            Series(deepest.rank_stable, deepest.p, "stable -2H/L̃"),
            Series(np.minimum(deepest.coi, cut), deepest.p, "COI"),
            Series(np.minimum(deepest.kinetic, cut), deepest.p, "kinetic"),
        ],
        "energies along the path, high ends cut", "p",
    )  # fmt: skip
    return Figure(
        "On geodesics the Hamiltonian estimate comes from below, the cost of identity from above; inside the "
        "bottleneck the kinetic energy vanishes."
        + (
            ""
            if len(stationary) == len(all_found)
            else " Paths that are not stationary to 0.01 have no Hamiltonian here."
        ),
        [estimates, spectra, along],
    )


def bounded_values(all_found: Sequence[Energies]) -> dict[str, list[float]]:
    """What P3 Figure 3 plots over effective depths: path lengths, medians of the norms of momenta."""
    return {
        "path length": [float((energies.steps * energies.speeds).sum()) for energies in all_found],
        "stable path length": [energies.path_length for energies in all_found],
        "‖B‖": [float(np.median(energies.momentum_norms)) for energies in all_found],
        "‖Bσ(A)ᵀ‖": [float(np.median(energies.product_norms)) for energies in all_found],
    }


def bounded_figure(all_found: Sequence[Energies]) -> Figure:
    """P3 Figure 3: lengths and momenta over effective depth, of the paths that are stationary."""
    stationary = [energies for energies in all_found if energies.trusted]
    depths = [energies.effective_depth for energies in stationary]
    panels = [
        Panel([Series(values, depths), Series(values, depths, style="points")], name, "effective depth L̃")
        for name, values in bounded_values(stationary).items()
    ]
    return Figure("Lengths of the paths and norms of their momenta, which the paper finds bounded.", panels)
