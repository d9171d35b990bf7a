"""Sentences about modules against gradients that PyTorch computes, and against the one balance of a single neuron."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cache

import torch
from falsification import Trial
from torch import nn

from lawful.api.audit import Audit
from lawful.api.module_audit import audit_module
from lawful.report.audit.audit import sentences
from lawful.report.structure.symmetries import symmetries_text
from lawful.sentences import symmetries as says


class Attention(nn.Module):
    """One head; the bias of the keys is seen by no loss."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.q(x) @ self.k(x).transpose(-1, -2), -1) @ self.v(x)


class Bent(nn.Module):
    """A bias that a difference takes out again: dead, and no rule says so."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(2, 2), nn.Linear(2, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(torch.special.erfcx(self.inner(x) - self.inner(0 * x)))


MODULES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "ReLU": (nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), (2,)),
    "linear": (nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)), (2,)),
    "tanh": (nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)), (2,)),
    "convolution": (
        nn.Sequential(nn.Conv1d(1, 2, 2), nn.BatchNorm1d(2), nn.ReLU(), nn.Flatten(), nn.Linear(6, 1)),
        (1, 4),
    ),
    "attention": (Attention(), (3, 2)),
    "one layer": (nn.Linear(2, 1), (2,)),
    "a difference": (Bent(), (2,)),
}


@cache
def audited() -> list[tuple[str, nn.Module, tuple[int, ...], Audit, dict[str, str]]]:
    found = []
    for name, (module, size) in MODULES.items():
        torch.manual_seed(len(name))
        for tensor in module.parameters():
            nn.init.normal_(tensor)
        audit = audit_module(module, size)
        found.append((name, module, size, audit, dict(sentences(audit))))
    return found


def slopes(module: nn.Module, size: tuple[int, ...], points: int = 60) -> torch.Tensor:
    """The gradients of random combinations of the outputs of random batches, at the module's weights."""
    twin, generator = module.double().train(), torch.Generator().manual_seed(1)
    rows = []
    for _ in range(points):
        outputs = twin(3 * torch.randn((4, *size), generator=generator, dtype=torch.float64))
        paired = (torch.randn(outputs.shape, generator=generator, dtype=torch.float64) * outputs).sum()
        parts = torch.autograd.grad(paired, list(twin.parameters()), allow_unused=True)
        whole = [torch.zeros_like(w) if g is None else g for w, g in zip(twin.parameters(), parts, strict=True)]
        rows.append(torch.cat([part.ravel() for part in whole]))
    return torch.stack(rows)


def free_directions(module: nn.Module, size: tuple[int, ...]) -> int:
    """No more quantities are conserved, and no larger group acts, than gradients leave directions free."""
    rows = slopes(module, size)
    return rows.shape[1] - int(torch.linalg.matrix_rank(rows, rtol=1e-9))


def conserved() -> Iterator[Trial]:
    for name, module, size, audit, said in audited():
        most, total = free_directions(module, size), audit.symmetries.parameters
        for count in (len(audit.symmetries.laws), most + 1):
            words = says.conserved(count, total, audit.symmetries.mode)
            yield Trial(f"{name}: {count}", said["what training conserves"] == words, count <= most)


def group() -> Iterator[Trial]:
    for name, module, size, audit, said in audited():
        found = audit.symmetries
        stated = "and not the function" in said["the same function"]
        yield Trial(name, stated, found.dimension <= free_directions(module, size))
        yield Trial(f"{name}, as large as the weights", False, free_directions(module, size) == found.parameters)
    for units in range(2, 12):  # a layer of tanh: signs as well, so there are more
        text = says.group(0, math.log10(math.factorial(units))).split("10^")[1].split()[0]
        yield Trial(text, True, 10 ** float(text) <= math.factorial(units) * (1 + 1e-12))


def dead() -> Iterator[Trial]:
    for name, module, size, audit, said in audited():
        still = (slopes(module, size).abs().amax(dim=0) < 1e-12).tolist()
        place, counts = 0, {}
        for parameter, tensor in module.named_parameters():
            counts[parameter] = sum(still[place : place + tensor.numel()])
            place += tensor.numel()
        true = all(part.entries <= counts[part.parameter] for part in audit.symmetries.dead)
        yield Trial(name, "always 0" in said["what is wasted"], true and any(still))
        assert said["what is wasted"] != "No parameter is dead."  # rules that find nothing prove nothing


ONE = [
    (inner, outer) for inner in ([[2.0]], [[1.0]], [[0.0]], [[1.0, 2.0]]) for outer in ([[1.0]], [[-2.0]], [[0.0]])
] + [([[1.0]], [[3.0], [1.0]])]


@cache
def alone() -> list[tuple[str, int, bool, dict[str, str]]]:
    """One neuron: how many weights `|in|² − |out|² = c` locks, and whether rescaling reaches `c = 0`."""
    found = []
    for inner, outer in ONE:
        module = nn.Sequential(nn.Linear(len(inner[0]), 1, bias=False), nn.ReLU(), nn.Linear(1, len(outer), bias=False))
        with torch.no_grad():
            module[0].weight.copy_(torch.tensor(inner))
            module[2].weight.copy_(torch.tensor(outer))
        balance = sum(w * w for w in inner[0]) - sum(w * w for (w,) in outer)
        locks = int(balance > 0 and len(inner[0]) == 1) + int(balance < 0 and len(outer) == 1)
        free = any(inner[0]) and any(w for (w,) in outer)
        found.append((f"{inner} {outer}", locks, free, dict(sentences(audit_module(module, (len(inner[0]),))))))
    return found


def locked() -> Iterator[Trial]:
    for about, locks, _, said in alone():
        for count in (0, 1):
            words = said["where it can go"].startswith(says.locked(1, count))
            yield Trial(f"{count}: {about}", words, locks == count)


def unlocked() -> Iterator[Trial]:
    for about, locks, free, said in alone():
        yield Trial(about, says.unlocked(0) in said["where it can go"], locks == 1 and free)


def advice(audit: Audit, word: str) -> str | None:
    """What following the recommendation with this command brings, if there is one."""
    found = [f"{each.title}; {each.benefit}" for each in audit.recommendations if word in each.command]
    return found[0] if found else None


def advise_dead() -> Iterator[Trial]:
    for name, module, size, audit, _ in audited():
        words = advice(audit, "lawful symmetries")
        still = int((slopes(module, size).abs().amax(dim=0) < 1e-12).sum())
        stated = int(words.split("; ")[1].split()[0].replace(",", "")) if words is not None else 1
        yield Trial(name, words is not None, stated <= still)


@cache
def single_neurons() -> list[tuple[float, float, int, Audit]]:
    """One neuron between one input and one output: both squared norms, the number of locks, and the audit."""
    found = []
    for inner, outer in ONE:
        if len(inner[0]) == len(outer) == 1:
            module = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU(), nn.Linear(1, 1, bias=False))
            with torch.no_grad():
                module[0].weight.copy_(torch.tensor(inner))
                module[2].weight.copy_(torch.tensor(outer))
            a, b = inner[0][0] ** 2, outer[0][0] ** 2
            found.append((a, b, int(a != b), audit_module(module, (1,))))
    return found


def advise_unlocking() -> Iterator[Trial]:
    """The balance `a - b` locks the larger weight, and a rescaling reaches `a = b` where neither is zero."""
    for a, b, locks, audit in single_neurons():
        said = advice(audit, "--balance unlock") is not None
        yield Trial(f"{a} {b}", said, locks == 1 and a * b > 0)


def advise_balancing() -> Iterator[Trial]:
    """`a s² + b / s²` is least where both are `√(ab)`."""
    for a, b, _, audit in single_neurons():
        words = advice(audit, "--balance zero")
        saved = 1 - 2 * math.sqrt(a * b) / (a + b) if a + b else 0.0
        stated = float(words.split("%")[0].split()[-1]) / 100 if words is not None else 1.0
        yield Trial(f"{a} {b}", words is not None, stated <= saved + 1e-12)


def checked() -> Iterator[Trial]:
    for name, _, _, audit, _ in audited():
        check = audit.symmetries.checked
        if check is None:
            continue
        text = symmetries_text(audit.symmetries).split("off by ")[1].split(" at most")[0]
        yield Trial(name, True, Fraction(text) >= Fraction(check.worst))
    yield Trial("rounded to nearest", False, Fraction(f"{1.24e-9:.1e}") >= Fraction(1.24e-9))


FALSIFIERS = {
    "symmetries.advise_balancing": advise_balancing,
    "symmetries.advise_dead": advise_dead,
    "symmetries.advise_unlocking": advise_unlocking,
    "symmetries.checked": checked,
    "symmetries.conserved": conserved,
    "symmetries.dead": dead,
    "symmetries.group": group,
    "symmetries.locked": locked,
    "symmetries.unlocked": unlocked,
}
