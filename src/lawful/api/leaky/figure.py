"""P3 Figures 1 and 3 for any run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lawful.figure import Figure, Panel, Series
from lawful.papers.leaky import Energies


def depth_figure(all_found: Sequence[Energies], rank: int | None = None) -> Figure:
    """P3 Figure 1: estimates over effective depth, then spectra and energies of the deepest network.

    No Hamiltonian is drawn of a path that is not stationary.
    """
    depths = [found.effective_depth for found in all_found]
    deepest, kept = all_found[-1], [found for found in all_found if found.trusted]
    sure = [found.effective_depth for found in kept]
    cut = 4 * deepest.coi_min  # input and output can be a hundred times higher
    estimates = Panel(
        [
            *([Series([found.rank_smooth.min() for found in kept], sure, style="band",
                      upper=[found.rank_smooth.max() for found in kept]),
               Series([found.bottleneck_rank for found in kept], sure, "-2H/L̃")] if kept else []),
            Series([np.median(found.rank_stable) for found in all_found], depths, "stable -2H/L̃"),
            Series([found.coi_min for found in all_found], depths, "min COI"),
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
        + ("" if len(kept) == len(all_found) else " Paths that are not stationary to 0.01 have no Hamiltonian here."),
        [estimates, spectra, along],
    )


def bounded_values(all_found: Sequence[Energies]) -> dict[str, list[float]]:
    """What P3 Figure 3 plots over effective depths: path lengths, medians of the norms of momenta."""
    return {
        "path length": [float((found.steps * found.speeds).sum()) for found in all_found],
        "stable path length": [found.path_length for found in all_found],
        "‖B‖": [float(np.median(found.momentum_norms)) for found in all_found],
        "‖Bσ(A)ᵀ‖": [float(np.median(found.product_norms)) for found in all_found],
    }


def bounded_figure(all_found: Sequence[Energies]) -> Figure:
    """P3 Figure 3: lengths and momenta over effective depth, of the paths that are stationary."""
    kept = [found for found in all_found if found.trusted]
    depths = [found.effective_depth for found in kept]
    panels = [
        Panel([Series(values, depths), Series(values, depths, style="points")], name, "effective depth L̃")
        for name, values in bounded_values(kept).items()
    ]
    return Figure("Lengths of the paths and norms of their momenta, which the paper finds bounded.", panels)
