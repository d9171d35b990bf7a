"""Sentences about laws against ranks of sampled brackets in float64, computed here from products of matrices alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise, product
from unittest.mock import patch

import numpy as np
import torch
from falsification import Trial
from torch.func import grad, jvp

from lawful.conservation import LawCount, count_laws, theorems
from lawful.conservation.near_random_weights import training_laws
from lawful.network import Architecture, Dag
from lawful.report.page.charts import laws as laws_figure
from lawful.report.structure.laws import count_json, text
from lawful.sentences import laws as sentences

LINEAR = ("1-1-1 linear", "2-1-2 linear", "1-2-2-1 linear", "2-2-1 linear", "1-1-1-1 linear")
GATED = ("1-2-1 relu", "1-3-1 relu", "2-1-2-1 relu", "1-2-2-1 relu", "2-2-2 relu", "2-3-1 relu", "2-3-3-1 relu")
LEVELS = 4
Field = Callable[[np.ndarray], np.ndarray]


counted = cache(count_laws)  # of architectures


def widths_of(architecture: str) -> list[int]:
    return [int(part) for part in architecture.split()[0].split("-")]


def gradient(shapes: list[tuple[int, int]], theta: np.ndarray, x: np.ndarray, w: np.ndarray, gates: list) -> np.ndarray:
    """The gradient of ⟨w, U D … U x⟩ in all entries, forwards and backwards by hand."""
    layers, start = [], 0
    for a, b in shapes:
        layers.append(theta[start : start + a * b].reshape(b, a))
        start += a * b
    signals = [x]
    for number, layer in enumerate(layers[:-1]):
        signals.append(gates[number] * (layer @ signals[-1]))
    parts, back = [], w
    for number in range(len(layers) - 1, -1, -1):
        parts.append(np.outer(back, signals[number]).ravel())
        back = back @ layers[number] * (gates[number - 1] if number else 1.0)
    return np.concatenate(parts[::-1])


def slope(function: Field, at: np.ndarray, along: np.ndarray) -> np.ndarray:
    """The derivative along a direction, exact for polynomials of degree 4: brackets here have no more."""
    ends = [function(at + step * along) - function(at - step * along) for step in (1.0, 2.0)]
    return (8 * ends[0] - ends[1]) / 12


def bracket(one: Field, other: Field) -> Field:
    return lambda at: slope(one, at, other(at)) - slope(other, at, one(at))


def rank_of_brackets(widths: list[int], theta: np.ndarray, gates: Callable[[np.random.Generator], tuple]) -> int:
    """The dimension that gradients of ⟨w, U D … U x⟩ and their brackets span at θ, with these diagonals D."""
    shapes = list(pairwise(widths))
    rng = np.random.default_rng(0)

    def field() -> Field:
        x, diagonals = gates(rng)
        w = rng.normal(size=widths[-1])
        return lambda at: gradient(shapes, at, x, w, diagonals)

    rows, level, rank = [], [field() for _ in range(3 * len(theta))], 0
    for _ in range(LEVELS):
        values = [each(theta) for each in level]
        rows += [value / size for value in values if (size := np.linalg.norm(value)) > 1e-9]
        found = int(np.linalg.matrix_rank(np.array(rows), tol=1e-7)) if rows else 0
        if found in (rank, len(theta)):
            return found
        rank, level = found, [bracket(field(), each) for each in level[: len(theta) + 4]]
    return rank


def near_laws(architecture: str, theta: np.ndarray) -> int:
    """Laws near θ: the diagonals are the patterns that inputs of all sizes and signs meet there."""
    widths, relu = widths_of(architecture), "relu" in architecture

    def gates(rng: np.random.Generator) -> tuple:
        x = signal = rng.normal(size=widths[0])
        found, start = [], 0
        for a, b in pairwise(widths[:-1]):
            signal = theta[start : start + a * b].reshape(b, a) @ signal
            start += a * b
            found.append((signal > 0).astype(float) if relu else np.ones(b))
            signal = signal * found[-1]
        return x, found

    return len(theta) - rank_of_brackets(widths, theta, gates)


@cache
def phi_laws(architecture: str) -> int:
    """Laws of φ: any diagonals."""
    widths, relu = widths_of(architecture), "relu" in architecture
    theta = np.random.default_rng(5).normal(size=counted(architecture).parameters)

    def gates(rng: np.random.Generator) -> tuple:
        diagonals = [rng.normal(size=b) if relu else np.ones(b) for b in widths[1:-1]]
        return rng.normal(size=widths[0]), diagonals

    return len(theta) - rank_of_brackets(widths, theta, gates)


def is_said(count: LawCount, words: str, training: object = None) -> bool:
    return words in " ".join(text(count_json(count, training), count.summary()).split())


def random_theta(architecture: str, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=counted(architecture).parameters)


def _dag(architecture: str, theta: np.ndarray) -> Dag:
    return Architecture.parse(architecture).initialise(seed=0).to_dag().with_theta(theta)


def complete() -> Iterator[Trial]:
    """Near random weights there are as many as were counted for any."""
    for architecture in (*LINEAR, *GATED[:4]):
        count = counted(architecture)
        true = all(near_laws(architecture, random_theta(architecture, seed)) == count.laws for seed in (1, 2, 3))
        said = is_said(count, sentences.complete()) or is_said(count, "whose hypotheses hold: there are no others")
        yield Trial(architecture, said, true)


def directions() -> Iterator[Trial]:
    """At least so many directions are left out near random weights; a count that is too high is not said."""
    for architecture in (*LINEAR, *GATED[:4]):
        for count in (counted(architecture), replace(counted(architecture), status="numerical", dimensions=(1,))):
            said = laws_figure(count).caption == sentences.directions(count.laws, count.states)
            least = min(near_laws(architecture, random_theta(architecture, seed)) for seed in (1, 2, 3))
            yield Trial(f"{architecture} {count.status}", said, least >= count.laws)


def complete_of_phi() -> Iterator[Trial]:
    for architecture in GATED:
        count = counted(architecture)
        said = is_said(count, sentences.complete_of_phi()) or is_said(count, "no other function of φ is conserved")
        yield Trial(architecture, said, phi_laws(architecture) == count.laws)
        near = count_laws(_dag(architecture, random_theta(architecture, 1)), level="near")
        yield Trial(f"{architecture} near weights", is_said(near, "function of φ"), phi_laws(architecture) == near.laws)


def complete_near() -> Iterator[Trial]:
    for architecture in GATED[:6]:
        for seed in (1, 2):
            theta = random_theta(architecture, seed)
            truth = near_laws(architecture, theta)
            near = count_laws(_dag(architecture, theta), level="near")
            yield Trial(f"{architecture} near {seed}", is_said(near, sentences.complete_near()), near.laws == truth)
            count = counted(architecture)
            yield Trial(architecture, is_said(count, sentences.complete_near()), count.laws == truth)


def complete_somewhere() -> Iterator[Trial]:
    """The weights in the certificate have the laws of φ and no others."""
    for architecture in ("2-2-2 relu", "2-3-1 relu", "1-3-1 relu", "2-1-2-1 relu"):
        count = counted(architecture)
        found = training_laws(count, weights=4)
        said = found is not None and found.witness is not None
        if said:
            witness = found.witness.dag.theta
            true = near_laws(architecture, witness) == count.laws == phi_laws(architecture)
        else:
            thetas = (random_theta(architecture, seed) for seed in range(12))
            true = any(near_laws(architecture, theta) == count.laws for theta in thetas)
        yield Trial(architecture, said, true)


def complete_beside() -> Iterator[Trial]:
    """Of a module on data, whose own weights have a tie: next to them there are as many laws as were counted."""
    for scale in (1.0,):
        module = torch.nn.Sequential(
            torch.nn.Linear(2, 2, bias=False), torch.nn.Tanh(), torch.nn.Linear(2, 1, bias=False)
        )
        with torch.no_grad():
            module[0].weight.copy_(torch.tensor([[1.0, 2.0], [1.0, 2.0]]))
            module[2].weight.copy_(scale * torch.tensor([[1.0, 1.0]]))
        data = np.array([[1.0, 0.5], [-0.5, 1.0], [0.3, -1.2]])
        count = count_laws(module, level="data", data=data, input_shape=(2,))
        beside = _rank_on_data(module, data, 1e-2)
        yield Trial(f"tied {scale}", is_said(count, sentences.complete_beside()), 6 - beside == count.laws)
        yield Trial(f"tied itself {scale}", False, 6 - _rank_on_data(module, data, 0.0) == count.laws)


def _rank_on_data(module: torch.nn.Module, data: np.ndarray, spread: float) -> int:
    """Of gradients alone: three samples span at most three directions, brackets more."""
    own = torch.cat([value.detach().double().flatten() for value in module.parameters()])
    at = own + spread * torch.tensor(np.random.default_rng(3).normal(size=6))

    def field(row: np.ndarray) -> Callable:
        x = torch.tensor(row)
        return grad(lambda flat: (flat[4:] * torch.tanh(flat[:4].reshape(2, 2) @ x)).sum())

    fields = [field(row) for row in data]
    level, rows, rank = fields, [], -1
    for _ in range(5):
        rows += [value / size for each in level if (size := np.linalg.norm(value := each(at).numpy())) > 1e-12]
        found = int(np.linalg.matrix_rank(np.array(rows), tol=1e-6))
        if found == rank:
            break
        rank = found
        level = [
            lambda at, one=one, other=other: jvp(one, (at,), (other(at),))[1] - jvp(other, (at,), (one(at),))[1]
            for one in fields
            for other in level[:6]
            if one is not other
        ]
    return rank


def by_theorem() -> Iterator[Trial]:
    """The theorems answer for networks that are large: asked here of all small ones."""
    for widths in product((1, 2, 3), (1, 2, 3, 4), (1, 2)):
        for kind in ("linear", "relu"):
            architecture = f"{'-'.join(map(str, widths))} {kind}"
            with patch.object(theorems, "ELIMINATED", 0):
                count = count_laws(architecture)
            for phi in (True, False):
                near = near_laws(architecture, random_theta(architecture, 4)) == count.laws
                said = is_said(count, sentences.by_theorem(count.theorem, phi))
                yield Trial(f"{architecture} {phi}", said, phi_laws(architecture) == count.laws if phi else near)


def at_least_everywhere() -> Iterator[Trial]:
    for architecture in ("1-3-1 relu", "2-1-2-1 relu", "2-2-2 relu"):
        count = counted(architecture)
        found = training_laws(count, weights=1)
        least = count.laws + 1 if found.least is None else found.least
        counts = [near_laws(architecture, random_theta(architecture, seed)) for seed in range(8)]
        said = is_said(count, sentences.at_least_everywhere(least), found)
        yield Trial(f"{architecture}: {least}", said, min(counts) >= least)


FALSIFIERS = {
    "laws.directions": directions,
    "laws.complete": complete,
    "laws.complete-of-phi": complete_of_phi,
    "laws.complete-near": complete_near,
    "laws.complete-somewhere": complete_somewhere,
    "laws.complete-beside": complete_beside,
    "laws.by-theorem": by_theorem,
    "laws.at-least-everywhere": at_least_everywhere,
}
