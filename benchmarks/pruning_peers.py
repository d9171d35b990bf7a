"""Pruning beside others in one run: `python -m benchmarks.pruning_peers FOLDER` (which has MNIST's four idx files).

An MLP on scikit-learn's digits, a CNN with batch normalisation and a small ViT on MNIST, each trained here. At equal
shares of multiplications: this library's job (with and without whole blocks), magnitude with and without its repair,
and Torch-Pruning (if it is installed), without training afterwards and after the same short training. Accuracy is on
test data that chose nothing. Tools that change nothing (torch-simplify, onnxsim, exact pruning here) are compared on
the same networks with half of their units silenced.
"""

from __future__ import annotations

import copy
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from lawful.errors import LawfulError
from lawful.pruning.channels.model_files import graph_bytes
from lawful.pruning.channels.prune import prune_channels
from lawful.pruning.job.case import JobSamples, read_case
from lawful.pruning.job.job import prune_to_target
from lawful.pruning.job.network import ModuleSubject
from lawful.pruning.job.score import Criterion
from lawful.pruning.job.sizes import Target
from lawful.pruning.job.units import count_macs

SEEDS = (0, 1, 2)


class Cnn(nn.Module):
    """Five convolutions with batch normalisation, a mean over places, a Linear layer."""

    def __init__(self, widths: tuple[int, ...] = (16, 32, 32, 64, 64)) -> None:
        super().__init__()
        strides = (2, 1, 2, 1, 2)
        sizes = zip((1, *widths), widths, strides, strict=False)
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, stride, 1) for a, b, stride in sizes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for width in widths)
        self.head = nn.Linear(widths[-1], 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores, or the stream behind a block."""
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = functional.relu(norm(conv(x)))
        return self.head(x.mean((2, 3)))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention and an MLP, normalised before."""

    def __init__(self, width: int = 48, heads: int = 4, inner: int = 96) -> None:
        super().__init__()
        self.size = width // heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores, or the stream behind a block."""
        h = self.before(x)
        batch, length, _ = h.shape
        q, k, v = (
            layer(h).view(batch, length, -1, self.size).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        mixed = (q @ k.transpose(2, 3) / self.size**0.5).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, -1))
        return x + self.down(functional.gelu(self.up(self.between(x))))  # type: ignore[no-any-return]


class Vit(nn.Module):
    """Sixteen patches of 7 x 7, three blocks."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.embed, self.place = nn.Linear(49, width), nn.Parameter(torch.randn(16, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores, or the stream behind a block."""
        x = x.reshape(-1, 4, 7, 4, 7).permute(0, 1, 3, 2, 4).reshape(x.shape[0], 16, 49)
        x = self.embed(x) + self.place
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))  # type: ignore[no-any-return]


def mlp() -> nn.Module:
    """64-150-75-10."""
    return nn.Sequential(nn.Linear(64, 150), nn.ReLU(), nn.Linear(150, 75), nn.ReLU(), nn.Linear(75, 10))


Split = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def digits(seed: int) -> Split:
    """Training and test data of scikit-learn's digits."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(x))
    x, y = torch.tensor(x[order] / 16, dtype=torch.float32), torch.tensor(y[order])
    return x[:1078], y[:1078], x[1078:], y[1078:]


def mnist(folder: Path, train: int, test: int) -> Split:
    """Some of MNIST's images, from its idx files."""

    def images(name: str) -> torch.Tensor:
        raw = np.frombuffer((folder / name).read_bytes(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
        return torch.tensor(raw.astype(np.float32) / 255)

    def labels(name: str) -> torch.Tensor:
        return torch.tensor(np.frombuffer((folder / name).read_bytes(), np.uint8, offset=8).astype(np.int64))

    return (
        images("train-images-idx3-ubyte")[:train], labels("train-labels-idx1-ubyte")[:train],
        images("t10k-images-idx3-ubyte")[:test], labels("t10k-labels-idx1-ubyte")[:test],
    )  # fmt: skip


def fit(module: nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int, rate: float, seed: int = 0) -> nn.Module:
    """AdamW with one cycle of its rate."""
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(module.parameters(), lr=rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=-(-len(x) // 64) * epochs)
    module.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=generator).split(64):  # type: ignore[no-untyped-call]
            optimiser.zero_grad()
            functional.cross_entropy(module(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    return module.eval()


@torch.no_grad()
def accuracy(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """In percent."""
    module.eval()
    right = torch.cat([module(x[at : at + 500]).argmax(1) for at in range(0, len(x), 500)]) == y
    return 100 * float(right.double().mean())


def macs(module: nn.Module, x: torch.Tensor) -> int:
    """Multiplications for one sample."""
    return count_macs(ModuleSubject.of(module).read(tuple(x.shape[1:]), 2)) // 2


def ours(criterion: Criterion, mend: bool, blocks: bool = False) -> Callable[..., nn.Module]:
    """This library's job."""

    def run(module: nn.Module, x: torch.Tensor, y: torch.Tensor, share: float) -> nn.Module:
        samples = JobSamples(x[:2048].double().numpy(), y[:2048].numpy())
        found = prune_to_target(
            ModuleSubject.of(module), samples, Target("flops", share),
            criterion=criterion, mend=mend, blocks=blocks, timed=False,
        )  # fmt: skip
        assert found.module is not None
        return found.module

    return run


def torch_pruning(importance: str) -> Callable[..., nn.Module]:
    """Torch-Pruning at the ratio that meets the share, found by bisection; heads stay (its way needs to know them)."""

    def run(module: nn.Module, x: torch.Tensor, y: torch.Tensor, share: float) -> nn.Module:
        tp: Any = importlib.import_module("torch_pruning")

        whole, low, high, best = macs(module, x), 0.0, 0.98, None
        for _ in range(7):
            ratio = (low + high) / 2
            small = copy.deepcopy(module).train()
            score: Any = tp.importance.GroupMagnitudeImportance(p=2)
            if importance == "taylor":
                score = tp.importance.GroupTaylorImportance()
            last = [part for part in small.modules() if isinstance(part, nn.Linear)][-1]
            stay = [last, *(part for name, part in small.named_modules() if name == "embed")]
            stay += [layer for part in small.modules() if isinstance(part, Block)
                     for layer in (part.query, part.key, part.value, part.out, part.down)]  # fmt: skip
            pruner = tp.pruner.BasePruner(
                small, x[:1], importance=score, pruning_ratio=ratio, ignored_layers=stay,
                global_pruning=importance == "taylor",
            )  # fmt: skip
            functional.cross_entropy(small(x[:512]), y[:512]).backward()  # type: ignore[no-untyped-call]
            pruner.step()
            small.zero_grad()
            if macs(small.eval(), x) <= share * whole:
                best, high = small, ratio
            else:
                low = ratio
        if best is None:
            raise LawfulError("the share is out of reach")
        return best

    return run


METHODS: dict[str, Callable[..., nn.Module]] = {
    "replaced + repair (default)": ours("replaced", True, blocks=True),
    "the same, blocks kept": ours("replaced", True),
    "taylor + repair": ours("taylor", True),
    "magnitude + repair": ours("magnitude", True),
    "magnitude": ours("magnitude", False),
    "Torch-Pruning, magnitude": torch_pruning("magnitude"),
    "Torch-Pruning, Taylor": torch_pruning("taylor"),
}


def silenced(module: nn.Module, x: torch.Tensor) -> nn.Module:
    """All weights of half of each layer's units are 0, incoming and outgoing: what a regulariser leaves behind."""
    subject = ModuleSubject.of(module)
    case = read_case(subject, JobSamples(x[:64].double().numpy()), mend=False)
    gone = [unit for site in case.sites.sites for unit in site.units[: len(site.units) // 2]]
    small = subject.with_numbers(case.new_weights(gone))
    cells = {cell for unit in gone for cell in case.sites.units[unit].cells}
    tensors = {**dict(small.named_parameters()), **dict(small.named_buffers())}
    with torch.no_grad():
        for operation in case.reading.program.operations:
            rows = [int(cell) in cells for cell in case.reading.program.activations[operation.name]]
            for role in ("weight", "bias") if operation.kind in ("layer", "norm") else ():
                if (name := operation.tensors.get(role)) is not None:
                    tensors[name][torch.tensor(rows)] = 0.0
    return small


def exact(module: nn.Module, x: torch.Tensor) -> tuple[int, Callable[[torch.Tensor], torch.Tensor]]:
    """This library without any option."""
    small = prune_channels(module, [tuple(x[:2].shape)]).module
    return sum(tensor.numel() for tensor in small.parameters()), small


def torch_simplify(module: nn.Module, x: torch.Tensor) -> tuple[int, Callable[[torch.Tensor], torch.Tensor]]:
    """torch-simplify, which folds normalisations too."""
    simplify: Any = importlib.import_module("simplify")
    small = simplify.simplify(copy.deepcopy(module).eval(), x[:1], fuse_bn=True)
    return sum(tensor.numel() for tensor in small.parameters()), small


def onnxsim(module: nn.Module, x: torch.Tensor) -> tuple[int, Callable[[torch.Tensor], torch.Tensor]]:
    """onnxsim on the exported file, in ONNX Runtime."""
    import onnx
    import onnxruntime  # type: ignore[import-untyped]

    tool: Any = importlib.import_module("onnxsim")
    model, _ = tool.simplify(onnx.load_from_string(graph_bytes(module, [x[:100]], ".onnx")))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    count = sum(int(np.prod(each.dims)) for each in model.graph.initializer if each.data_type == onnx.TensorProto.FLOAT)
    return count, lambda given: torch.as_tensor(session.run(None, {name: given.numpy()})[0])


def lossless(name: str, module: nn.Module, x: torch.Tensor) -> None:
    """Print what each tool that changes nothing leaves, and how far its outputs are off."""
    module = silenced(module, x)
    wanted = module(x[:100]).detach()
    before = sum(tensor.numel() for tensor in module.parameters())
    for tool in (exact, torch_simplify, onnxsim):
        started = time.process_time()
        try:
            count, small = tool(module, x)
            gap = float((small(x[:100]).detach() - wanted).abs().max() / wanted.abs().max())
            said = f"{count:,} | {gap:.0e} | {time.process_time() - started:.1f}"
        except Exception as error:  # whatever a tool raises
            said = (
                f"fails: {str(error).strip().splitlines()[0][:60] if str(error).strip() else type(error).__name__} | |"
            )
        print(f"| {name}, {before:,} | {tool.__name__} | {said} |", flush=True)


def cases(folder: Path, seed: int) -> Iterator[tuple[str, nn.Module, Split, tuple[float, ...], tuple[int, float]]]:
    """Name, trained network, data, shares, and the training afterwards."""
    torch.manual_seed(seed)
    data = digits(seed)
    yield "MLP, digits", fit(mlp(), *data[:2], 60, 3e-3, seed), data, (0.2, 0.1, 0.05), (5, 1e-3)
    data = mnist(folder, 8_000, 5_000)
    torch.manual_seed(seed)
    yield "CNN, MNIST", fit(Cnn(), *data[:2], 3, 5e-3, seed), data, (0.4, 0.2), (1, 1e-3)
    torch.manual_seed(seed)
    yield "ViT, MNIST", fit(Vit(), *data[:2], 6, 3e-3, seed), data, (0.7, 0.5), (1, 1e-3)


def main(folder: Path, seeds: tuple[int, ...] = SEEDS) -> None:
    """Print a table: points of accuracy lost, without and with training afterwards, a number for each seed."""
    lost: dict[tuple[str, float, str], list[tuple[float, float, float]]] = {}
    for seed in seeds:
        for name, module, (x, y, test, truth), shares, tuning in cases(folder, seed):
            before = accuracy(module, test, truth)
            print(f"{name}, seed {seed}: {before:.2f}%", flush=True)
            if seed == seeds[0]:
                lossless(name, module, x)
            for share in shares:
                for method, run in METHODS.items():
                    started = time.process_time()
                    try:
                        small = run(module, x, y, share)
                    except (LawfulError, ImportError) as error:
                        print(f"  {share:.0%} {method}: {error}", flush=True)
                        continue
                    seconds = time.process_time() - started
                    after = accuracy(small, test, truth)
                    part = min(len(x), 6_000)
                    tuned = accuracy(fit(copy.deepcopy(small), x[:part], y[:part], *tuning), test, truth)
                    lost.setdefault((name, share, method), []).append((before - after, before - tuned, seconds))
                    print(
                        f"  {share:.0%} {method}: {before - after:.2f}, tuned {before - tuned:.2f} ({seconds:.1f} s)",
                        flush=True,
                    )
    print("\n| network | multiplications left | method | points lost | after short training | seconds |")
    print("|---|---|---|---|---|---|")
    for (name, share, method), runs in lost.items():
        columns = [" ".join(f"{each[k]:.1f}" for each in runs) for k in (0, 1)]
        seconds = float(np.mean([each[2] for each in runs]))
        print(f"| {name} | {share:.0%} | {method} | {columns[0]} | {columns[1]} | {seconds:.1f} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]), tuple(map(int, sys.argv[2:])) or SEEDS)
