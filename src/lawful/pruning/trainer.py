"""Train towards singular networks: an ordinary PyTorch loop, one object, three lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lawful.errors import LawfulError
from lawful.invariant_set.singular.regulariser import NuclearPenalty, loose_entries
from lawful.invariant_set.singular.spectrum import NULL, Singularity, singularity
from lawful.pruning.neurons.prune import Pruning, prune
from lawful.sources.modules.convert import from_module

Loss = Callable[[Any, Any], Tensor]
PROXIMAL_GAP = 1e-5  # of half the square of all weights: a step of training is far coarser


class SingularTrainer:
    """Adds the nuclear norm to each step of any optimiser, and turns what disconnects into a smaller network.

    By default the loss stays as it is and every `every` steps a proximal step follows, which lands exactly on zero.
    With momentum or Adam, whose steps do not shrink with the gradient, that takes a larger strength. With
    `proximal=False` the norm's majoriser joins the loss, refreshed every `every` steps: cheaper, and weights get small
    instead of zero, so that `cut` has to follow.

    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)).double()
    >>> inputs = torch.randn(64, 2, dtype=torch.float64)
    >>> optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> trainer = SingularTrainer(model, optimiser, nn.MSELoss(), strength=0.05, every=5)
    >>> losses = trainer.fit([(inputs, inputs[:, :1].relu())], epochs=300)
    >>> trainer.pruned().neurons_after < 4
    True
    """

    def __init__(
        self,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        loss: Loss,
        *,
        strength: float,
        every: int = 10,
        proximal: bool = True,
        input_shape: tuple[int, ...] | None = None,
    ) -> None:
        if not strength >= 0:
            raise LawfulError(f"a penalty has a strength of at least 0, not {strength}")
        self.model, self.optimiser, self.loss = model, optimiser, loss
        self.strength, self.every, self.proximal, self.input_shape = strength, every, proximal, input_shape
        self.penalty = NuclearPenalty(model, every=every, input_shape=input_shape)
        self.steps = 0

    def step(self, inputs: Any, targets: Any) -> float:
        """One optimiser step on one batch; returns the loss without the penalty."""
        self.optimiser.zero_grad()
        loss = self.loss(self.model(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        if not self.proximal:
            self.penalty.add_gradient(self.strength)
        self.optimiser.step()
        self.steps += 1
        if self.proximal and self.steps % self.every == 0:
            size = float(self.optimiser.param_groups[0]["lr"])
            self.penalty.proximal_step(size * self.strength * self.every, tolerance=PROXIMAL_GAP)
        return float(loss.detach())

    def fit(self, batches: Sequence[tuple[Any, Any]] | Any, epochs: int) -> list[float]:
        """Go through all batches `epochs` times; the mean loss of each epoch. Shows progress on a terminal."""
        from rich.progress import Progress

        losses = []
        bar = Progress(transient=True) if sys.stderr.isatty() else nullcontext()
        with bar as shown:
            task = shown.add_task("training", total=epochs) if shown is not None else None
            for _ in range(epochs):
                losses.append(float(np.mean([self.step(inputs, targets) for inputs, targets in batches])))
                if shown is not None and task is not None:
                    shown.update(task, advance=1, description=f"loss {losses[-1]:.4g}")
        return losses

    @torch.no_grad()
    def cut(self, tolerance: float = NULL) -> Singularity:
        """Set to zero the small weights that hold cut-off neurons (those up to `tolerance`); says which they were."""
        edges = self.penalty.edges
        dag = edges.to_dag()
        before = singularity(dag, tolerance)
        gone = np.zeros(len(dag.names), dtype=bool)
        gone[[dag.index[name] for name in before.cut_off]] = True
        zero = loose_entries(dag, edges.source, gone, tolerance, sum(p.numel() for p in edges.parameters))
        at = 0
        for parameter in edges.parameters:
            mask = torch.as_tensor(zero[at : at + parameter.numel()]).reshape(parameter.shape)
            parameter[mask.to(parameter.device)] = 0.0
            at += parameter.numel()
        return before

    def pruned(self, **options: Any) -> Pruning:
        """The smaller network, by `prune` with its options (`tolerance`, `box`); `to_module` makes a module of it."""
        return prune(from_module(self.model, self.input_shape, drop_useless=True), **options)
