"""The monitor as a callback of the Hugging Face Trainer; transformers itself is optional."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lawful.errors import Unsupported
from lawful.training.monitor.monitor import Monitor


class TrainerHooks:
    """The events that a Hugging Face Trainer calls; they start, feed and end a `Monitor` of the trained model."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options
        self.monitor: Monitor | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
        """Start watching; only the first process of a distributed run does."""
        if getattr(state, "is_world_process_zero", True) and model is not None:
            self.monitor = Monitor(model, **self.options)
            self.monitor.__enter__()
            self.monitor.steps = int(
                getattr(state, "global_step", self.monitor.steps)
            )  # a checkpoint goes back in time

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """One step of the optimiser was made."""
        if self.monitor is not None:
            last = next((entry["loss"] for entry in reversed(state.log_history) if "loss" in entry), None)
            self.monitor.step(last)

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Training ended."""
        if self.monitor is not None:
            self.monitor.__exit__(None, None, None)


def trainer_callback(**options: Any) -> Any:
    """A callback for `Trainer(callbacks=[...])`; options are those of `Monitor`. Records are in `.monitor.records`."""
    try:
        base = import_module("transformers").TrainerCallback
    except ImportError:
        raise Unsupported("transformers is not installed: pip install transformers") from None
    return type("MonitorTrainerCallback", (TrainerHooks, base), {})(**options)
