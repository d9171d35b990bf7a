"""Python at home: a function per verb, few names at the top, results that show themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import in_process

import lawful
from lawful.cli import _command
from lawful.errors import LawfulError, Unsupported
from lawful.report.views import VIEWS
from lawful.result import Shown

VERBS = sorted(name.replace("-", "_") for name in _command().commands)


@pytest.mark.parametrize("name", lawful.__all__)
def test_public_name_is_there_and_documented(name: str) -> None:
    assert (getattr(lawful, name).__doc__ or "").strip()
    assert name in dir(lawful)


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = lawful.nonsense


def test_few_names_at_the_top_and_all_have_a_home() -> None:
    assert len(lawful.__all__) <= 30
    assert set(lawful.__all__) <= set(lawful._places())


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_a_function_of_that_name(verb: str) -> None:
    function = getattr(lawful, verb)
    assert callable(function), verb
    assert (function.__doc__ or "").strip()


def test_the_core_answers_without_any_extra() -> None:
    packages = "invariant_set fibers training conservation pruning papers.truncation verify api.audit api.demo"
    names = [*packages.split(), "api.networks", "api.training.flows", "report.views", "cli"]
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import core_only; core_only.hide()\n"
    code += "\n".join(f"import lawful.{name}" for name in names)
    code += (
        "\nlawful.audit('3-4-1 relu bias'); lawful.prune('3-4-1 relu bias'); lawful.same('2-3-1 relu', '2-3-1 relu')"
    )
    code += "\nlawful.components('3-4-1 relu bias')._repr_html_(); lawful.explore('2-3-1 relu')"
    code += "\nlawful.singular('2-3-1 relu')"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr[-1500:]


def test_functions_stay_functions_whatever_is_imported() -> None:
    code = (
        "import lawful, lawful.conservation.count, lawful.invariant_set.paths, lawful.training, lawful.papers.leaky\n"
        "assert lawful.laws('2-3-1 relu').laws == 3\n"
        "assert lawful.components('2-3-1 relu').connected in (True, False)\n"
        "assert lawful.singular('2-3-1 relu').singularity.rank == 3\n"
        "import lawful.verify.core.schema\n"
        "assert callable(lawful.flow) and callable(lawful.leaky) and callable(lawful.verify)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_verbs_know_the_input_of_a_module_by_one_word() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Conv1d(1, 2, 2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4, 1))
    for verb in ("laws", "show", "components", "symmetries", "prune", "identifiable", "canonical", "audit"):
        for size in ((1, 3), "1,3"):
            assert str(getattr(lawful, verb)(module, input=size)), verb
    assert lawful.laws(module, input=(1, 3)).laws == 2
    with pytest.raises(LawfulError, match=r"a size such as \(3, 8, 8\)"):
        lawful.laws(module, input="three")


def test_how_to_read_weights_reaches_the_canonical_member_of_a_module() -> None:
    """Weights alone with tanh are a module, which an activation that is forgotten would make a ReLU network."""
    pytest.importorskip("torch")
    weights = {"fc1.weight": np.array([[1.0, 2.0, 3.0], [0.0, 1.0, -1.0]]), "fc2.weight": np.ones((1, 2))}
    found = lawful.canonical(weights, activation="tanh")
    assert found.weights["fc1.weight"].abs().sum() == 8  # tanh allows signs and permutations, and no scales


NET = "3-4-1 relu bias"
RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(12, 3)), RNG.normal(size=(12, 1))
CORNERS = np.concatenate([np.eye(2), np.eye(2) + 0.1]), np.array([0, 1, 0, 1])
MAKERS: dict[str, tuple[Callable[[], Any], list[str] | None]] = {
    "audit": (lambda: lawful.audit(NET, source=NET), ["audit", NET]),
    "canonical": (lambda: lawful.canonical(NET), ["canonical", NET]),
    "compare": (
        lambda: lawful.compare(NET, "flow,sgd:0.1", until=0.2),
        ["compare", NET, "--optimizers", "flow,sgd:0.1", "--until", "0.2"],
    ),
    "components": (lambda: lawful.components(NET), ["components", NET]),
    "diff": (lambda: lawful.diff(NET, NET), ["diff", NET, NET]),
    "distance": (lambda: lawful.distance(NET, NET, ([-1.0] * 3, [1.0] * 3)), ["distance", NET, NET, "--box", "-1,1"]),
    "fiber": (lambda: lawful.fiber(NET), ["fiber", NET]),
    "fingerprint": (lambda: lawful.fingerprint([NET]), ["fingerprint", NET]),
    "flow": (lambda: lawful.flow(NET, DATA, until=0.2), None),
    "identifiable": (lambda: lawful.identifiable(NET), ["identifiable", NET]),
    "laws": (lambda: lawful.laws("3-4-2 linear"), ["laws", "3-4-2 linear"]),
    "path": (lambda: lawful.path(NET, NET), ["path", NET, NET]),
    "prune": (lambda: lawful.prune(NET), ["prune", NET]),
    "rebalance": (lambda: lawful.rebalance(NET), ["rebalance", NET]),
    "regions": (lambda: lawful.regions("2-4-1 relu bias", (-1, 1)), ["regions", "2-4-1 relu bias", "--box", "-1,1"]),
    "reproduce": (lambda: lawful.reproduce("p0-incidence"), ["reproduce", "p0-incidence"]),
    "same": (lambda: lawful.same(NET, NET), ["same", NET, NET]),
    "separate": (lambda: lawful.separate(CORNERS), None),
    "show": (lambda: lawful.show(NET), ["show", NET]),
    "singular": (lambda: lawful.singular(NET), ["singular", NET]),
    "symmetries": (lambda: lawful.symmetries(NET), ["symmetries", NET]),
    "truncation_flow": (lambda: lawful.truncation_flow(CORNERS, until=1.0, frames=5), None),
    "truncate": (lambda: lawful.truncate("2-2-2 relu bias", CORNERS), None),
    "explore": (lambda: lawful.explore(NET), None),
    "bottleneck": (lambda: lawful.bottleneck("3-4-4-1 relu bias", DATA[0]), None),
}
KINDS = sorted(MAKERS)


@cache
def made(verb: str) -> Any:
    return MAKERS[verb][0]()


@pytest.mark.parametrize("verb", KINDS)
def test_a_result_shows_itself(verb: str) -> None:
    result = made(verb)
    assert isinstance(result, Shown)
    assert len(repr(result)) <= 200
    assert repr(result).startswith(f"<{type(result).__name__}")
    assert str(result).strip()
    page = result._repr_html_()
    assert page.count("<div") == page.count("</div")
    assert len(page) < (400_000 if verb == "explore" else 60_000)
    found = result.to_dict()
    assert found
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("verb", KINDS)
def test_rows_and_figures_are_there_or_refused(verb: str) -> None:
    result = made(verb)
    view = VIEWS[type(result).__name__]
    if view.rows:
        assert list(result.to_dataframe().columns) or not result.to_dict().get(view.rows)
    else:
        with pytest.raises(Unsupported, match="no rows"):
            result.to_dataframe()
    if view.figure is None:
        with pytest.raises(Unsupported, match="no figure"):
            result.plot()
    elif verb != "reproduce":
        assert "<svg" in result.plot()._repr_html_()


VARYING = {"seconds", "per_second", "reading", "readings", "measured_change", "near", "claim"}


@pytest.mark.parametrize("verb", [verb for verb in KINDS if MAKERS[verb][1] is not None])
def test_to_dict_is_the_json_of_the_command_line(verb: str) -> None:
    arguments = MAKERS[verb][1]
    result = made(verb)
    printed = json.loads(in_process(*arguments, "--json").stdout)
    found = result.to_dict()
    assert set(found) - {"reading"} <= set(printed)
    for key in set(found) - VARYING:
        if found[key] is not None and not isinstance(found[key], list):
            assert str(found[key])[:12] == str(printed[key])[:12] or key in ("network", "parameters_before"), key


def test_a_large_audit_stays_short() -> None:
    found = lawful.audit("20-60-40-10 relu bias", effort="quick")
    words = found._repr_html_()
    assert len(repr(found)) <= 200
    assert len(words) < 60_000
    assert len(str(found)) < 5_000


def test_a_figure_becomes_matplotlibs() -> None:
    drawn = lawful.show("3-4-1 relu").plot().to_matplotlib()
    assert type(drawn).__module__.startswith("matplotlib")
    assert len(drawn.axes) == 2


def test_verify_takes_files_text_and_objects(tmp_path: Path) -> None:
    from lawful.invariant_set.certificate import certificate

    proof = certificate(lawful.components("3-4-1 relu bias"))
    file = tmp_path / "proof.json"
    file.write_text(json.dumps(proof))
    for given in (proof, json.dumps(proof), file.read_bytes(), file, str(file)):
        found = lawful.verify(given)
        assert found.to_dict()["kind"] == "components"
        assert found.statement in found._repr_html_()
    for wrong in (tmp_path, tmp_path / "none.json", str(tmp_path / "none.json"), "nonsense"):
        with pytest.raises(lawful.NotACertificate):
            lawful.verify(wrong)
