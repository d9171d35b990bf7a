"""A picture for every concept page, computed by the library when the site is built."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import lawful
from lawful.figure import STYLE, Figure, Panel, Series
from lawful.figure.inline_svg import svg
from lawful.report.structure.network import draw_graph


def laws() -> str:
    """Balances are flat along the flow while the weights move."""
    run = lawful.flow("2-4-1 relu", until=3.0, seed=3)
    times, theta = run.trajectory.times, run.trajectory.theta
    moving = [Series(theta[:, edge], times) for edge in range(8)]
    kept = [Series(run.laws[:, law], times, name) for law, name in enumerate(run.law_names)]
    panels = [Panel(moving, "weights move", "time", "θ"), Panel(kept, "balances do not", "time", "c")]
    return shown(Figure("Gradient flow of 2-4-1: every weight moves, every neuron's balance stays.", panels))


def components() -> str:
    """The invariant set of one neuron with two weights: two sheets, or one piece."""
    t = np.linspace(-1.7, 1.7, 81)
    along, across = np.cosh(t) * 0.5**0.5, np.sinh(t) * 0.5**0.5  # along² − across² = 0.5
    panels = []
    for c in (0.5, -0.5):
        title = "c = 0.5: w cannot pass 0" if c > 0 else "c = −0.5: v cannot pass 0"
        sheets = [(along, across), (-along, across)] if c > 0 else [(across, along), (across, -along)]
        curves = [Series(v, w, colour="#2a6f97") for w, v in sheets]
        panels.append(Panel(curves, title, "w (in)", "v (out)", equal=True, vertical=[0.0], horizontal=[0.0]))
    return shown(Figure("All (w, v) with w² − v² = c: training never leaves its curve, so one sign is locked.", panels))


def singular() -> str:
    """Singular values of J with and without cut-off neurons."""
    whole = lawful.Architecture.parse("6-12-3 relu bias").initialise(seed=1)
    dag = whole.to_dag()
    gone = set(dag.hidden[:5].tolist())
    theta = dag.theta.copy()
    cut = [e for e in range(dag.parameters) if int(dag.tails[e]) in gone or int(dag.heads[e]) in gone]
    theta[cut] = 0.0
    values = [np.maximum(lawful.singular(net).spectrum.values, 1e-9) for net in (whole, whole.with_theta(theta))]
    names = ("all 12 neurons", "5 of them cut off")
    series = [Series(v, np.arange(1, len(v) + 1), n, "points") for v, n in zip(values, names, strict=True)]
    panel = Panel(series, "singular values of J", "number", "σ", log_y=True)
    return shown(Figure("Every neuron that is cut off takes one singular value to zero.", [panel]))


def pruning() -> str:
    """The certified bound against the size that is left."""
    from lawful.pruning import size_curve

    points = size_curve(lawful.Architecture.parse("4-16-2 relu bias").initialise(seed=2))
    sizes = [point.neurons for point in points]
    panel = Panel([Series([max(p.bound, 0.0) for p in points], sizes, style="points")], "", "neurons left", "bound")
    return shown(Figure("A certified bound on every output, for every size of the network that is left.", [panel]))


def flow() -> str:
    """Drift of the laws under discrete optimisers."""
    found = lawful.compare("3-5-1 relu bias", "flow,sgd:0.1,sgd:0.01,adam:0.01", until=2.0)
    return shown(found.plot())


def truncation() -> str:
    """Clusters before and after the flow."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(25, 2)) * 0.18 + centre for centre in ((1, 0), (0, 1))])
    y = np.repeat([0, 1], 25)
    run = lawful.truncation_flow((x, y), until=8.0, frames=9)
    panels = []
    for title, points in (("before", x), ("after", run.images(len(run.times) - 1))):
        series = [Series(points[y == k, 1], points[y == k, 0], f"class {k}", "points") for k in (0, 1)]
        panels.append(Panel(series, title, equal=True))
    return shown(Figure("The truncation maps move by gradient flow; each cluster collapses.", panels))


def leaky() -> str:
    """Effective dimension along a deep network."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 8))
    found = lawful.bottleneck("8-8-8-3-8-8-8 relu bias", x)
    return shown(found.plot())


def fibers() -> str:
    """Regions of a network of two inputs."""
    from lawful.fibers.regions.count import draw_regions
    from lawful.report.structure.fibers import complex_figure

    network = lawful.Architecture.parse("2-6-4-1 relu bias").initialise(seed=4)
    return shown(complex_figure(*draw_regions(network, (-3.0, 3.0))))


def distance() -> str:
    """Bounds output by output."""
    first = lawful.Architecture.parse("3-6-4 relu bias").initialise(seed=0)
    second = first.with_theta(np.round(first.theta, 1))
    return shown(lawful.distance(first, second, ([-1.0] * 3, [1.0] * 3), seconds=5.0).plot())


def symmetry() -> str:
    """Laws of a small transformer block by group."""
    import torch

    class Block(torch.nn.Module):
        """Attention, normalisation and a perceptron."""

        def __init__(self) -> None:
            super().__init__()
            self.attention = torch.nn.MultiheadAttention(16, 4, batch_first=True)
            self.norm = torch.nn.LayerNorm(16)
            self.first, self.second = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.attention(x, x, x, need_weights=False)[0]
            return x + self.second(torch.relu(self.first(self.norm(x))))

    return shown(lawful.symmetries(Block(), (5, 16), check=False).plot())


def audit() -> str:
    """The audit's own figure."""
    return shown(lawful.audit("8-24-12-3 relu bias", effort="quick").plot())


def network() -> str:
    """A drawn network."""
    dag = lawful.Architecture.parse("3-5-4-2 relu bias").initialise(seed=0).to_dag()
    return f"<figure>{draw_graph(dag)}<figcaption>Blue weights are positive, red negative.</figcaption></figure>"


def start() -> str:
    """What the first command of the page is about."""
    run = lawful.flow("3-4-2 relu", until=3.0, seed=1)
    times, theta = run.trajectory.times, run.trajectory.theta
    panels = [
        Panel([Series(theta[:, edge], times) for edge in range(8)], "8 of the 20 weights", "time", "weight"),
        Panel([Series(run.laws[:, law], times) for law in range(4)], "the 4 balances", "time", "balance"),
    ]
    return shown(Figure("Training moves the weights of 3-4-2; the balance of each hidden neuron stays.", panels))


def student() -> str:
    """The run of the page, on the curve that it never leaves."""
    net = lawful.Mlp([[[1.2]], [[0.5]]], [None, None])
    x = np.array([[0.5], [1.0], [1.5]])
    run = lawful.flow(net, (x, 2 * x), until=3.0)
    t = np.linspace(-1.2, 1.2, 81)
    curve = Series((1.19**0.5) * np.sinh(t), (1.19**0.5) * np.cosh(t), "w² − v² = 1.19", colour="#9aa7b3")
    path = Series(run.trajectory.theta[:, 1], run.trajectory.theta[:, 0], "training", colour="#b4432d")
    panel = Panel([curve, path], "", "w (in)", "v (out)", equal=True, horizontal=[0.0])
    return shown(Figure("Training moves along its curve, from w = 1.2 and v = 0.5 to a product of 2.", [panel]))


def theorist() -> str:
    """The dimensions of the closure, and the laws that they leave."""
    return shown(lawful.laws("6-5-6-4-3-6 linear").plot())


def practitioner() -> str:
    """What pruning to a tolerance leaves, and what it may change."""
    points = pruning_points()
    panel = Panel(
        [Series([p.bound for p in points], [p.neurons for p in points], style="points")], "", "neurons left", "bound"
    )
    return shown(Figure("How far any output can move, proved, for every size that pruning can leave.", [panel]))


def pruning_points() -> list[Any]:
    """Bounds at every size of a small network."""
    from lawful.pruning import size_curve

    return list(size_curve(lawful.Architecture.parse("5-20-3 relu bias").initialise(seed=7)))


def shown(figure: Figure) -> str:
    """A figure with its caption."""
    return f"<figure>{svg(figure.caption, figure.panels)}<figcaption>{figure.caption}</figcaption></figure>"


PICTURES: dict[str, Callable[[], str]] = {
    each.__name__: each
    for each in (
        audit, components, distance, fibers, flow, laws, leaky, network, pruning, singular, start, symmetry, truncation
    )
} | {f"tutorials/{each.__name__}": each for each in (practitioner, student, theorist)}  # fmt: skip


def write_pictures(folder: Path) -> None:
    """Every picture as a piece of HTML, which the page of the same name includes."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        (folder / f"{name}.html").parent.mkdir(exist_ok=True)
        (folder / f"{name}.html").write_text(f"<style>{STYLE}</style>{draw()}", encoding="utf-8")


if __name__ == "__main__":
    write_pictures(Path(__file__).parent / "generated" / "pictures")
