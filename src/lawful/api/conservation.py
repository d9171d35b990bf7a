"""What training conserves: the laws of a network, and the symmetries that many of them come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from numpy.typing import ArrayLike

from lawful.api.inputs import ReadOptions, asks_for_ids, input_shape, open_options, takes
from lawful.conservation.count import PROOF_SECONDS, count_laws
from lawful.conservation.fields.flows import Flow
from lawful.conservation.law_count import LawCount
from lawful.sources.opening import Source, open, open_module
from lawful.sources.provenance import with_provenance

if TYPE_CHECKING:
    from lawful.symmetry import Symmetries
    from lawful.symmetry.result import Mode


@takes(ReadOptions)
def laws(
    network: Source,
    *,
    level: str = "phi",
    data: ArrayLike | None = None,
    loss: str = "full",
    flow: Flow | None = None,
    mode: str | None = None,
    classes_axis: int | None = None,
    seconds: float = PROOF_SECONDS,
    seed: int = 0,
    **reading: Unpack[ReadOptions],
) -> LawCount:
    """Count, find and prove the conservation laws of training (P1 Corollary 3.5).

    Levels: "phi" (any weights, any data), "near" (near the given weights, any data), "data" (near the given weights,
    for these inputs). The flow is `GradientFlow(decay)`, `HeavyBall(friction)` or a `Metric`, of
    `lawful.network.dynamics`. `lawful.conservation.count_laws` says more of each.

    >>> laws("6-5-6-4-3-6 linear").laws
    52
    """
    shape = input_shape(reading.get("input"))
    if any(value is not None for option, value in reading.items() if option != "input"):
        network = open(network, **open_options(reading))
    return count_laws(
        network,
        level=level,
        data=data,
        loss=loss,
        flow=flow,
        seed=seed,
        input_shape=shape,
        mode=mode,
        classes_axis=classes_axis,
        seconds=seconds,
        ids=asks_for_ids(reading.get("input")),
    )


def symmetries(
    network: Source,
    input: Any = None,
    *,
    keywords: Mapping[str, Any] | None = None,
    mode: Mode = "train",
    check: bool | None = None,
    model: Any = None,
    activation: str | None = None,
    order: str | None = None,
    seed: int = 0,
) -> Symmetries:
    """The symmetries of a network, read from its graph at any size, and the laws that training therefore conserves.

    `keywords` are inputs by name; `check` holds every generator against derivatives of the module (by default up to
    five million parameters).

    >>> len(symmetries("3-4-2 relu").laws)
    4
    """
    from lawful.symmetry import symmetries as read

    opened = open_module(network, model=model, activation=activation, order=order, seed=seed)
    size = opened.input_shape if input is None else input
    answer = read(opened.module, size, keywords=keywords, mode=mode, check=check, seed=seed)
    return with_provenance(answer, opened, trained=mode)
