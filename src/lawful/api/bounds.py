"""Questions about every input of a box: how far apart two networks are, and whether a property holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from lawful.api.inputs import (
    BOX,
    BOX_ASSUMED,
    BOX_HELP,
    Box,
    Help,
    ModuleOptions,
    ReadOptions,
    Scheduler,
    Seconds,
    Seed,
    open_options,
    takes,
)
from lawful.errors import LawfulError
from lawful.result import with_evidence

if TYPE_CHECKING:
    from lawful.bounds.property import PropertyCheck
    from lawful.bounds.result import Distance
    from lawful.fibers.monotone import MonotoneCheck
    from lawful.sources.opening import Source

NORMS = {"inf": math.inf, "1": 1.0, "2": 2.0}


@takes(ModuleOptions)
def distance(
    first: Source,
    second: Source,
    box: Annotated[Box | None, Help(f"Where: {BOX_HELP} [default: -1,1]")] = None,
    *,
    within: Annotated[str | Fraction | float | None, Help("Ask only whether the distance is at most this.")] = None,
    norm: Annotated[str | float, Help("Of the outputs' differences: inf, 1 or 2.")] = "inf",
    output: Annotated[int | None, Help("Look at this output only, counted from 0.")] = None,
    seconds: Seconds = 60.0,
    threads: int | None = None,
    scheduler: Scheduler = None,
    seed: Seed = 0,
    tick: Callable[[float, float], None] = lambda low, high: None,
    **reading: Unpack[ModuleOptions],
) -> Distance:
    """Bounds of the largest difference of two networks on a box (every input in [-1, 1] if none is given).

    With `within`, only until it is decided whether the distance is at most that.

    >>> distance("2-3-1 relu", "2-3-1 relu", "-1,1", within=0.1).status
    'proved'
    """
    from lawful.api.two_networks import TwoNetworks
    from lawful.bounds.distance import distance as bound_distance
    from lawful.bounds.result import certificate
    from lawful.formats.queries.box import box_of
    from lawful.sources.provenance import read_as

    if isinstance(norm, str) and norm not in NORMS:
        raise LawfulError(f"--norm is inf, 1 or 2, not {norm[:20]!r}")
    most = _fraction(within) if isinstance(within, str) else within
    networks = TwoNetworks(first, second, **reading).graphs(seed=seed, drop_useless=True)
    where = BOX if box is None else box
    answer = bound_distance(
        *networks,
        box_of(where, networks[0]) if isinstance(where, str) else where,
        within=most,
        norm=NORMS[norm] if isinstance(norm, str) else norm,
        output=output,
        seconds=seconds,
        threads=threads,
        scheduler=scheduler,
        seed=seed,
        tick=tick,
    )
    if box is None:
        read_as(answer, *(reading.assuming(BOX_ASSUMED) for reading in answer.readings))
    return with_evidence(answer, lambda: certificate(answer, *networks))


def _fraction(text: str) -> Fraction:
    try:
        number = Fraction(text)
        float(number)  # which doubles can hold
        return number
    except (ValueError, ZeroDivisionError, OverflowError):
        raise LawfulError(f"--within takes a number such as 0.05 or 1/20, not {text[:40]!r}") from None


@takes(ReadOptions)
def check(
    network: Source,
    specification: str | Path | None = None,
    *,
    monotone: Annotated[
        str | None, Help("Inputs such as +0,-2: no output falls as 0 grows, or rises as 2 grows.")
    ] = None,
    box: Annotated[str | None, Help("Where it must be monotone, as for `distance`.")] = None,
    output: Annotated[int | None, Help("With --monotone: this output only, counted from 0.")] = None,
    others: Sequence[Source] = (),
    seconds: Seconds = 60.0,
    threads: Annotated[int | None, Help("Cores to use; all of them if not given.")] = None,
    scheduler: Scheduler = None,
    seed: Seed = 0,
    result: Annotated[
        str | Path | None, Help("Write sat with the input, unsat or timeout, as VNN-COMP wants it.")
    ] = None,
    **reading: Unpack[ReadOptions],
) -> PropertyCheck | MonotoneCheck:
    """Check a VNN-LIB specification: no input in its box leads to the outputs that it describes.

    A file that declares several networks is about this one and `others`, in its order, or by name as `"f=a.onnx"`. Or
    that outputs are monotone in some inputs on a box:

    >>> from lawful.network import Mlp
    >>> check(Mlp([[[1.0, -1.0]], [[2.0]]]), monotone="+0,-1", box="-1,1").status
    'holds'
    """
    from lawful.api.specifications import certificate_of_check, check_file, check_growth, need_one_question, split_name
    from lawful.sources.opening import open_graph
    from lawful.sources.provenance import read_as, with_provenance

    if not 0 < seconds < math.inf:
        raise LawfulError(f"--seconds takes a positive number of seconds, not {seconds:g}")
    if threads is not None and threads < 1:
        raise LawfulError(f"--threads takes a number of at least 1, not {threads}")
    need_one_question(specification, monotone, box, output)
    options = {**open_options(reading), "drop_useless": True, "seed": seed}
    search: dict[str, Any] = {"seconds": seconds, "scheduler": scheduler, "seed": seed}
    if specification is None:
        if result is not None:
            raise LawfulError("--result is the competition's format for a specification, not for --monotone")
        graph = open_graph(network, **options)
        growth = check_growth(graph, str(monotone), BOX if box is None else box, output=output, **search)
        with_provenance(growth, graph, exact=True)
        if box is None:
            read_as(growth, *(reading.assuming(BOX_ASSUMED) for reading in growth.readings))
        return with_evidence(growth, lambda: certificate_of_check(growth, graph))
    named = [split_name(source) if isinstance(source, str) else (None, source) for source in (network, *others)]
    graphs = [open_graph(source, **options) for _, source in named]
    places = [(name, str(place)) for place, (name, _) in enumerate(named)]
    answer = check_file(Path(specification), places, lambda place: graphs[int(place)], threads=threads, **search)
    if result is not None:
        from lawful.api.vnncomp import competition_text
        from lawful.formats.io.writing import write_text

        write_text(Path(result), competition_text(answer.found, answer.question))
    with_provenance(answer.found, *graphs, exact=True)
    return with_evidence(answer.found, answer.certificate)
