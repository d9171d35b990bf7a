"""What training conserves: the laws of a network, and the symmetries that many of them come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from lawful.api.inputs import LOSS_HELP, DrawOptions, Help, asks_for_ids, input_shape, open_options, takes
from lawful.errors import LawfulError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from lawful.conservation.fields.flows import Flow
    from lawful.conservation.law_count import LawCount
    from lawful.sources.opening import Source
    from lawful.symmetry import Symmetries
    from lawful.symmetry.result import Mode


@takes(DrawOptions)
def laws(
    network: Source,
    *,
    level: str = "phi",
    data: ArrayLike | None = None,
    loss: Annotated[str, Help(LOSS_HELP)] = "full",
    flow: Flow | None = None,
    mode: Annotated[
        str | None, Help("A module in train mode (batch statistics, dropout draws its masks; assumed) or in eval mode.")
    ] = None,
    classes_axis: Annotated[
        int | None, Help("The axis of a module's output that has the classes of --loss ce (1; the last for token ids).")
    ] = None,
    seconds: Annotated[float, Help("Processor seconds that the proof of a module's count may take.", least=0)] = 120.0,
    progress: Callable[[str, int, int], None] | None = None,
    **reading: Unpack[DrawOptions],
) -> LawCount:
    """Count, find and prove the conservation laws of training (P1 Corollary 3.5).

    Levels: "phi" (any weights, any data), "near" (near the given weights, any data), "data" (near the given weights,
    for these inputs). The flow is `GradientFlow(decay)`, `HeavyBall(friction)` or a `Metric`, of
    `lawful.network.dynamics`. `lawful.conservation.count_laws` says more of each.

    >>> laws("6-5-6-4-3-6 linear").laws
    52
    """
    from lawful.conservation.count import count_laws
    from lawful.sources.checkpoints.load import is_factory, make_module
    from lawful.sources.opening import open

    seed = reading.pop("seed", 0)
    input = reading.get("input")
    shape = input_shape(input)
    if shape is not None and isinstance(shape[0], tuple):
        sizes: Any = input.split(";") if isinstance(input, str) else input
        if any(map(asks_for_ids, sizes)):
            raise LawfulError(f"laws of several inputs take sizes of numbers like '3;2,4', not {str(input)[:40]!r}")
        if isinstance(network, str) and is_factory(network):  # no example of one input would do for the module
            network = make_module(network)
    elif any(value is not None for option, value in reading.items() if option != "input"):
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
        progress=progress,
        ids=asks_for_ids(input),
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
    from lawful.sources.opening import open_module
    from lawful.sources.provenance import with_provenance
    from lawful.symmetry import symmetries as read

    opened = open_module(network, model=model, activation=activation, order=order, seed=seed)
    size = opened.input_shape if input is None else input
    answer = read(opened.module, size, keywords=keywords, mode=mode, check=check, seed=seed)
    return with_provenance(answer, opened, trained=mode)
