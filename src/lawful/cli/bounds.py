"""`lawful distance`, `check` and `vnncomp`: what holds for every input of a box."""

from __future__ import annotations

import math
import multiprocessing
import os
import time as clock
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lawful.cli.evidence import save_evidence
from lawful.cli.output import bar, say, show, will_write, write_certificate
from lawful.cli.subcommand import ApiCall, CertificateOption, JsonOption, Named, subcommand
from lawful.errors import CertificateError, LawfulError

if TYPE_CHECKING:
    from lawful.api.vnncomp import CompetitionInstance, InstanceResult
    from lawful.network import Dag, Mlp


@subcommand()
def distance(
    call: ApiCall,
    first: Annotated[str, typer.Argument(metavar="A", help="File, module:factory, or architecture.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The network to compare it with.")],
    certificate: CertificateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bound the largest difference of two networks on a box. Exit 0 proved, 1 violated, 3 neither."""
    from lawful.formats.queries.joint_specification import equivalence

    will_write(certificate)
    question, understood, seconds = call.options["within"], None, call.options["seconds"]
    box = call.options["box"] or ""
    if question is None and box.lower().endswith(".vnnlib") and (asked := equivalence(Path(box))) is not None:
        question = asked.within
        understood = (
            f"understood: is every output's |g - f| at most {float(asked.within):g}? Literally the file describes "
            f"{asked.literally}"
        )
    started = clock.monotonic()
    with bar("distance") as tell:
        answer = call(
            first,
            second,
            within=question,
            tick=lambda low, high: tell(
                f"{low:.4g} to {high:.4g}", min(1, (clock.monotonic() - started) / max(seconds, 1))
            ),
        )
    if certificate is not None:
        write_certificate(certificate, answer.certificate())
    if understood is not None and not as_json:
        typer.echo(understood)
    show(answer, as_json, {"understood": understood})
    decided = {"proved": 0, "violated": 1, "undecided": 3}.get(answer.status, 0 if answer.upper < math.inf else 3)
    raise typer.Exit(130 if answer.interrupted else decided)


@subcommand()
def check(
    call: ApiCall,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NETWORK]... [FILE.vnnlib]",
            help="Inputs and outputs that must not occur; before it the other networks that it declares.",
        ),
    ] = None,
    certificate: CertificateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a VNN-LIB specification of networks, or that one is monotone on a box. Exit 0, 1 (violated) or 3."""
    result = call.options["result"]
    will_write(certificate, result)
    others, specification = (files[:-1], files[-1]) if files else ([], None)
    answer = call(specification=specification, others=others)
    if certificate is not None and answer.status == "undecided":
        typer.echo("nothing was decided: no certificate was written", err=True)
    else:
        save_evidence(certificate, answer.certificate)
    show(answer, as_json)
    raise typer.Exit(130 if answer.interrupted else {"holds": 0, "violated": 1, "undecided": 3}[answer.status])


def vnncomp(
    file: Annotated[Path, typer.Argument(metavar="INSTANCES.csv", help="Lines of network, specification, seconds.")],
    out: Annotated[Path | None, typer.Option(help="Keep results in this CSV file; the same command goes on.")] = None,
    time: Annotated[float | None, typer.Option("--seconds", help="At most so many seconds for each instance.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Instances at a time; default: one per core.")] = None,
    certificates: Annotated[Path | None, typer.Option(help="Keep the certificates in this folder.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a VNN-COMP instances file: sat, unsat or timeout for each, every answer re-checked. Exit 0, or 3 if open."""
    from lawful.api.vnncomp import read_instances, read_results, results_text, summary
    from lawful.formats.io.writing import make_folder, write_text
    from lawful.report.structure.distance import vnncomp_json, vnncomp_text

    if time is not None and not 0 < time < 1e7:
        raise LawfulError(f"--seconds takes a positive number of seconds, not {time:g}")
    will_write(out)
    instances = read_instances(file)
    if certificates is not None:
        make_folder(certificates)
    results = read_results(out) if out is not None else []
    done = {each.key for each in results}
    waiting = [each for each in instances if (each.network, each.specification) not in done]
    interrupted = False
    with bar("vnncomp") as tell:
        try:
            for found in _run(waiting, time, threads or len(os.sched_getaffinity(0)), certificates):
                results.append(found)
                if out is not None:
                    write_text(out, results_text(results))
                tell(f"{len(results)} of {len(instances)}", len(results) / len(instances))
        except KeyboardInterrupt:
            interrupted = True
            typer.echo("interrupted: with --out the same command goes on with what is open", err=True)
    order = {(each.network, each.specification): at for at, each in enumerate(instances)}
    results = sorted((each for each in results if each.key in order), key=lambda each: order[each.key])
    if out is not None:
        write_text(out, results_text(results))
    total = summary(instances, results)
    say(as_json, vnncomp_json(results, total), vnncomp_text(results, total))
    left = total["open"] or total["timeout"] or total["error"]
    raise typer.Exit(130 if interrupted else 3 if left else 0)


def run_instances(
    file: str | Path,
    *,
    seconds: float | None = None,
    threads: int = 1,
    certificates: str | Path | None = None,
) -> list[InstanceResult]:
    """Decide every instance of a VNN-COMP instances file, and re-check each answer with the verifier.

    `seconds` caps the limit of each line, `threads` is the number of instances at a time, and certificates are kept in
    a folder if one is given. Results come as they finish. Here and not in `lawful.api`, which must not know the
    verifier.
    """
    from lawful.api.vnncomp import read_instances

    folder = None if certificates is None else Path(certificates)
    return list(_run(read_instances(Path(file)), seconds, threads, folder))


def _run(
    instances: list[CompetitionInstance], limit: float | None, processes: int, certificates: Path | None
) -> Iterator[InstanceResult]:
    """Results as they come."""
    if processes == 1 or len(instances) < 2:
        for each in instances:
            yield decide_instance(each, limit, certificates, None)
        return
    # Fresh processes: a fork would copy whatever threads and locks this one holds.
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            futures = [pool.submit(decide_instance, each, limit, certificates, 1) for each in instances]
            for finished in as_completed(futures):
                yield finished.result()
        except BaseException:  # Ctrl-C, or a consumer that has enough: what has not begun never does
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def decide_instance(
    instance: CompetitionInstance, limit: float | None, certificates: Path | None, threads: int | None
) -> InstanceResult:
    """Decide one instance and re-check its certificate; a mistake in its files is a result too."""
    import json

    from lawful.api.binding import need_specification
    from lawful.api.specifications import check_file
    from lawful.api.vnncomp import InstanceResult
    from lawful.formats.io.writing import write_text
    from lawful.network.digest import digest
    from lawful.verify import verify

    name, spec = instance.network, instance.specification
    seconds = instance.seconds if limit is None else min(limit, instance.seconds)
    started = clock.process_time()
    try:
        file = instance.file(spec)
        answer = check_file(
            file, instance.networks, lambda path: _open(instance, path), seconds=seconds, threads=threads
        )
        found, about = answer.found, answer.about
        result = {"holds": "unsat", "violated": "sat", "undecided": "timeout"}[found.status]
        spent, note = clock.process_time() - started, found.why
        if found.status == "undecided" or note.startswith("vacuous"):
            return InstanceResult(name, spec, result, spent, found.boxes, note=note)
        body = json.dumps(answer.certificate())
        before = clock.process_time()
        checked = verify(body)
        if checked.networks != tuple(map(digest, about)):
            raise CertificateError("it is about another network")
        if not need_specification(checked.kind, checked.facts, file):
            raise CertificateError("it does not answer the specification")
        recheck = clock.process_time() - before
    except CertificateError as error:  # the search and the checker disagree: no answer may rest on that
        return InstanceResult(
            name, spec, "error", clock.process_time() - started, 0, note=f"certificate refused: {str(error)[:150]}"
        )
    except (LawfulError, OSError, MemoryError) as error:
        return InstanceResult(name, spec, "error", clock.process_time() - started, 0, note=str(error)[:200])
    if certificates is not None:  # a full disk is no mistake of the instance
        names = "-".join(Path(path).stem for _, path in instance.networks)
        place = f"{names}--{Path(spec).stem}".replace(".onnx", "").replace(".vnnlib", "")
        write_text(certificates / f"{place}.json", body)
    return InstanceResult(name, spec, result, spent, found.boxes, len(body), recheck, note)


def _open(instance: CompetitionInstance, path: str) -> Mlp | Dag:
    return Named(str(instance.file(path)), drop_useless=True).network()
