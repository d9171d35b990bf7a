"""Questions about every input of a box: how far apart two networks are, and whether a property holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Unpack

from numpy.typing import ArrayLike

from lawful.api.inputs import BOX, BOX_ASSUMED, ReadOptions, open_options, takes
from lawful.api.two_networks import TwoNetworks
from lawful.api.verification.checks import check_growth, need_one_question
from lawful.api.verification.several import check_file
from lawful.bounds.distance import distance as bound_distance
from lawful.bounds.property import PropertyCheck
from lawful.bounds.result import Distance
from lawful.fibers.monotone import MonotoneCheck
from lawful.formats.queries.box import box_of
from lawful.sources.opening import Source, open_graph
from lawful.sources.provenance import read_as, with_provenance


def distance(
    first: Source,
    second: Source,
    box: str | tuple[ArrayLike, ArrayLike] | None = None,
    *,
    within: Fraction | float | None = None,
    norm: float = math.inf,
    output: int | None = None,
    seconds: float = 60.0,
    threads: int | None = None,
    scheduler: str | None = None,
    model: Any = None,
    input: Any = None,
    activation: str | None = None,
    order: str | None = None,
    seed: int = 0,
) -> Distance:
    """Bounds of the largest difference of two networks on a box (every input in [-1, 1] if none is given).

    With `within`, only until it is decided whether the distance is at most that.

    >>> distance("2-3-1 relu", "2-3-1 relu", "-1,1", within=0.1).status
    'proved'
    """
    pair = TwoNetworks(first, second, model, input=input, activation=activation, order=order)
    networks = pair.graphs(seed=seed, drop_useless=True)
    where = BOX if box is None else box
    corners = box_of(where, networks[0]) if isinstance(where, str) else where
    answer = bound_distance(
        *networks,
        corners,
        within=within,
        norm=norm,
        output=output,
        seconds=seconds,
        threads=threads,
        scheduler=scheduler,
        seed=seed,
    )
    return answer if box is not None else read_as(answer, *(each.assuming(BOX_ASSUMED) for each in answer.readings))


@takes(ReadOptions)
def check(
    network: Source,
    specification: str | Path | None = None,
    *,
    monotone: str | None = None,
    box: str | None = None,
    output: int | None = None,
    others: Sequence[Source] = (),
    seconds: float = 60.0,
    threads: int | None = None,
    scheduler: str | None = None,
    seed: int = 0,
    **reading: Unpack[ReadOptions],
) -> PropertyCheck | MonotoneCheck:
    """Check a VNN-LIB specification: no input in its box leads to the outputs that it describes.

    A file that declares several networks is about this one and `others`, in its order. Or that outputs are monotone in
    some inputs on a box:

    >>> from lawful.network import Mlp
    >>> check(Mlp([[[1.0, -1.0]], [[2.0]]]), monotone="+0,-1", box="-1,1").status
    'holds'
    """
    need_one_question(specification, monotone, box, output)
    options = {**open_options(reading), "drop_useless": True}
    graphs = [open_graph(each, **options) for each in (network, *others)]
    if specification is not None:
        answer = check_file(
            Path(specification), [(None, str(at)) for at in range(len(graphs))], lambda at: graphs[int(at)],
            seconds=seconds, threads=threads, scheduler=scheduler, seed=seed,
        )  # fmt: skip
        return with_provenance(answer.found, *graphs, exact=True)
    grown = check_growth(
        graphs[0], str(monotone), BOX if box is None else box,
        output=output, seconds=seconds, scheduler=scheduler, seed=seed,
    )  # fmt: skip
    grown = with_provenance(grown, graphs[0], exact=True)
    return grown if box is not None else read_as(grown, *(each.assuming(BOX_ASSUMED) for each in grown.readings))
