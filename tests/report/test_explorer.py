"""The explorer in a real browser: what it computes is what the library computes, and what it claims holds."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import in_process
from safetensors import safe_open

from lawful.api.explore import explore
from lawful.conservation import known_laws
from lawful.errors import LawfulError, Unsupported
from lawful.invariant_set import components
from lawful.network import Architecture, Mlp
from lawful.report.page.explorer import explorer_html
from lawful.sources.files import write
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
    for tab in ("laws", "where", "prune"):
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


STILL = """(slides) => {
  Stage.paint(); Still.hold();
  return slides.map(([s, t]) => {
    Live.slide(s, t); Stage.paint(); Still.compare();
    return [Still.seen.pixels, Still.seen.weights];
  });
}"""


@pytest.mark.parametrize(
    "text", ["2-5-4-1 relu bias", "2-6-1 relu", "2-4-4-3-2 leaky_relu(0.1) bias", "1-5-3-1 relu bias"]
)
def test_along_the_fiber_weights_move_and_no_pixel_does(tmp_path: Path, visit: Visit, text: str) -> None:
    shown = page(tmp_path, visit, random(text))
    moves = shown.evaluate(STILL, [[0.3, 0], [-0.9, 0], [1, 0]])
    assert [pixels for pixels, _ in moves] == [0, 0, 0]
    assert all(weights > 0.5 * random(text).parameters for _, weights in moves)
    assert shown.evaluate("() => Engine.apart(current(), given, data.inputs)") < 1e-12
    shown.evaluate("Live.put(0, Model.file[0] + 0.5); Stage.paint(); Still.compare()")
    assert shown.evaluate("Still.seen.pixels") > 100


def exact_pieces(network: Mlp, box: float) -> set[tuple[bool, ...]]:
    """Patterns of active neurons on a fine grid: the pieces that a picture of the box must have at least."""
    axis = np.linspace(-box, box, 500)
    points = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    values, patterns = points, []
    for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        values = values @ weight.T + (0 if bias is None else bias)
        if layer < len(network.slopes):
            patterns.append(values > 0)
            values = np.where(values > 0, values, network.slopes[layer] * values)
    return set(map(tuple, np.concatenate(patterns, axis=1).tolist()))


@pytest.mark.parametrize(
    "text", ["2-5-1 relu bias", "2-4-3-1 relu bias", "2-4-3-3-1 leaky_relu(0.2) bias", "2-14-12-1 relu bias"]
)
def test_polygons_are_the_regions_of_the_network(tmp_path: Path, visit: Visit, text: str) -> None:
    """Every polygon's affine form is the network at its corners, areas add up, and no pattern of a grid is missing."""
    network = random(text, 2)
    shown = page(tmp_path, visit, network)
    pieces = shown.evaluate(
        "() => Pieces.split(Live.th, Plane.choices[0][1], [-2, -2, 2, 2], 1e-3, 0)"
        ".map(({ P, gx, gy, c }) => [P, gx, gy, c])"
    )
    area = 0.0
    for flat, gx, gy, c in pieces:
        corners = np.array(flat).reshape(-1, 2)
        np.testing.assert_allclose(network.evaluate(corners)[:, 0], corners @ [gx, gy] + c, atol=1e-9)
        x, y = corners.T
        area += 0.5 * abs(x @ np.roll(y, -1) - y @ np.roll(x, -1))
    assert area == pytest.approx(16, rel=1e-9)
    assert len(pieces) >= len(exact_pieces(network, 2.0))


@pytest.mark.parametrize("scale", [2.0**-600, 2.0**600])
def test_neurons_of_any_size_keep_their_creases(tmp_path: Path, visit: Visit, scale: float) -> None:
    """Squares of such weights underflow or overflow; the pieces are those of the same function at a plain scale."""
    network = random("2-5-4-1 relu bias", 2)
    (first, second, last), (below, middle, above) = network.weights, network.biases
    moved = Mlp([scale * first, second / scale, last], [scale * np.asarray(below), middle, above])
    count = "() => Pieces.split(Live.th, Plane.choices[0][1], [-2, -2, 2, 2], 1e-3, 0).count"
    assert page(tmp_path, visit, moved).evaluate(count) == page(tmp_path, visit, network).evaluate(count) > 9


JUMPS = """() => {
  const made = Pieces.split(Live.th, Plane.choices[0][1], [-2, -2, 2, 2], 1e-3, 1), worst = [0, 0];
  for (const { P, E, J } of made.map((piece) => piece)) E.forEach((owner, k) => {
    if (owner < 0 || J[k] < 0) return;
    const l = (k + 1) % E.length, [x, y, u, v] = [P[2 * k], P[2 * k + 1], P[2 * l], P[2 * l + 1]];
    const long = Math.hypot(u - x, v - y), [a, b] = [1e-7 * (v - y) / long, 1e-7 * (x - u) / long];
    if (long < 1e-3) return;
    const side = (sign) => Engine.jet(given, [(x + u) / 2 + sign * a, (y + v) / 2 + sign * b], [0, 1], 1);
    const [near, far] = [side(-1), side(1)];
    worst[0] = Math.max(worst[0], Math.abs(Math.hypot(near[1] - far[1], near[2] - far[2]) - J[k]));
    worst[1]++;
  });
  return worst;
}"""


@pytest.mark.parametrize("text", ["2-9-2 relu bias", "2-7-6-2 relu bias", "2-6-5-4-2 leaky_relu(0.2) bias"])
def test_the_jump_over_an_edge_is_that_of_the_slope(tmp_path: Path, visit: Visit, text: str) -> None:
    """An edge's strength is known from its neuron alone; differences of the slope on both sides say the same."""
    worst, edges = page(tmp_path, visit, random(text, 4)).evaluate(JUMPS)
    assert edges > 20
    assert worst < 1e-6


DRAG = """(k) => {
  const before = Live.th.slice();
  const kept = (Still.hold(), Array.from(Stage.list.J.subarray(0, Stage.list.start[Stage.list.count])));
  for (let step = 0; step < 12; step++) {
    Live.th = before.slice(); Live.th[k] += 0.01 * step; Live.edit(); Loop.draw();
  }
  const moving = [Loop.moving, byId("f").width, Stage.width];
  Live.th = before.slice(); Live.edit(); Loop.draw();
  return [...moving, kept.length];
}"""


def test_many_pieces_are_drawn_coarsely_while_they_move_and_whole_at_rest(tmp_path: Path, visit: Visit) -> None:
    """Brought back to where they were, the weights give every pixel back."""
    shown = page(tmp_path, visit, random("2-96-96-1 relu bias"), width=1400)
    shown.wait_for_timeout(200)
    bias = shown.evaluate("Model.offsets[0] + 3")
    moving, width, whole, edges = shown.evaluate(DRAG, bias)
    assert edges > 20_000
    assert moving
    assert width < whole
    assert shown.evaluate("[Still.compare(), byId('f').width === Stage.width]") == [0, True]
    shown.wait_for_function("() => !Loop.moving")
    assert shown.evaluate("[byId('f').width === Stage.width, Still.compare()]") == [True, 0]


def hides_a_plane() -> Mlp:
    """P4 Theorem 5: one column of W2 positive, the others and b2 negative."""
    rng = np.random.default_rng(0)
    second = -rng.uniform(0.5, 1, size=(2, 2))
    second[:, 0] *= -1
    return Mlp([rng.normal(size=(2, 2)), second, rng.normal(size=(1, 2))], [rng.normal(size=2), [-0.5, -0.7], [0.1]])


def test_a_hidden_crease_moves_and_no_pixel_does(tmp_path: Path, visit: Visit) -> None:
    """Tiles are pieces of the function, not patterns of neurons."""
    shown = page(tmp_path, visit, hides_a_plane())
    assert shown.evaluate("Model.hidden(Live.th).i") == 0
    assert shown.is_enabled("#t")
    moves = shown.evaluate(STILL, [[0, 0.3], [0.5, 0.9], [-0.5, 0.1]])
    assert [pixels for pixels, _ in moves] == [0, 0, 0]
    shown.evaluate("Live.put(0, 3); Stage.paint(); Still.compare()")
    assert shown.evaluate("Still.seen.pixels") > 100


def test_slopes_are_those_of_differences(tmp_path: Path, visit: Visit) -> None:
    shown = page(tmp_path, visit, random("3-5-4-2 leaky_relu(0.1) bias", 2))
    gap = shown.evaluate(
        "() => data.inputs.map((x) => { const [v, a, b] = Engine.jet(given, x, [0, 2], 1), h = 1e-6;"
        " const f = (j, t) => { const y = x.slice(); y[j] += t; return Engine.forward(given, y)[1]; };"
        " return Math.max(Math.abs(v - f(0, 0)), Math.abs(a - (f(0, h) - f(0, -h)) / 2 / h),"
        " Math.abs(b - (f(2, h) - f(2, -h)) / 2 / h)); })"
    )
    assert max(gap) < 1e-8


def test_the_library_and_the_page_agree_on_what_hides(tmp_path: Path, visit: Visit) -> None:
    for network in (hides_a_plane(), random("2-3-2-1 relu bias", 5)):
        shown = page(tmp_path, visit, network)
        assert explore(network).hidden == shown.evaluate("Model.hidden(Live.th)?.i ?? null")


def test_dragging_a_crease_edits_its_bias_and_voids_the_evidence(tmp_path: Path, visit: Visit) -> None:
    shown = page(tmp_path, visit, random("2-3-1 relu bias", 1), source="net.safetensors", asked="net.safetensors")
    assert shown.locator(".chip.void").count() == 0
    place = shown.evaluate(
        "() => { const F = Pieces.firstForms(Live.th, Plane.choices[0][1]), [a, b, c] = F.subarray(0, 3);"
        " const { x, y } = Stage.view, d = (a * x + b * y + c) / (a * a + b * b), k = Stage.ratio;"
        " const r = document.getElementById('over').getBoundingClientRect();"
        " return [r.left + Stage.sx(x - a * d) / k, r.top + Stage.sy(y - b * d) / k]; }"
    )
    shown.evaluate("document.documentElement.scrollTop = 0")
    shown.mouse.move(*place)
    shown.mouse.down()
    shown.mouse.move(place[0] + 25, place[1] + 20, steps=3)
    shown.mouse.up()
    shown.wait_for_timeout(150)
    changed = shown.evaluate("[...Live.th].flatMap((v, k) => (v === Model.file[k] ? [] : [k]))")
    assert len(changed) == 1
    assert shown.evaluate("(k) => places[k].column", changed[0]) == -1
    assert shown.locator("#chips .chip.void").count() == 3
    assert "no longer certified" in shown.inner_text("#pill")
    assert "edited.safetensors --activation" in shown.inner_text("#chips")
    shown.click("#undo")
    shown.wait_for_timeout(150)
    assert shown.locator("#chips .chip.void").count() == 0, "exactly the file's weights bring it back"


def test_the_commands_of_edited_weights_work_as_printed(
    lawful: Any, tmp_path: Path, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    network = random("2-3-1 relu bias", 1)
    write(network, Path("net.safetensors"))
    lawful("explore", "net.safetensors", "--activation", "relu", "--html", "page.html")
    shown = visit(tmp_path / "page.html")
    for edit in ("", "Live.put(1, 0.75)"):
        shown.evaluate(edit or "0")
        shown.wait_for_timeout(400)
        Path("edited.safetensors").write_bytes(bytes(shown.evaluate("[...Evidence.bytes()]")))
        for command in shown.locator("#chips code").all_text_contents():
            for part in command.split(" && "):
                done = in_process(*shlex.split(part)[1:])
                assert done.returncode in (0, 1, 3), (part, done)
    with safe_open("edited.safetensors", "numpy") as saved:
        assert saved.get_tensor("0.weight")[0, 1] == 0.75


def test_training_keeps_balances_under_gradient_flow(tmp_path: Path, visit: Visit) -> None:
    shown = page(tmp_path, visit, random("2-5-1 relu bias"))
    drifts = {}
    for rule in ("flow", "sgd", "momentum", "adam"):
        shown.evaluate(
            "(rule) => { Training.choose(rule); Training.start();"
            " for (let k = 0; k < 60; k++) Training.train(); Training.stop(); }",
            rule,
        )
        drifts[rule] = shown.evaluate("(rule) => Training.past[rule].at(-1)", rule)
    assert drifts["flow"] < 1e-4
    assert min(drifts["sgd"], drifts["momentum"], drifts["adam"]) > 10 * drifts["flow"]


def test_gradients_of_training_are_those_of_the_engine(tmp_path: Path, visit: Visit) -> None:
    shown = page(tmp_path, visit, random("3-4-3-2 leaky_relu(0.1) bias"))
    gap = shown.evaluate(
        "() => { const g = new Float64Array(Model.size), l = Model.loss(Live.th, g, 0, data.inputs.length);"
        " const e = Engine.loss(given, data.inputs, data.targets);"
        " return Math.max(Math.abs(l - e.loss), ...g.map((v, k) => Math.abs(v - e.gradient[k]))); }"
    )
    assert gap < 1e-12


def test_keyboard_weights_and_the_address(tmp_path: Path, visit: Visit) -> None:
    shown = page(tmp_path, visit, random("2-3-1 relu bias"))
    shown.focus("[data-name=laws]")
    shown.keyboard.press("ArrowRight")
    assert shown.evaluate("document.activeElement.dataset.name") == "where"
    shown.focus(".edge")
    shown.keyboard.press("Enter")
    assert shown.is_visible("#weight-editor")
    shown.focus("#over")
    for key in ("]", "]", "Shift+ArrowUp", "+", "ArrowLeft"):
        shown.keyboard.press(key)
    shown.wait_for_timeout(500)
    seen = "[...Live.th, Stage.view.x, Stage.view.k / Stage.home.k, Stage.chosen, state.tab]"
    before = shown.evaluate(seen)
    assert before[-2] == 1
    shown.reload()
    after = shown.evaluate(seen)
    assert after[:-4] == before[:-4], "the same bits"
    assert after[-4:-2] == pytest.approx(before[-4:-2], rel=1e-5)
    assert after[-2:] == before[-2:]
    assert len(shown.url.split("#")[1]) < 1000
    address = shown.url.split("#")[0]
    shown.goto(address + "#law=1e9&w=xx&v=a,b&s=9&n=-4&output=7&plane=3&theme=pink&o=none")
    shown.reload()
    assert shown.evaluate("[state.law, state.output, Live.s, Stage.chosen]") == [0, 0, 1, -1]


PAINTED = """() => { const c = byId("plan"), p = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
  return p.reduce((sum, v) => sum + (v > 0), 0); }"""


def test_the_weights_stay_painted_when_the_window_changes(tmp_path: Path, visit: Visit) -> None:
    """To give a canvas a size empties it, even if the size is the same: a window that only grows taller did so."""
    shown = page(tmp_path, visit, random("2-5-1 relu bias"), width=1400)
    for height in (800, 900, 800):
        shown.set_viewport_size({"width": 1400, "height": height})
        shown.wait_for_timeout(300)
        assert shown.evaluate(PAINTED) > 1000, height


def test_a_plane_through_data_points_is_exact(tmp_path: Path, visit: Visit) -> None:
    network = random("6-5-4-2 relu bias", 3)
    shown = page(tmp_path, visit, network)
    assert "data points 1, 2 and 3" in shown.inner_text("#choose-plane")
    assert shown.evaluate("Stage.marks.length") >= 3
    pieces, plane = shown.evaluate(
        "() => [Pieces.split(Live.th, Plane.choices[0][1], [-1, -1, 1, 1], 1e-3, 1)"
        ".map(({ P, gx, gy, c }) => [P, gx, gy, c]),"
        " Plane.choices[0][1]]"
    )
    for flat, gx, gy, c in pieces:
        corners = np.array(flat).reshape(-1, 2)
        points = np.array(plane["origin"]) + corners @ np.array([plane["across"], plane["up"]])
        np.testing.assert_allclose(network.evaluate(points)[:, 1], corners @ [gx, gy] + c, atol=1e-9)


def test_wide_networks_are_heat_maps(tmp_path: Path, visit: Visit) -> None:
    shown = page(tmp_path, visit, random("20-32-16-10 relu bias"))
    assert shown.evaluate("document.querySelectorAll('#network canvas').length") == 3
    shown.click("#network canvas")
    assert shown.is_visible("#weight-editor")
    assert "pieces in view" in shown.inner_text("#head")
    shown.click("[data-name=laws]")
    assert "48 independent laws" in shown.inner_text("#panel")
    assert shown.evaluate("data.laws.length") == 48


def test_one_input_is_a_curve(tmp_path: Path, visit: Visit) -> None:
    shown = page(tmp_path, visit, random("1-5-1 relu bias"), other=random("1-5-1 relu bias", 1))
    assert "pieces in view" in shown.inner_text("#say")
    shown.click("[data-name=same]")
    assert shown.locator("#panel .view path").count() == 2


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
    assert shown.inner_text("#name") == hostile
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
    shown.evaluate("() => { Live.put(0, 9); open('prune'); }")
    text = shown.inner_text("#panel")
    assert "certified" not in text
    assert "needed" not in text
    assert "says nothing of those shown" in text
    gap = shown.evaluate("() => Engine.apart(current(), data.pruned.network, data.inputs)")
    assert gap > 0.1
    assert f"differ by {shown.evaluate(f'short({gap!r})')} at most" in text


def test_undecided_neurons_are_not_called_needed(tmp_path: Path, visit: Visit) -> None:
    shown = page(tmp_path, visit, random("2-70-1 relu bias"))
    shown.click("[data-name=prune]")
    text = shown.inner_text("#panel")
    assert "needed:" not in text
    assert "is undecided" in text
