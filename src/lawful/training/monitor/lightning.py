"""The monitor as a Lightning callback; Lightning itself is optional."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lawful.errors import Unsupported
from lawful.training.monitor.monitor import Monitor


class MonitorHooks:
    """The hooks that a Lightning trainer calls; they start, feed and end a `Monitor` of the trained module."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options
        self.monitor: Monitor | None = None
        self._losses: list[Any] = []  # of the batches since the last step; a device is waited for by records alone

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Start watching; only the first process of a distributed run does."""
        if getattr(trainer, "is_global_zero", True):
            self.monitor = Monitor(pl_module, **self.options)
            self.monitor.__enter__()
            # A checkpoint goes back in time.
            self.monitor.steps = int(getattr(trainer, "global_step", self.monitor.steps))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A batch went through; while gradients are accumulated, no step of the optimiser was made."""
        if self.monitor is not None:
            loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
            self._losses += [] if loss is None else [getattr(loss, "detach", lambda: loss)()]
            steps = int(getattr(trainer, "global_step", self.monitor.steps + 1)) - self.monitor.steps
            if steps > 0:  # Lightning has divided each batch's loss by the number that is accumulated
                self.monitor.step(sum(self._losses) if self._losses else None, steps=steps)
                self._losses.clear()

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Training ended."""
        self._close()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Training was interrupted."""
        self._close()

    def _close(self) -> None:
        if self.monitor is not None:
            self.monitor.__exit__(None, None, None)


def lightning_callback(**options: Any) -> Any:
    """A callback for `Trainer(callbacks=[...])`; options are those of `Monitor`. Records are in `.monitor.records`."""
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            base = import_module(name).Callback
        except ImportError:
            continue
        return type("MonitorCallback", (MonitorHooks, base), {})(**options)
    raise Unsupported("Lightning is not installed: pip install 'lawful[lightning]'")
