"""Where a monitor's records can go besides memory and its file: TensorBoard, Weights & Biases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

Sink = Callable[[Mapping[str, Any]], None]


def numbers(record: Mapping[str, Any], prefix: str = "lawful") -> Iterator[tuple[str, float]]:
    """The plain numbers of a record, named by their path; lists are left out.

    >>> list(numbers({"step": 3, "drift": 0.5, "laws": {"drift": 0.1, "by_group": {"scales": 0.1}}, "kind": "record"}))
    [('lawful/drift', 0.5), ('lawful/laws/drift', 0.1), ('lawful/laws/by_group/scales', 0.1)]
    """
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from numbers(value, f"{prefix}/{name}")
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and name != "step":
            yield f"{prefix}/{name}", float(value)


def to_tensorboard(writer: Any) -> Sink:
    """Records as scalars of a `SummaryWriter`."""

    def sink(record: Mapping[str, Any]) -> None:
        for name, value in numbers(record):
            writer.add_scalar(name, value, record["step"])

    return sink


def to_wandb(run: Any) -> Sink:
    """Records as the history of a W&B run."""
    return lambda record: run.log(dict(numbers(record)), step=record["step"])
