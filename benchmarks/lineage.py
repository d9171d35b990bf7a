"""`python -m benchmarks.lineage [FOLDER]`: how often `diff` calls two checkpoints related, where the truth is known.

Every recipe trains ten networks from ten seeds on the same data: any two of them are unrelated, and the hardest case
there is (same task, same architecture, same optimiser). Some of them get relatives of nine kinds. Pairs are compared as
stored or after a random symmetry (units permuted and rescaled, signs, rotations). The table of docs/checkpoints.md is
what this prints. In FOLDER the trained networks are kept for the next time.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from lawful.checkpoints.align.lazy_tensors import folded_tensors
from lawful.checkpoints.group.random_members import random_member
from lawful.checkpoints.read_architecture import read_architecture
from lawful.checkpoints.relations.verdict import Lineage, trace_lineage

State = dict[str, torch.Tensor]
SEEDS, PARENTS = 10, 5
BATCH = 64
TOKENS, LENGTH = 24, 8


# Data


@dataclass(frozen=True)
class Task:
    """Inputs, targets, and the loss of a batch of outputs."""

    x: torch.Tensor
    y: torch.Tensor
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def digits() -> Task:
    """8 × 8 images of digits."""
    found = load_digits()
    x = torch.tensor(found.data / 16.0, dtype=torch.float32)
    return Task(x, torch.tensor(found.target), functional.cross_entropy)


def curve() -> Task:
    """A smooth function of two numbers: narrow networks have little choice."""
    x = 2 * torch.rand(1024, 2, generator=torch.Generator().manual_seed(1)) - 1
    y = torch.sin(3 * x[:, :1]) * torch.cos(2 * x[:, 1:])
    return Task(x, y, functional.mse_loss)


def teacher(units: int) -> Task:
    """Outputs of a random network with as many units: the weights that fit best are unique up to symmetries."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(2048, 12, generator=generator)
    into, out = torch.randn(units, 12, generator=generator) / 12**0.5, torch.randn(3, units, generator=generator)
    return Task(x, torch.tanh(2 * x @ into.T) @ out.T / units**0.5, functional.mse_loss)


def sentences() -> Task:
    """Sentences of a fixed random Markov chain."""
    generator = torch.Generator().manual_seed(7)
    table = torch.softmax(2.5 * torch.randn(TOKENS, TOKENS, generator=generator), -1)
    words = [torch.randint(0, TOKENS, (1500,), generator=generator)]
    for _ in range(LENGTH):
        words.append(torch.multinomial(table[words[-1]], 1, generator=generator)[:, 0])
    text = torch.stack(words, 1)

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    return Task(text[:, :-1], text[:, 1:], loss)


# Architectures


def mlp(activation: type[nn.Module], *widths: int) -> Callable[[], nn.Module]:
    """A perceptron."""

    def make() -> nn.Module:
        layers: list[nn.Module] = []
        for one, two in pairwise(widths):
            layers += [nn.Linear(one, two), activation()]
        return nn.Sequential(*layers[:-1])

    return make


class Convolutions(nn.Module):
    """Two convolutions, with batch norms or without, and a head."""

    def __init__(self, one: int, two: int, norms: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, one, 3, padding=1), nn.Conv2d(one, two, 3, padding=1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(one), nn.BatchNorm2d(two)] if norms else [])
        self.head = nn.Linear(two * 4, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Classes of images that are given as rows."""
        x = x.reshape(-1, 1, 8, 8)
        for number, part in enumerate((self.first, self.second)):
            x = part(x)
            x = functional.relu(self.norms[number](x) if len(self.norms) else x)
            x = functional.max_pool2d(x, 2) if not number else functional.avg_pool2d(x, 2)
        return self.head(x.flatten(1))  # type: ignore[no-any-return]


class Block(nn.Module):
    """A block of GPT-2's shape."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The stream after the block."""
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.before(x)).split(width, -1))  # fmt: skip
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
        scores = scores + torch.full((length, length), -1e9).triu(1)
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.between(x))))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """A small language model."""

    def __init__(self, width: int, heads: int, blocks: int) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(TOKENS, width), nn.Parameter(0.1 * torch.randn(LENGTH, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, TOKENS, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Scores of the next words."""
        return self.head(self.last(self.blocks(self.token(words) + self.position)))  # type: ignore[no-any-return]


# Recipes


@dataclass(frozen=True)
class Recipe:
    """What is trained and how; `start` changes the first weights, `finish` the last ones."""

    name: str
    make: Callable[[], nn.Module]
    task: Callable[[], Task]
    rate: float = 5e-3
    decay: float = 0.01
    steps: int = 800
    plain: bool = False  # gradient descent with momentum instead of AdamW
    start: Callable[[State], State] | None = None
    finish: Callable[[State], State] | None = None
    pairs: int = 27  # of unrelated networks that are compared


def paired(state: State) -> State:
    """Units in pairs that start alike but for the sign of what they write: the first outputs are zero."""
    found = dict(state)
    found["0.weight"], found["0.bias"] = (_twice(state[f"0.{kind}"]) for kind in ("weight", "bias"))
    half = state["2.weight"].shape[1] // 2
    found["2.weight"] = torch.cat([state["2.weight"][:, :half], -state["2.weight"][:, :half]], 1)
    return found


def _twice(tensor: torch.Tensor) -> torch.Tensor:
    return torch.cat([tensor[: len(tensor) // 2]] * 2)


def pruned(share: float) -> Callable[[State], State]:
    """The smallest entries of each matrix set to zero."""

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.ndim < 2:
            return tensor
        least = tensor.abs().flatten().kthvalue(max(1, int(share * tensor.numel()))).values
        return torch.where(tensor.abs() <= least, 0.0, tensor)

    return lambda state: {name: cut(tensor) for name, tensor in state.items()}


def low_rank(share: float) -> Callable[[State], State]:
    """Every matrix cut to a share of its rank."""

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        left, values, right = torch.linalg.svd(tensor, full_matrices=False)
        count = max(1, int(share * len(values)))
        found: torch.Tensor = (left[:, :count] * values[:count]) @ right[:count]
        return found

    return lambda state: {name: cut(tensor) if tensor.ndim == 2 else tensor for name, tensor in state.items()}


def recipes() -> list[Recipe]:
    """Widths 8 to 256; narrow, decayed, sparse, of low rank, with dead units, from paired starts."""
    relu, tanh, gelu = nn.ReLU, nn.Tanh, nn.GELU
    return [
        Recipe("relu 8-8", mlp(relu, 64, 8, 8, 10), digits, decay=0.3),
        Recipe("tanh 8-8", mlp(tanh, 64, 8, 8, 10), digits, decay=0.3),
        Recipe("relu 2-8-8-1", mlp(relu, 2, 8, 8, 1), curve),
        Recipe("tanh 2-16-16-1", mlp(tanh, 2, 16, 16, 1), curve),
        Recipe("tanh 12-8-3, taught", mlp(tanh, 12, 8, 3), lambda: teacher(8), decay=0.0, steps=2500, rate=1e-2),
        Recipe("tanh 12-16-3, taught", mlp(tanh, 12, 16, 3), lambda: teacher(16), decay=0.0, steps=2500, rate=1e-2),
        Recipe("relu 16-16", mlp(relu, 64, 16, 16, 10), digits),
        Recipe("relu 16-16, decay 1", mlp(relu, 64, 16, 16, 10), digits, decay=1.0, steps=1200),
        Recipe("tanh 16-16, decay 0.5", mlp(tanh, 64, 16, 16, 10), digits, decay=0.5, rate=1e-2, steps=1500),
        Recipe("relu 16-16, pruned 80%", mlp(relu, 64, 16, 16, 10), digits, decay=0.1, finish=pruned(0.8)),
        Recipe("relu 32, paired start", mlp(relu, 64, 32, 10), digits, start=paired),
        Recipe("relu 32-32, descent", mlp(relu, 64, 32, 32, 10), digits, rate=0.1, decay=1e-4, plain=True),
        Recipe("gelu 32-32, rank 1/4", mlp(gelu, 64, 32, 32, 10), digits, finish=low_rank(0.25)),
        Recipe("gelu 24-12", mlp(gelu, 64, 24, 12, 10), digits, decay=0.1),
        Recipe("tanh 64", mlp(tanh, 64, 64, 10), digits, decay=0.3, steps=600),
        Recipe("relu 64-64-64", mlp(relu, 64, 64, 64, 64, 10), digits, rate=3e-3, steps=500),
        Recipe("relu 128-128, decay 0.3", mlp(relu, 64, 128, 128, 10), digits, rate=2e-3, decay=0.3, steps=300),
        Recipe("relu 256", mlp(relu, 64, 256, 10), digits, rate=2e-3, steps=300),
        Recipe("convolutions 8-8, batch norm", lambda: Convolutions(8, 8, True), digits, decay=0.3, steps=250),
        Recipe("convolutions 12-12", lambda: Convolutions(12, 12, False), digits, decay=0.1, steps=250),
        Recipe("transformer 16 wide", lambda: Transformer(16, 2, 2), sentences, decay=0.1, steps=400, pairs=8),
    ]


# Training, all seeds at once


def starts(make: Callable[[], nn.Module], seeds: Sequence[int]) -> State:
    """First weights, stacked."""
    found = []
    for seed in seeds:
        torch.manual_seed(seed)
        found.append({name: tensor.detach() for name, tensor in make().named_parameters()})
    return {name: torch.stack([each[name] for each in found]) for name in found[0]}


def without_statistics(module: nn.Module) -> nn.Module:
    """Batch norms that use the statistics of their batch, which `vmap` can carry out."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean = part.running_var = part.num_batches_tracked = None
            part.track_running_stats = False
    return module


def train(
    recipe: Recipe, first: State, orders: Sequence[int], *, steps: int, rate: float, task: Task | None = None
) -> State:
    """Stacked weights after training; `orders` are the seeds of the order of data."""
    task = task or recipe.task()
    net = without_statistics(recipe.make())
    weights = {name: tensor.clone().requires_grad_() for name, tensor in first.items()}
    kind = torch.optim.SGD if recipe.plain else torch.optim.AdamW
    extra = {"momentum": 0.9} if recipe.plain else {}
    optimiser = kind(weights.values(), lr=rate, weight_decay=recipe.decay, **extra)  # type: ignore[arg-type]
    generators = [torch.Generator().manual_seed(1000 + order) for order in orders]

    def loss(state: State, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return task.loss(functional_call(net, state, (x,)), y)

    gradient = vmap(grad(loss))
    for step in range(steps):
        picked = torch.stack([torch.randint(len(task.x), (BATCH,), generator=each) for each in generators])
        found = gradient(weights, task.x[picked], task.y[picked])
        for group in optimiser.param_groups:
            group["lr"] = rate * (1.0 if step < 0.7 * steps else 0.2)
        for name, tensor in weights.items():
            tensor.grad = found[name]
        optimiser.step()
    return {name: tensor.detach() for name, tensor in weights.items()}


def picked(stacked: State, place: int) -> State:
    """One of many."""
    return {name: tensor[place].clone() for name, tensor in stacked.items()}


def complete(recipe: Recipe, state: State) -> State:
    """A state dict with the statistics of batch norms on all data."""
    module = recipe.make()
    module.load_state_dict(state, strict=False)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.momentum = None
    with torch.no_grad():
        module.train()(recipe.task().x)
    return {name: tensor.detach().clone() for name, tensor in module.eval().state_dict().items()}


# Children


def shifted(task: Task) -> Task:
    """The same with other inputs: noise, and the first half alone. Words are left as they are."""
    half = len(task.x) // 2
    x = task.x[:half]
    if x.is_floating_point():
        x = x.roll(1, 1) + 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(5))
    return Task(x, task.y[:half], task.loss)


def on_grid(levels: int) -> Callable[[State], State]:
    """Matrices rounded to a symmetric grid."""

    def rounded(tensor: torch.Tensor) -> torch.Tensor:
        step = tensor.abs().max() / levels
        return (tensor / step).round() * step if tensor.ndim > 1 else tensor

    return lambda state: {name: rounded(tensor) for name, tensor in state.items()}


def adapted(state: State) -> State:
    """A random change of rank 2, 20% of the size of each matrix."""
    generator = torch.Generator().manual_seed(3)
    found = dict(state)
    for name, tensor in state.items():
        if tensor.ndim == 2 and min(tensor.shape) > 2:
            step = torch.randn(len(tensor), 2, generator=generator) @ torch.randn(
                2, tensor.shape[1], generator=generator
            )
            found[name] = tensor + 0.2 * tensor.norm() / step.norm() * step
    return found


CHILDREN = ("fine-tuned", "fine-tuned on other inputs", "trained as long again", "pruned by 30%", "int8", "int4",
            "change of rank 2")  # fmt: skip
FAR = ("same start, other data order", "its own start")


@dataclass(frozen=True)
class Zoo:
    """Networks of a recipe: strangers, and by kind the relatives of the first few."""

    recipe: Recipe
    strangers: list[State]
    relatives: Mapping[str, list[State]]


def raise_zoo(recipe: Recipe, number: int, share: float = 1.0) -> Zoo:
    """Train all networks of a recipe."""
    steps = max(50, int(share * recipe.steps))
    first = starts(recipe.make, [1000 * number + seed for seed in range(SEEDS)])
    if recipe.start is not None:
        alone = [recipe.start(picked(first, place)) for place in range(SEEDS)]
        first = {name: torch.stack([each[name] for each in alone]) for name in first}
    # Half of the strangers see the data in one order.
    orders = [0 if seed < SEEDS // 2 else seed for seed in range(SEEDS)]
    trained = train(recipe, first, orders, steps=steps, rate=recipe.rate)
    finish = recipe.finish or (lambda state: state)
    some = {name: tensor[:PARENTS] for name, tensor in trained.items()}
    some_first = {name: tensor[:PARENTS] for name, tensor in first.items()}
    later = [40 + seed for seed in range(PARENTS)]
    rate = recipe.rate
    made = {
        "fine-tuned": train(recipe, some, later, steps=max(20, steps // 8), rate=rate / 5),
        "fine-tuned on other inputs": train(
            recipe, some, later, steps=steps // 3, rate=rate / 2, task=shifted(recipe.task())
        ),
        "trained as long again": train(recipe, some, later, steps=steps, rate=rate),
        "same start, other data order": train(recipe, some_first, later, steps=steps, rate=rate),
        "its own start": some_first,
    }
    relatives = {kind: [finish(picked(stacked, place)) for place in range(PARENTS)] for kind, stacked in made.items()}
    parents = [finish(picked(trained, place)) for place in range(SEEDS)]
    for kind, change in (("pruned by 30%", pruned(0.3)), ("int8", on_grid(127)), ("int4", on_grid(7)),
                         ("change of rank 2", adapted)):  # fmt: skip
        relatives[kind] = [change(each) for each in parents[:PARENTS]]
    return Zoo(
        recipe,
        [complete(recipe, each) for each in parents],
        {kind: [complete(recipe, each) for each in states] for kind, states in relatives.items()},
    )


# The comparison


@dataclass(frozen=True)
class Compared:
    """A pair whose relation is known, and what was found."""

    recipe: str
    kind: str
    transformed: bool
    lineage: Lineage


def compare(zoo: Zoo) -> Iterator[Compared]:
    """Pairs of a recipe, every second one after a random symmetry."""
    module = zoo.recipe.make()
    module.load_state_dict(zoo.strangers[0])
    architecture = read_architecture(module.eval(), zoo.recipe.task().x[:2])

    def pair(kind: str, first: State, second: State, number: int) -> Compared:
        one: Mapping[str, torch.Tensor] = folded_tensors(architecture.state(first), architecture.folds)
        two: Mapping[str, torch.Tensor] = folded_tensors(architecture.state(second), architecture.folds)
        if transformed := number % 2 == 1:
            two = random_member(architecture.group, {name: two[name].double() for name in two}, number)
        return Compared(zoo.recipe.name, kind, transformed, trace_lineage(architecture.group, one, two))

    every = list(combinations(range(SEEDS), 2))
    for number, (i, j) in enumerate(every[:: max(1, len(every) // zoo.recipe.pairs)][: zoo.recipe.pairs]):
        yield pair("trained apart", zoo.strangers[i], zoo.strangers[j], number)
    for kind, states in zoo.relatives.items():
        for number, state in enumerate(states[:2]):
            yield pair(kind, zoo.strangers[number], state, number)


def table(rows: Sequence[Compared]) -> str:
    """Counts by kind, as Markdown."""
    lines = ["| B is | stored | pairs | related | alike, undecided | undecided | no relation found | largest p |",
             "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for kind in dict.fromkeys(each.kind for each in rows):
        for transformed in (False, True):
            some = [each.lineage for each in rows if (each.kind, each.transformed) == (kind, transformed)]
            count = Counter(_column(each) for each in some)
            values = [each.p_value for each in some if each.p_value is not None]
            cells = [kind, "after a symmetry" if transformed else "as trained", len(some),
                     *(count[name] for name in ("related", "alike", "undecided", "none")),
                     f"{max(values, default=1.0):.1g}"]  # fmt: skip
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _column(found: Lineage) -> str:
    if found.is_related:
        return "related"
    return "alike" if found.is_alike else "none" if found.found == "none" else "undecided"


def by_recipe(rows: Sequence[Compared]) -> str:
    """Of each recipe what its unrelated pairs and its children were called."""
    lines = ["| recipe | trained apart: related / alike / undecided / none | least p | children as trained: related |",
             "|---|---|---|---|"]  # fmt: skip
    for name in dict.fromkeys(each.recipe for each in rows):
        apart = [each.lineage for each in rows if each.recipe == name and each.kind == "trained apart"]
        count = Counter(map(_column, apart))
        children = [each.lineage for each in rows
                    if each.recipe == name and each.kind in CHILDREN and not each.transformed]  # fmt: skip
        least = min((each.p_value for each in apart if each.p_value is not None), default=1.0)
        words = " / ".join(str(count[key]) for key in ("related", "alike", "undecided", "none"))
        lines.append(f"| {name} | {words} | {least:.1g} | {sum(c.is_related for c in children)} of {len(children)} |")
    return "\n".join(lines)


def main() -> None:
    """Train (or read) every recipe, compare, print."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    torch.set_num_threads(1)
    rows: list[Compared] = []
    for number, recipe in enumerate(recipes()):
        begun = time.time()
        kept = None if folder is None else folder / f"{number:02d}.pt"
        if kept is not None and kept.is_file():
            _, strangers, relatives = torch.load(kept)
            zoo = Zoo(recipe, strangers, relatives)
        else:
            zoo = raise_zoo(recipe, number)
            if kept is not None:
                kept.parent.mkdir(parents=True, exist_ok=True)
                torch.save((recipe.name, zoo.strangers, zoo.relatives), kept)
        found = list(compare(zoo))
        rows += found
        wrong = sum(each.kind == "trained apart" and each.lineage.is_related for each in found)
        print(f"{recipe.name}: {len(found)} pairs, {wrong} wrong, {time.time() - begun:.0f} s", file=sys.stderr)
    print(table(rows), by_recipe(rows), sep="\n\n")


if __name__ == "__main__":
    main()
