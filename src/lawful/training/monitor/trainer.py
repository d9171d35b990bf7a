"""The monitor as a callback of the Hugging Face Trainer; transformers itself is optional."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from lawful.errors import Unsupported
from lawful.training.monitor.monitor import Monitor


class TrainerHooks:
    """The events that a Hugging Face Trainer calls; they start, feed and end a `Monitor` of the trained model."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options
        self.monitor: Monitor | None = None
        self._losses: list[Any] = []  # of the batches since the last step
        self._shares = False  # each is a share of the step's loss, not the mean of its batch
        self._model: Any = None
        self._hook: Any = None

    def __deepcopy__(self, memo: dict[int, Any]) -> TrainerHooks:
        """Itself: the monitor runs copies of the model, which share its hooks."""
        return self

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
        """Start watching; only the first process of a distributed run does."""
        if getattr(state, "is_world_process_zero", True) and model is not None:
            self.monitor = Monitor(model, **self.options)
            self.monitor.__enter__()
            self._model = model
            self._hook = model.register_forward_hook(self._hear_loss, with_kwargs=True)
            # A checkpoint goes back in time.
            self.monitor.steps = int(getattr(state, "global_step", self.monitor.steps))

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """One step of the optimiser was made."""
        if self.monitor is not None:
            total = sum(self._losses) if self._losses else None
            self.monitor.step(total if total is None or self._shares else total / len(self._losses))
            self._losses.clear()

    def _hear_loss(self, model: Any, inputs: Any, keywords: dict[str, Any], output: Any) -> None:
        """The loss that the model returned: what the trainer logs is the mean of earlier steps.

        Where gradients are accumulated, a model that is told `num_items_in_batch` returns each batch's share of it.
        """
        if torch.compiler.is_compiling() or not (model.training and torch.is_grad_enabled()):
            return
        if model is not self._model:
            return
        loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
        if isinstance(loss, torch.Tensor):
            self._shares = keywords.get("num_items_in_batch") is not None
            self._losses.append(loss.detach().mean())

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Training ended."""
        if self.monitor is not None:
            self._hook.remove()
            self.monitor.__exit__(None, None, None)


def trainer_callback(**options: Any) -> Any:
    """A callback for `Trainer(callbacks=[...])`; options are those of `Monitor`. Records are in `.monitor.records`."""
    try:
        base = import_module("transformers").TrainerCallback
    except ImportError:
        raise Unsupported("transformers is not installed: pip install transformers") from None
    return type("MonitorTrainerCallback", (TrainerHooks, base), {})(**options)
