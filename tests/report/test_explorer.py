"""The explorer in a real browser: what it computes is what the library computes, and what it claims holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lawful.api.explore import explore
from lawful.conservation import known_laws
from lawful.errors import LawfulError, Unsupported
from lawful.invariant_set import components
from lawful.network import Architecture, Mlp
from lawful.report.page.explorer import explorer_html
from lawful.training import problem

Visit = Callable[..., Any]


def page(tmp_path: Path, visit: Visit, network: Mlp, *, width: int = 1280, dark: bool = False, **options: Any) -> Any:
    file = tmp_path / "page.html"
    file.write_text(explorer_html(explore(network, **options)), encoding="utf-8")
    return visit(file, width=width, dark=dark)


def random(text: str, seed: int = 0) -> Mlp:
    return Architecture.parse(text).initialise(seed=seed)


@pytest.mark.parametrize("width", [390, 800, 1400])
@pytest.mark.parametrize("dark", [False, True])
def test_every_panel_fits_and_says_nothing_to_the_console(tmp_path: Path, visit: Visit, width: int, dark: bool) -> None:
    shown = page(tmp_path, visit, random("2-5-4-1 relu bias"), width=width, dark=dark)
    for tab in ("laws", "where", "function", "prune"):
        shown.click(f"[data-name={tab}]")
        assert shown.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), tab
        assert shown.inner_text("#panel").strip()
    assert (tmp_path / "page.html").stat().st_size < 2_000_000


@pytest.mark.parametrize(
    "text",
    ["2-4-1 relu bias", "3-4-1 relu", "1-3-2 relu", "1-3-1 linear", "3-4-1-1 relu", "1-1-3-1 relu", "2-1-1-2 relu"],
)
def test_the_page_finds_the_locks_that_exact_arithmetic_finds(tmp_path: Path, visit: Visit, text: str) -> None:
    """P0 Theorem 1, for the given weights and for dragged balances."""
    shown = page(tmp_path, visit, random(text))
    weigh = "(c) => Engine.locks(given, c).map((lock) => [numberOf(lock), lock.set])"
    seek = "(c) => Engine.locks(given, c || Engine.balances(given)).map((lock) => [numberOf(lock), lock.barrier])"
    for seed in range(6):
        network = random(text, seed)
        rng = np.random.default_rng(seed)
        wanted = (
            network.to_dag().hidden_incidence @ network.theta**2
            if seed == 0
            else rng.normal(size=len(network.to_dag().hidden))
        )
        exact = {lock.edge: lock.barrier for lock in components(network, wanted).locked}
        layers = np.split(wanted, np.cumsum(network.widths[1:-1])[:-1])
        found = dict(shown.evaluate(seek, None if seed == 0 else [layer.tolist() for layer in layers]))
        assert found.keys() == exact.keys(), (text, seed)
        assert all(found[edge] == pytest.approx(barrier, rel=1e-9) for edge, barrier in exact.items())
        for edge, ringed in shown.evaluate(weigh, [layer.tolist() for layer in layers]):  # the set proves its barrier
            total = sum(layers[int(place[0]) - 1][int(place.split(",")[1])] for place in ringed)
            assert abs(total) == pytest.approx(found[edge] ** 2, rel=1e-9)


def test_a_way_to_every_free_sign_keeps_every_balance(tmp_path: Path, visit: Visit) -> None:
    """P0 Theorem 1: what is not locked can be flipped, and the path on the page does it inside the set."""
    network = random("3-4-1-1 relu", 1)
    locked = [lock.edge for lock in components(network).locked]
    shown = page(tmp_path, visit, network)
    shown.click("[data-name=where]")
    times = np.linspace(0, 1, 40)
    seen = np.array(shown.evaluate("(times) => times.map((t) => Engine.along(data.path, t))", times.tolist()))
    balances = network.to_dag().hidden_incidence @ (seen**2).T
    np.testing.assert_allclose(balances, np.repeat(balances[:, :1], len(times), axis=1), atol=1e-12)
    flipped = seen[-1] * network.theta < 0
    assert flipped.sum() == network.parameters - len(locked)
    assert not flipped[locked].any()
    shown.click("text=Play")
    shown.wait_for_function("state.walk > 0")
    assert "signs flipped" in shown.inner_text("#panel")
    shown.click("[data-name=laws]")  # the animation ends with its panel
    assert shown.is_visible("#panel .list")


@pytest.mark.parametrize("text", ["2-5-4-1 relu bias", "3-4-2 leaky_relu(0.1) bias", "3-3-3 linear"])
def test_losses_gradients_and_laws_are_those_of_the_library(tmp_path: Path, visit: Visit, text: str) -> None:
    network = random(text, 3)
    found = explore(network)
    shown = page(tmp_path, visit, network)
    value = problem(network, found.inputs, found.targets, "mse").evaluate(network.theta)
    seen = shown.evaluate(
        "() => { const v = Engine.loss(given, data.inputs, data.targets); return [v.loss, [...v.gradient]]; }"
    )
    assert seen[0] == pytest.approx(value.loss, rel=1e-12)
    np.testing.assert_allclose(seen[1], value.gradient, rtol=1e-9, atol=1e-12)
    laws = shown.evaluate("() => data.laws.map((law) => Engine.law(law, Engine.flat(given)))")
    np.testing.assert_allclose(laws, known_laws(network.to_dag()).values(network.theta), rtol=1e-9, atol=1e-12)


def test_smaller_steps_keep_the_law_better(tmp_path: Path, visit: Visit) -> None:
    """Gradient descent drifts by h² a step, so by h over a time: ten times smaller steps, ten times smaller drift."""
    shown = page(tmp_path, visit, random("2-5-1 relu bias"))
    drift = (
        "(h) => { const run = Engine.train(given, data.inputs, data.targets, 'gradient descent', h, 4, data.laws[0]);"
        " return Math.abs(run.values[run.values.length - 1][1]); }"
    )
    coarse, fine = shown.evaluate(drift, 0.1), shown.evaluate(drift, 0.01)
    assert coarse / fine == pytest.approx(10, rel=0.3)


def test_along_the_fiber_weights_move_and_the_function_does_not(tmp_path: Path, visit: Visit) -> None:
    shown = page(tmp_path, visit, random("2-5-4-1 relu bias"))
    shown.click("[data-name=function]")
    before = shown.evaluate("document.querySelector('#panel canvas').toDataURL()")
    lines = shown.evaluate("[...document.querySelectorAll('.edge')].map((e) => e.getAttribute('stroke-width'))")
    shown.evaluate(
        "() => { const s = document.querySelector('#panel input'); s.value = 1; s.dispatchEvent(new Event('input')); }"
    )
    assert lines != shown.evaluate("[...document.querySelectorAll('.edge')].map((e) => e.getAttribute('stroke-width'))")
    after = shown.evaluate(
        "() => { const o = { axes: [0, 1], reach: 2, base: [0, 0], output: 0 };"
        " const c = () => node('canvas', { width: 60, height: 60 });"
        " const a = Draw.tiling(c(), given, o), b = Draw.tiling(c(), current(), o);"
        " return [a.count, b.count, Math.max(...a.values.map((v, k) => Math.abs(v - b.values[k])))]; }"
    )
    assert after[0] == after[1]
    assert after[2] < 1e-12
    assert before.startswith("data:image/png")


PICTURE = (
    "() => { const o = { axes: [0, 1], reach: 4, base: [0, 0], output: 0 };"
    " const c = node('canvas', { width: 60, height: 60 });"
    " const seen = Draw.tiling(c, current(), o);"
    " const pixels = c.getContext('2d').getImageData(0, 0, 60, 60).data;"
    " return [[...pixels], seen.count, Draw.overlay(current(), o).hidden]; }"
)


def hides_a_plane() -> Mlp:
    """P4 Theorem 5: one column of W2 positive, the others and b2 negative."""
    rng = np.random.default_rng(0)
    second = -rng.uniform(0.5, 1, size=(2, 2))
    second[:, 0] *= -1
    return Mlp([rng.normal(size=(2, 2)), second, rng.normal(size=(1, 2))], [rng.normal(size=2), [-0.5, -0.7], [0.1]])


@pytest.mark.parametrize("slide", ["fiber", "shift"])
def test_the_tiling_itself_stays_where_it_is(tmp_path: Path, visit: Visit, slide: str) -> None:
    """Tiles are pieces of the function, not patterns of neurons: also a hidden hyperplane moves without a trace."""
    shown = page(tmp_path, visit, hides_a_plane())
    before, pieces, hidden = shown.evaluate(PICTURE)
    shown.evaluate(f"state.{slide} = 0.8")
    after, now, _ = shown.evaluate(PICTURE)
    assert pieces == now > 1
    assert hidden > 0
    changed = np.abs(np.subtract(before, after)).reshape(-1, 4).max(axis=1) > 3  # one pixel may round another way
    assert changed.sum() <= 2
    shown.evaluate("state.moved = { 0: 3 }")
    assert np.abs(np.subtract(before, shown.evaluate(PICTURE)[0])).max() > 30


def test_slopes_are_those_of_differences(tmp_path: Path, visit: Visit) -> None:
    shown = page(tmp_path, visit, random("3-5-4-2 leaky_relu(0.1) bias", 2))
    gap = shown.evaluate(
        "() => data.inputs.map((x) => { const [v, a, b] = Engine.jet(given, x, [0, 2], 1), h = 1e-6;"
        " const f = (j, t) => { const y = x.slice(); y[j] += t; return Engine.forward(given, y)[1]; };"
        " return Math.max(Math.abs(v - f(0, 0)), Math.abs(a - (f(0, h) - f(0, -h)) / 2 / h),"
        " Math.abs(b - (f(2, h) - f(2, -h)) / 2 / h)); })"
    )
    assert max(gap) < 1e-8


def test_a_hidden_hyperplane_moves_unseen(tmp_path: Path, visit: Visit) -> None:
    network = hides_a_plane()
    assert explore(network).hidden == 0
    shown = page(tmp_path, visit, network)
    gap = shown.evaluate(
        "() => { const o = { axes: [0, 1], reach: 4, base: [0, 0], output: 0 };"
        " const c = () => node('canvas', { width: 60, height: 60 }), a = Draw.tiling(c(), given, o).values;"
        " return [-0.9, 0.9].map((s) => { state.shift = s; const b = Draw.tiling(c(), current(), o).values;"
        " return Math.max(...a.map((v, k) => Math.abs(v - b[k]))); }); }"
    )
    assert max(gap) < 1e-12


def test_keyboard_weights_and_the_address(tmp_path: Path, visit: Visit) -> None:
    shown = page(tmp_path, visit, random("2-3-1 relu bias"))
    shown.focus("[data-name=laws]")
    shown.keyboard.press("ArrowRight")
    assert shown.evaluate("document.activeElement.dataset.name") == "where"
    shown.focus(".edge")
    shown.keyboard.press("Enter")
    assert shown.is_visible("#weight-editor")
    shown.evaluate(
        "() => { const s = document.getElementById('weight'); s.value = 0.25; s.dispatchEvent(new Event('input')); }"
    )
    shown.wait_for_timeout(300)
    state = json.loads(shown.evaluate("decodeURIComponent(location.hash.slice(1))"))
    assert state["tab"] == "where"
    assert state["moved"] == {"0": 0.25}
    shown.reload()
    assert shown.evaluate("state.moved['0']") == 0.25
    shown.goto(shown.url.split("#")[0] + "#" + "%7B%22law%22%3A1e9%2C%22moved%22%3A%7B%22-1%22%3A%22x%22%7D%7D")
    shown.reload()
    assert shown.evaluate("state.law") == 0


def test_wide_networks_are_heat_maps(tmp_path: Path, visit: Visit) -> None:
    shown = page(tmp_path, visit, random("20-32-16-10 relu bias"))
    assert shown.evaluate("document.querySelectorAll('#network canvas').length") == 3
    shown.click("#network canvas")
    assert shown.is_visible("#weight-editor")
    shown.click("[data-name=function]")
    assert "linear pieces in view" in shown.inner_text("#panel")
    shown.click("[data-name=laws]")
    assert "48 independent laws" in shown.inner_text("#panel")
    assert shown.evaluate("data.laws.length") == 48


def test_one_input_is_a_curve(tmp_path: Path, visit: Visit) -> None:
    shown = page(tmp_path, visit, random("1-5-1 relu bias"), other=random("1-5-1 relu bias", 1))
    for tab in ("function", "same"):
        shown.click(f"[data-name={tab}]")
        assert shown.locator("#panel .view path").count() == (1 if tab == "function" else 2)


def test_equal_networks_show_the_symmetry_between_them(tmp_path: Path, visit: Visit) -> None:
    network, order, factors = random("2-4-1 relu bias"), [2, 0, 1, 3], np.array([2.0, 1.0, 4.0, 0.5])
    (below, above), (bias, last) = network.weights, network.biases
    assert bias is not None
    assert last is not None
    twin = Mlp([below[order] * factors[:, None], above[:, order] / factors], [bias[order] * factors, last])
    shown = page(tmp_path, visit, network, other=twin)
    shown.click("[data-name=same]")
    text = shown.inner_text("#panel")
    assert "equal:" in text
    assert "order 1, 2, 0, 3" in text
    assert "factors 1, 0.25, 0.5, 2" in text


def test_pruning_shows_what_goes_and_what_stays(tmp_path: Path, visit: Visit) -> None:
    below = [[1.0, 2.0], [0.0, 0.0], [2.0, -1.0], [2.0, 4.0]]
    network = Mlp([below, [[1.0, 3.0, -0.5, 1.0]]], [[0.0, 2.0, 0.0, 0.0], [0.0]])
    shown = page(tmp_path, visit, network)
    shown.click("[data-name=prune]")
    assert shown.evaluate("[...outlined].sort()") == ["1,1", "1,3"]
    text = shown.inner_text("#panel")
    assert "After: 2-2-1" in text
    assert "duplicate" in text
    gap = shown.evaluate(
        "() => Math.max(...data.inputs.map((x) =>"
        " Math.abs(Engine.forward(given, x)[0] - Engine.forward(data.pruned.network, x)[0])))"
    )
    assert gap < 1e-14


def test_names_are_text_and_two_networks_are_laid_over_each_other(tmp_path: Path, visit: Visit) -> None:
    hostile = "</script><img src=x onerror=alert(1)>{{script}}"
    shown = page(tmp_path, visit, random("2-3-1 relu bias"), source=hostile, other=random("2-3-1 relu bias", 5))
    assert shown.inner_text("h1") == hostile
    assert shown.evaluate("document.images.length") == 0
    shown.click("[data-name=same]")
    assert "different:" in shown.inner_text("#panel")


def test_what_it_cannot_show_is_said() -> None:
    with pytest.raises(Unsupported, match="layered"):
        explore(Architecture.parse("3-4-4-2 relu skip(0,1)").initialise(seed=0))
    with pytest.raises(Unsupported, match="20,000 parameters"):
        explore(random("200-200-1 relu"))
    with pytest.raises(LawfulError, match="cannot be overlaid"):
        explore(random("2-3-1 relu"), other=random("3-3-1 relu"))


def test_the_command_writes_the_page(lawful: Any, tmp_path: Path) -> None:
    assert lawful("explore", "2-4-1 relu bias", "--html", tmp_path / "page.html", "--json").json["parameters"] == 17
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_proofs_are_void_once_a_weight_moves(tmp_path: Path, visit: Visit) -> None:
    network = Mlp([[[1.0], [2.0], [-1.0]], [[1.0, 1.0, 3.0]]], [[0.0, 0.0, 1.0], [0.0]])
    shown = page(tmp_path, visit, network)
    shown.click("[data-name=prune]")
    text = shown.inner_text("#panel")
    assert "certified:" in text
    assert "needed: 2 hidden neurons" in text
    assert "proved for each" in text
    shown.evaluate("() => { state.moved[0] = 9; open('prune'); }")
    text = shown.inner_text("#panel")
    assert "certified" not in text
    assert "needed" not in text
    assert "says nothing of those shown" in text
    gap = shown.evaluate("() => Engine.apart(current(), data.pruned.network, data.inputs)")
    assert gap > 0.1
    assert f"differ by {shown.evaluate(f'({gap!r}).toExponential(1)')} at most" in text


def test_undecided_neurons_are_not_called_needed(tmp_path: Path, visit: Visit) -> None:
    shown = page(tmp_path, visit, random("2-70-1 relu bias"))
    shown.click("[data-name=prune]")
    text = shown.inner_text("#panel")
    assert "needed:" not in text
    assert "is undecided" in text
