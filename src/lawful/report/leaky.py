"""Energies and block readings as JSON and text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lawful.leaky import BlockReadings, Energies

TRUSTED = 1e-2  # beyond this stationarity the momenta say little

CARRIES_OVER = (
    "Carries over from Leaky ResNets: effective dimension, cost of identity (COI)",
    "and movement per block. Does not: Hamiltonian, kinetic energy and rank estimate,",
    "which need layers W relu(A) trained with weight decay.",
)


def trusted(found: Energies) -> bool:
    """Whether the path is stationary enough for its momenta, and with them the Hamiltonian and the rank, to mean much.

    Momenta are gradients over the weight decay: an error of the path is divided by it.
    """
    return found.stationarity <= TRUSTED


def energies_json(found: Energies) -> dict[str, Any]:
    """The documented keys of one effective depth."""
    values = -found.effective_depth / 2 * found.rank
    return {
        "effective_depth": found.effective_depth,
        "stationarity": found.stationarity,
        "trusted": trusted(found),
        "bottleneck_rank": found.bottleneck_rank if trusted(found) else None,
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
            "momenta_second_order": found.bottleneck_rank,
            "weights_alone": float(np.median(found.rank_weights)),
            "stable": float(np.median(found.rank_stable)),
        },
        "kinetic": found.kinetic,
        "coi": found.coi,
        "steps": found.steps,
        "path_length": found.path_length,
        "negative_share": found.negative_share,
        "singular_values": found.singular_values,
    }


def run_json(all_found: Sequence[Energies]) -> dict[str, Any]:
    """The deepest network's keys, and all networks under `depths`."""
    each = [energies_json(found) for found in all_found]
    return {**each[-1], "depths": each}


def run_text(all_found: Sequence[Energies]) -> str:
    """A table over effective depths, then what to make of it."""
    deepest = all_found[-1]
    headline = (
        f"bottleneck rank about {deepest.bottleneck_rank:.2f} "
        f"(smallest cost of identity {deepest.coi_min:.2f}) at depth {deepest.effective_depth:g}"
        if trusted(deepest)
        else f"no bottleneck rank: at depth {deepest.effective_depth:g} the path is stationary to "
        f"{deepest.stationarity:.1e} only, and its rank needs {TRUSTED:g} (give `lawful leaky` more --evaluations)"
    )
    lines = [
        headline,
        "",
        "depth  -2H/L    min    max  from W  stable  min COI  stationarity",
    ]
    for found in all_found:
        ranks = (found.bottleneck_rank, found.rank.min(), found.rank.max())
        shown = "".join(f"{value:7.2f}" for value in ranks) if trusted(found) else f"{'-':>7}{'-':>7}{'-':>7}"
        lines.append(
            f"{found.effective_depth:5g}{shown} {np.median(found.rank_weights):7.2f}"
            f" {np.median(found.rank_stable):7.2f} {found.coi_min:8.2f} {found.stationarity:13.1e}"
        )
    slowest = int(np.argmin(found.kinetic))
    lines += [
        "",
        f"slowest at p = {found.p[slowest]:.2f}: kinetic {found.kinetic[slowest]:.3g}, "
        f"negative part {100 * found.negative_share[slowest]:.1f}% of the representation",
    ]
    if not all(trusted(found) for found in all_found):
        lines += [f"-: not stationary to {TRUSTED:g}; the Hamiltonian of these rows would mean nothing."]
    return "\n".join(lines)


def blocks_json(found: BlockReadings) -> dict[str, Any]:
    """The keys of another network: what needs a Leaky ResNet is null."""
    return {
        "hamiltonian": None,
        "bottleneck_rank": None,
        "stationarity": None,
        "kinetic": None,
        "coi_min": float(found.coi.min()),
        "steps": found.suggested_steps,
        "narrowest": found.narrowest,
        "fast": found.fast,
        "slow": found.slow,
        "blocks": [
            {"name": name, "stable_rank": rank, "coi": coi, "distance": distance, "negative_share": share}
            for name, rank, coi, distance, share in zip(
                found.names, found.stable_rank, found.coi, found.distance, found.negative_share, strict=True
            )
        ],
        "notes": list(CARRIES_OVER),
    }


def blocks_text(found: BlockReadings) -> str:
    """A table of blocks, and what carries over."""
    lines = [
        f"narrowest after block {found.narrowest[-24:]}: "
        f"dimension {found.stable_rank.min():.2f} of {found.width}, {found.samples} samples",
        "",
        f"{'block':24} {'dimension':>9} {'COI':>8} {'moves by':>9} {'step':>7}",
        f"{'(input)':24} {found.stable_rank_in:9.2f}",
    ]
    for row, name in enumerate(found.names):
        word = " fast" if name in found.fast else " slow" if name in found.slow else ""
        lines.append(
            f"{name[-24:]:24} {found.stable_rank[row]:9.2f} {found.coi[row]:8.2f} {found.distance[row]:9.3f} "
            f"{found.suggested_steps[row]:7.4f}{word}"
        )
    return "\n".join([*lines, "", *CARRIES_OVER])


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
