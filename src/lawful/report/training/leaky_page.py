"""Residual streams and Leaky ResNets as pages: energies over depth, and over training as heat maps block by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lawful.figure import Figure, Panel, Series
from lawful.report.page.page import Opening, Section, Table, render
from lawful.report.training.leaky import CARRIES_OVER, trusted
from lawful.sentences import leaky as sentences

if TYPE_CHECKING:
    from lawful.papers.leaky import BlockHistory, BlockReadings, Energies

HEATS = (("dimension", "effective dimension"), ("coi", "cost of identity"), ("distance", "moves by"),
         ("hamiltonian", "stable Hamiltonian"))  # fmt: skip


def blocks_page(found: BlockReadings, source: str) -> str:
    """The page of one network."""
    narrow = found.narrowest
    lead = (
        f"Narrowest after block {narrow.name}: effective dimension {narrow.dimension:.2f} of {narrow.width}; "
        f"{narrow.samples} samples; blocks are {found.found_by}."
    )
    sections = [
        Section("Blocks", [_table(found), " ".join(CARRIES_OVER)]),
    ]
    opening = Opening(file=source, kind="residual stream", stage=blocks_figure(found))
    headline = f"Effective dimension {narrow.dimension:.2f} of {narrow.width} at the narrowest."
    return render(headline, lead, sections, opening=opening)


def history_page(found: BlockHistory, source: str) -> str:
    """The page of one network over training."""
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
    opening = Opening(file=source, kind="residual stream over training", stage=history_figure(found))
    headline = f"Effective dimension {last.dimension:.2f} at the narrowest, after {len(found.steps)} checkpoints."
    return render(headline, lead, sections, opening=opening)


def run_page(all_found: Sequence[Energies], figure: Figure, bounded: Figure, source: str) -> str:
    """The page of a run of Leaky ResNets over effective depths; `bounded` is drawn where two paths are stationary."""
    deepest = all_found[-1]
    lead = (
        f"Bottleneck rank about {deepest.bottleneck_rank:.2f}, smallest cost of identity {deepest.coi_min:.2f}, at "
        f"effective depth {deepest.effective_depth:g}."
        if trusted(deepest)
        else sentences.no_rank(deepest.effective_depth, deepest.stationarity, deepest.trusted_to).capitalize() + "."
    )
    columns = ("effective depth", "rank", "rank from W", "stable rank estimate", "smallest cost of identity",
               "stationarity")  # fmt: skip
    rows = [
        (e.effective_depth, e.bottleneck_rank if trusted(e) else None, float(np.median(e.rank_weights)),
         float(np.median(e.rank_stable)), e.coi_min, e.stationarity)
        for e in all_found
    ]  # fmt: skip
    sections = [Section("Along the paths", list(map(_along, all_found)))]
    if sum(map(trusted, all_found)) > 1:
        sections.append(Section("Lengths and momenta", [bounded]))
    sections.append(Section("Numbers", [Table(columns, rows)]))
    opening = Opening(file=source, kind="Leaky ResNets", stage=figure)
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
