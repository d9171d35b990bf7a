"""The picture of the README: two sets of weights that lawful proves to be one function, and that function.

    python docs/hero.py           draws docs/hero.svg from the weights in docs/hero.json
    python docs/hero.py --train   trains those weights first (two moons, a few seconds)

The tests draw it again, count its regions with `lawful regions` and ask `lawful same`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lawful.network import Mlp

Floats = NDArray[np.float64]
Piece = tuple[Floats, Floats, float]  # a polygon, and the slope and offset of the function on it

HERE = Path(__file__).parent
WIDTH = 16
BOX = (-2.35, -1.75, 2.35, 1.75)
SCALE = 92.0  # pixels for a unit of the plane
CELL = 9.0  # pixels for a weight
SEED = 4  # of the twin's scales
SLIVER = 1e-9  # areas below this are rounding: the smallest region of the picture has 1e-5


def train(seed: int = 0) -> dict[str, Any]:
    """A network of two hidden layers that tells two moons apart, by full-batch Adam."""
    import torch
    from sklearn.datasets import make_moons

    torch.manual_seed(seed)
    points, labels = make_moons(160, noise=0.1, random_state=seed)
    points = (points - points.mean(0)) / points.std(0)
    layers = (torch.nn.Linear(2, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())
    model = torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 1)).double()
    x, y = torch.tensor(points), torch.tensor(2.0 * labels - 1)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(400):
        optimiser.zero_grad()
        torch.nn.functional.softplus(-y * model(x)[:, 0]).mean().backward()
        optimiser.step()
    theta = torch.cat([each.detach().flatten() for each in model.parameters()])
    return {"theta": theta.float().tolist(), "x": points.round(3).tolist(), "y": y.tolist()}


def network(theta: Floats) -> Mlp:
    """The weights as a network."""
    shapes = [(WIDTH, 2), (WIDTH,), (WIDTH, WIDTH), (WIDTH,), (1, WIDTH), (1,)]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    parts = [part.reshape(shape) for part, shape in zip(np.split(theta, ends[:-1]), shapes, strict=True)]
    return Mlp([parts[0], parts[2], parts[4]], [parts[1], parts[3], parts[5]])


def twin(given: Mlp) -> Mlp:
    """Every hidden neuron at another scale: powers of two, so that nothing is rounded."""
    rng = np.random.default_rng(SEED)
    weights, biases = [each.copy() for each in given.weights], [np.array(each) for each in given.biases]
    for layer in (0, 1):
        scale = 2.0 ** rng.choice([-2, -1, 1, 2], WIDTH)
        weights[layer] *= scale[:, None]
        biases[layer] *= scale
        weights[layer + 1] /= scale
    return Mlp(weights, biases)


def pieces(given: Mlp) -> list[Piece]:
    """The box cut by the creases of the first layer, and each part by those of the second."""
    (first, second, last), (shift, second_shift, end) = given.weights, [np.asarray(each) for each in given.biases]
    x0, y0, x1, y1 = BOX
    found: list[Piece] = []
    for polygon, on in _cut(np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]]), first, shift):
        slopes, offsets = second * on @ first, second * on @ shift + second_shift
        for part, active in _cut(polygon, slopes, offsets):
            found.append((part, (last * active @ slopes)[0], float((last * active @ offsets)[0] + end[0])))
    return found


def _cut(polygon: Floats, slopes: Floats, offsets: Floats) -> Iterator[tuple[Floats, Floats]]:
    """The parts of a polygon by the signs of affine functions, each with the functions that are positive on it."""
    parts: list[tuple[Floats, tuple[float, ...]]] = [(polygon, ())]
    for slope, offset in zip(slopes, offsets, strict=True):
        parts = [
            (half, (*signs, float(side > 0)))
            for part, signs in parts
            for side in (1, -1)
            if (half := clip(part, slope, offset, side)) is not None and area(half) > SLIVER
        ]
    return ((part, np.array(signs)) for part, signs in parts)


def clip(polygon: Floats, slope: Floats, offset: float, side: int) -> Floats | None:
    """The part of a convex polygon on one side of a line (Sutherland and Hodgman)."""
    value = side * (polygon @ slope + offset)
    corners = []
    for here, there in zip(range(len(polygon)), [*range(1, len(polygon)), 0], strict=True):
        if value[here] >= 0:
            corners.append(polygon[here])
        if value[here] * value[there] < 0:
            share = value[here] / (value[here] - value[there])
            corners.append(polygon[here] + share * (polygon[there] - polygon[here]))
    return np.array(corners) if len(corners) > 2 else None


def area(polygon: Floats) -> float:
    """Of a polygon, by the shoelace formula."""
    x, y = polygon.T
    return float(abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2)


def draw(given: dict[str, Any]) -> str:
    """The picture as SVG; its colours follow the reader's theme."""
    one = network(np.array(given["theta"]))
    two = twin(one)
    tiles = pieces(one)
    wide, high = (BOX[2] - BOX[0]) * SCALE, (BOX[3] - BOX[1]) * SCALE
    left, side = 8.0, 19 * CELL
    middle = left + side + 26
    right = middle + wide + 26
    top = 34 + (high - 19.5 * CELL) / 2
    changed = int(sum((a != b).sum() for a, b in zip(_parts(one), _parts(two), strict=True)))
    fills, light, dark = _tiling(tiles)
    style = _style(light, dark)
    points = "".join(
        f'<circle class="{"x" if label > 0 else "y"}" cx="{_at(point).split()[0]}" cy="{_at(point).split()[1]}" r="3"/>'
        for point, label in list(zip(given["x"], given["y"], strict=True))[:100]
    )
    edges = "".join(_path(tile) for tile, _, _ in tiles if area(tile) > 2e-3)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right + side + 8:.0f} {high + 84:.0f}" \
role="img" aria-labelledby="t d">
<title id="t">Two sets of weights, one function</title><desc id="d">Left and right: the {one.parameters} weights of a \
network and of another one, {changed} of them different. Between them the plane, cut into the {len(tiles)} regions on \
which both are affine: one picture, because they are one function.</desc>
<style>{style}</style>
<text x="{left:.0f}" y="{top - 14:.0f}">{one.parameters} weights</text>{_plan(one, left, top)}
<text x="{right:.0f}" y="{top - 14:.0f}">{changed} of them changed</text>{_plan(two, right, top)}
<g transform="translate({middle:.0f} 34)"><clipPath id="c"><rect width="{wide:.0f}" height="{high:.0f}" rx="10"/>\
</clipPath><g clip-path="url(#c)">{fills}\
<path class="e" d="{edges}"/><path class="z" d="{_zero(tiles)}"/>{points}</g></g>
<text x="{middle + wide / 2:.0f}" y="22" text-anchor="middle">one function, {len(tiles)} regions</text>
<text class="s" x="{middle + wide / 2:.0f}" y="{high + 58:.0f}" text-anchor="middle">lawful same: EQUAL exactly on R². \
lawful verify: checked again by code that shares nothing with its maker.</text>
</svg>
"""


def _parts(given: Mlp) -> list[Floats]:
    return [*given.weights, *(np.asarray(each) for each in given.biases)]


def _at(point: Sequence[float] | Floats) -> str:
    return f"{(point[0] - BOX[0]) * SCALE:.1f} {(BOX[3] - point[1]) * SCALE:.1f}"


def _path(polygon: Floats) -> str:
    return "M" + "L".join(map(_at, polygon)) + "Z"


def _tiling(tiles: list[Piece]) -> tuple[str, list[str], list[str]]:
    """Hue by the sign of f, light and hue by the direction of its slope, chroma by its size: constant on a region."""
    usual = float(np.median([np.hypot(*slope) for _, slope, _ in tiles]))
    groups: dict[str, list[str]] = {}
    for tile, slope, offset in tiles:
        angle, steep = np.arctan2(slope[1], slope[0]), np.tanh(0.55 * np.hypot(*slope) / usual)
        levels = (4 + 4 * np.cos(angle - 2.36) * steep, 2 + 2 * np.sin(angle + 0.6) * steep, 3 * steep)
        name = "".join(str(round(float(level))) for level in levels)
        for side in (1, -1):
            if (half := clip(tile, slope, offset, side)) is not None:
                groups.setdefault(("p" if side > 0 else "m") + name, []).append(_path(half))
    light, dark = [], []
    for name in sorted(groups):
        bright, hue, steep = (int(name[1]) - 4) / 4, (int(name[2]) - 2) / 2, int(name[3]) / 3
        turn = (4.16 if name[0] == "p" else 0.52) + 0.34 * hue * steep
        light.append(f".{name}{{fill:{_oklch(0.855 - 0.115 * bright - 0.035 * steep, 0.03 + 0.1 * steep, turn)}}}")
        dark.append(f".{name}{{fill:{_oklch(0.325 + 0.13 * bright + 0.02 * steep, 0.045 + 0.085 * steep, turn)}}}")
    drawn = "".join(f'<path class="{name}" d="{"".join(paths)}"/>' for name, paths in sorted(groups.items()))
    return drawn, light, dark


def _zero(tiles: list[Piece]) -> str:
    """Where f = 0: the one thick line."""
    lines = []
    for tile, slope, offset in tiles:
        value = tile @ slope + offset
        if value.min() < 0 < value.max():
            there = np.roll(np.arange(len(tile)), -1)
            ends = [
                tile[i] + value[i] / (value[i] - value[j]) * (tile[j] - tile[i])
                for i, j in enumerate(there)
                if (value[i] > 0) != (value[j] > 0)
            ]
            lines.append("M" + "L".join(map(_at, ends[:2])))
    return "".join(lines)


def _plan(given: Mlp, x: float, y: float) -> str:
    """All weights as squares: blue for positive, red for negative, by size; biases beside their layer."""
    (first, second, last), (shift, second_shift, _) = given.weights, [np.asarray(each) for each in given.biases]
    cells: dict[str, list[str]] = {}

    def put(value: float, column: float, row: float) -> None:
        level = min(5, round(5 * min(1.0, (abs(value) / 2) ** 0.5)))
        if level:
            square = f"h{CELL - 1:g}v{CELL - 1:g}h-{CELL - 1:g}z"
            place = f"M{x + column * CELL:.1f} {y + row * CELL:.1f}{square}"
            cells.setdefault(("b" if value > 0 else "r") + str(level), []).append(place)

    for neuron in range(WIDTH):
        put(first[neuron, 0], neuron, 0)
        put(first[neuron, 1], neuron, 1)
        put(shift[neuron], neuron, 2)
        for above in range(WIDTH):
            put(second[above, neuron], neuron, 3.5 + above)
        put(second_shift[neuron], 16.5, 3.5 + neuron)
        put(last[0, neuron], 18, 3.5 + neuron)
    return "".join(f'<path class="{name}" d="{"".join(paths)}"/>' for name, paths in sorted(cells.items()))


def _style(light: list[str], dark: list[str]) -> str:
    for level in range(1, 6):
        opacity = f"fill-opacity:{0.18 + 0.82 * level / 5:.2f}"
        light.append(f".b{level}{{fill:#1f6f9f;{opacity}}}.r{level}{{fill:#b4432d;{opacity}}}")
        dark.append(f".b{level}{{fill:#69b4e2}}.r{level}{{fill:#f08d76}}")
    plain = (
        'text{font:600 15px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#17202a}'
        ".s{font-weight:400;font-size:13px;fill:#4c5864}"
        ".e{fill:none;stroke:#0c1a28;stroke-opacity:.28;stroke-width:.7}"
        ".z{fill:none;stroke:#0c1a28;stroke-width:2.6;stroke-linecap:round}"
        ".x{fill:#1f6f9f}.y{fill:#b4432d}.x,.y{stroke:#fff;stroke-width:1}"
    )
    night = (
        "text{fill:#e8edf2}.s{fill:#a7b3bf}.e{stroke:#fff;stroke-opacity:.25}.z{stroke:#fff}"
        ".x{fill:#8ccbf2}.y{fill:#ffb3a1}.x,.y{stroke:#0f1419}"
    )
    return f"{plain}{''.join(light)}@media(prefers-color-scheme:dark){{{night}{''.join(dark)}}}"


def _oklch(light: float, chroma: float, hue: float) -> str:
    """A colour of equal lightness for the eye (Ottosson's OKLCH), as sRGB."""
    a, b = chroma * np.cos(hue), chroma * np.sin(hue)
    cones = np.array(
        [
            light + 0.3963377774 * a + 0.2158037573 * b,
            light - 0.1055613458 * a - 0.0638541728 * b,
            light - 0.0894841775 * a - 1.291485548 * b,
        ]
    )
    mix = np.array(
        [
            [4.0767416621, -3.3077115913, 0.2309699292],
            [-1.2684380046, 2.6097574011, -0.3413193965],
            [-0.0041960863, -0.7034186147, 1.707614701],
        ]
    )
    linear = mix @ cones**3
    curved = 1.055 * np.clip(linear, 1e-9, None) ** (1 / 2.4) - 0.055
    shown = np.clip(np.where(linear <= 0.0031308, 12.92 * linear, curved), 0, 1)
    return "#" + "".join(f"{round(255 * float(each)):02x}" for each in shown)


if __name__ == "__main__":
    if "--train" in sys.argv:
        (HERE / "hero.json").write_text(json.dumps(train()) + "\n", encoding="utf-8")
    (HERE / "hero.svg").write_text(draw(json.loads((HERE / "hero.json").read_text(encoding="utf-8"))), encoding="utf-8")
