"""How many numbers does this task really pass on from input to output?

A Leaky ResNet that is deep enough squeezes its representation to that many dimensions, and its Hamiltonian counts
them: -2H/L approaches the number from below, the cost of identity from above (P3 Theorem 4).
"""

from __future__ import annotations

from lawful.papers.leaky import LeakyResNet, energies, solve_depths, teacher, trace


def run() -> float:
    """Solve for geodesics on a task of rank 2; return the gap between the two estimates at the largest depth."""
    train, _ = teacher((6, 2, 6), 40)
    start = LeakyResNet.random(width=12, layers=24, effective_depth=4.0, inputs=6, outputs=6, softness=0.01)
    gap = float("inf")
    for geodesic in solve_depths(start, train, 0.06, (4.0, 8.0, 16.0), tolerance=5e-3, adaptations=3):
        found = energies(trace(geodesic.network, train, 0.06))
        print(
            f"effective depth {found.effective_depth:4g}: rank {found.bottleneck_rank:.2f} from below, "
            f"{found.coi_min:.2f} from above (stationarity {found.stationarity:.0e})"
        )
        assert geodesic.converged
        gap = found.coi_min - found.bottleneck_rank
    assert gap < 0.5
    return gap


if __name__ == "__main__":
    run()
