"""What each kind of result looks like: its JSON, its text, its rows and its figure. One line per kind, by class name.

A result without a line here is shown by its fields. Class names are unique in this project; a test keeps them so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from lawful.api.explore import Exploration
from lawful.errors import Unsupported
from lawful.extras import needed
from lawful.figure import Figure
from lawful.network.reading import Reading
from lawful.papers.truncation.flow.motion import TruncationRun
from lawful.papers.truncation.flow.predictions import predictions
from lawful.report.audit import audit
from lawful.report.checkpoints import diff, relatives
from lawful.report.page import charts, explorer, notebook
from lawful.report.plain import plain, readings_json, tidy
from lawful.report.structure import (
    components,
    distance,
    fibers,
    laws,
    network,
    pruning,
    symmetries,
)
from lawful.report.training import flow, leaky, truncation


@dataclass(frozen=True)
class View:
    """How to turn a result into a JSON object, into text, and into a figure; `rows` names the key that has rows."""

    json: Callable[[Any], Mapping[str, Any]]
    text: Callable[[Any], str] | None = None
    rows: str = ""
    figure: Callable[[Any], Figure] | None = None


def _fields(result: Any) -> dict[str, Any]:
    return {
        field.name: _field(getattr(result, field.name)) for field in fields(result) if not field.name.startswith("_")
    }


def _field(value: Any) -> Any:
    simple = plain(value)
    if isinstance(simple, (str, int, float, list, dict)) or simple is None:
        return simple
    return str(value)


def _from_json(
    json: Callable[[Any], dict[str, Any]], words: Callable[[Any], str], rows: str = "",
    figure: Callable[[Any], Figure] | None = None,
) -> View:  # fmt: skip
    """A kind whose text is made from its JSON."""
    return View(json, lambda found: words(json(found)), rows, figure)


def _motion_json(run: TruncationRun) -> dict[str, Any]:
    return truncation.run_json(run, predictions(run))


def _of_claims(name: str) -> Callable[[Any], Any]:
    """Claims are outside the package: whoever has run one has them."""

    def shown(result: Any) -> Any:
        from reproduction import report

        return getattr(report, name)(result)

    return shown


def _of_checkpoints(kind: str, rows: str = "") -> View:
    """Answers about modules: whoever has one has PyTorch, which other answers do without."""

    def shown(found: Any, form: str) -> Any:
        from lawful.report.checkpoints import checkpoints, kinship

        name = f"{kind}_{form}"
        return getattr(kinship if hasattr(kinship, name) else checkpoints, name)(found)

    return View(lambda found: shown(found, "json"), lambda found: str(shown(found, "text")), rows)


VIEWS: Mapping[str, View] = {
    "Aligned": _of_checkpoints("aligned", "tensors"),
    "Apart": View(components.path_json, components.path_text),
    "ApartVerdict": _of_checkpoints("apart"),
    "CheckpointVerdict": _of_checkpoints("verdict", "tensors"),
    "Correspondence": _of_checkpoints("correspondence", "tensors"),
    "Kinship": _of_checkpoints("kinship", "changes"),
    "Audit": View(audit.to_json, audit.audit_text, "recommendations", charts.audit),
    "BlockReadings": View(leaky.blocks_json, leaky.blocks_text, "blocks", charts.blocks),
    "Canonical": _from_json(fibers.canonical_json, fibers.canonical_text),
    "Census": _from_json(truncation.census_json, truncation.census_text, "layers"),
    "ChannelPruning": View(
        lambda found: pruning.channels_json(found, None), lambda found: pruning.channels_text(found, None)
    ),
    "BoundedPruning": View(pruning.bounded_json, pruning.bounded_text, "sizes"),
    "PruningJob": View(pruning.job_json, pruning.job_text, "sizes"),
    "OnnxPruning": View(
        lambda found: pruning.channels_json(found, None), lambda found: pruning.channels_text(found, None)
    ),
    "Exploration": View(explorer.facts, explorer.facts_text),
    "LeakyRuns": View(leaky.runs_json, leaky.runs_text, "networks"),
    "Reproduction": View(_of_claims("reproduction_json"), _of_claims("reproduction_text"), "claims"),
    "ClaimRun": View(_of_claims("run_json"), _of_claims("run_text"), figure=_of_claims("run_figure")),
    "Comparison": View(flow.compare_json, flow.compare_text, "optimizers", flow.compare_figure),
    "Components": View(components.found_json, components.found_text, "locked", charts.locks),
    "DescribedFiber": _from_json(fibers.described_json, fibers.fiber_text),
    "Diff": View(diff.to_json, diff.diff_text, "dimensions", charts.diff),
    "Different": _from_json(fibers.verdict_json, fibers.verdict_text),
    "Distance": View(distance.distance_json, distance.distance_text, "per_output", charts.distance),
    "Equal": _from_json(fibers.verdict_json, fibers.verdict_text),
    "Relatives": _from_json(relatives.found_json, relatives.found_text, "relatives"),
    "Indexed": _from_json(relatives.indexed_json, relatives.indexed_text),
    "Merged": _from_json(relatives.merged_json, relatives.merged_text),
    "FunctionGroups": _from_json(fibers.fingerprint_json, fibers.fingerprint_text, "files"),
    "Identifiability": _from_json(fibers.identifiable_json, fibers.identifiable_text),
    "LevelSets": View(laws.level_sets_json, laws.level_sets_text, figure=charts.level_sets),
    "LawCount": View(laws.count_json, laws.count_text, figure=charts.laws),
    "MonotoneCheck": View(distance.monotone_json, distance.monotone_text),
    "PropertyCheck": View(distance.property_json, distance.property_text),
    "Pruning": View(pruning.found_json, pruning.found_text, "steps", charts.pruning),
    "Representative": View(relatives.representative_json, relatives.representative_text, "rounding"),
    "Rebalanced": View(components.rebalanced_json, components.rebalanced_text),
    "RegionCount": _from_json(fibers.regions_json, fibers.regions_text, "each"),
    "Run": View(flow.drift_json, flow.drift_text, "drift", flow.drift_figure),
    "Separability": View(truncation.separation_json, truncation.separation_text),
    "SingularityReport": _from_json(components.report_json, components.singular_text, figure=charts.singular),
    "TensorSummary": View(network.tensors_json, network.tensors_text),
    "Summary": View(network.summary_json, network.summary_text, "layers", charts.layers),
    "Symmetries": View(symmetries.symmetries_json, symmetries.symmetries_text, "spaces", charts.symmetries),
    "TruncationRun": _from_json(_motion_json, truncation.run_text, figure=charts.truncation),
    "Undecided": _from_json(fibers.verdict_json, fibers.verdict_text),
    "Unsettled": View(components.path_json, components.path_text),
    "WeightPath": View(components.path_json, components.path_text, figure=charts.path),
}  # fmt: skip
FIELDS = View(_fields)


def view_of(result: Any) -> View:
    """The view of a result's kind."""
    return VIEWS.get(type(result).__name__, FIELDS)


def to_dict(result: Any) -> dict[str, Any]:
    """The result as the command line prints it with `--json`."""
    document: dict[str, Any] = plain(view_of(result).json(result))
    read = getattr(result, "readings", None) or (getattr(result, "reading", None),)
    readings = [reading for reading in read if isinstance(reading, Reading)]
    return document | readings_json(readings) if readings else document


def text(result: Any) -> str:
    """The result as the command line prints it for people."""
    view = view_of(result)
    return tidy(view.text(result)) if view.text is not None else repr(result)


def headline(result: Any) -> str:
    """The first line of the text: the answer."""
    view = view_of(result)
    return " ".join(tidy(view.text(result)).strip().split("\n", 1)[0].split()) if view.text is not None else ""


def rows_of(result: Any) -> list[dict[str, Any]]:
    """The rows of a result, if it has some."""
    rows = to_dict(result).get(view_of(result).rows)
    return list(rows) if isinstance(rows, list) else []


def to_dataframe(result: Any) -> Any:
    """The rows as a data frame."""
    if not view_of(result).rows:
        raise Unsupported(f"a {type(result).__name__} has no rows: use to_dict()")
    pandas = needed("pandas")
    return pandas.DataFrame(rows_of(result))


def plot(result: Any) -> Figure:
    """The result's figure."""
    drawn = view_of(result).figure
    if drawn is None:
        raise Unsupported(f"a {type(result).__name__} has no figure: use to_dict()")
    return drawn(result)


def html(result: Any) -> str:
    """The result for a notebook: its text's first lines, its largest rows, its figure."""
    view = view_of(result)
    if isinstance(result, Exploration):
        return notebook.frame(explorer.explorer_html(result))
    rows = rows_of(result) if view.rows else []
    return notebook.render(type(result).__name__, text(result), rows, view.figure(result) if view.figure else None)
