// The questions: each panel builds its controls once and redraws when a slider or a weight moves.

panels.laws = {
  title: "Laws",
  build(box) {
    const rules = [["gradient descent", colour("--plus")], ["momentum", colour("--lock")], ["Adam", colour("--minus")]];
    const drift = node("div"), loss = node("div"), words = node("p", { class: "value" });
    const redraw = () => {
      const law = data.laws[state.law], step = 10 ** state.step;
      lit = new Set(law ? law.terms.flatMap(([edges]) => edges) : []);
      drawNetwork();
      const runs = rules.map(([name, tone]) => ({ name, tone, run: Engine.train(current(), data.inputs, data.targets, name, step, 12, law) }));
      const last = (run) => run.values[run.values.length - 1][1];
      const scale = law ? Math.abs(Engine.law(law, Engine.flat(current()))) : 0;
      drift.replaceChildren(Draw.curves(runs.map(({ name, tone, run }) => ({ name, tone, points: run.values })), "change of the law", { floor: 0.02 * Math.max(scale, 0.1) }));
      loss.replaceChildren(Draw.curves(runs.map(({ name, tone, run }) => ({ name, tone, points: run.losses })), "loss"));
      words.textContent = law ? `After the same steps the law has changed by ${runs.map(({ name, run }) => `${Draw.short(last(run))} (${name})`).join(", ")}.` : "";
    };
    const list = node("div", { class: "list", role: "group", "aria-label": "laws" });
    data.laws.forEach((law, number) => list.append(node("button", { type: "button", text: law.name, "aria-pressed": String(number === state.law), onclick: (event) => {
      state.law = number;
      list.querySelectorAll("button").forEach((each) => each.setAttribute("aria-pressed", String(each === event.target)));
      redraw(); Address.save();
    } })));
    const said = data.count ? chip(data.count.status + ":", `${data.count.laws} independent laws, whatever the data and loss.`, `lawful laws ${data.asked} --certificate laws.json && lawful verify laws.json`)
      : node("p", { class: "hint", text: `The laws were not counted for this page: lawful laws ${data.asked} counts them.` });
    box.append(node("p", { text: "Choose a law: its weights light up. Gradient flow keeps it for ever; each optimiser moves it by finite steps. Make the steps smaller." }), said, list,
      slider("step size", "step", (v) => Draw.short(10 ** v), redraw),
      node("ul", { class: "legend" }, ...rules.map(([name, tone]) => { const i = node("i"); i.style.background = tone; return node("li", {}, i, name); })),
      drift, words, loss,
      node("p", { class: "hint", text: data.madeUp ? "Trained on made-up data: random inputs and a smooth target. Give --data FILE for your own." : `Trained on ${data.inputs.length} samples of your data.` }));
    redraw();
  },
};

panels.where = {
  title: "Where it can go",
  build(box) {
    const net = current(), own = Engine.balances(net), balances = own.map((layer) => layer.slice());
    const words = node("p", { class: "value" }), table = node("div");
    const names = own.flatMap((layer, l) => layer.map((_, i) => [`${l},${i}`, `neuron ${i} of layer ${l + 1}`]));
    const [layer, unit] = state.neuron.split(",").map(Number);
    const extent = 2 * Math.max(1, ...own.flat().map(Math.abs));
    const redraw = (shown = net) => {
      const locks = Engine.locks(net, balances);
      lit = new Set(locks.map(numberOf));
      outlined = new Set(locks.flatMap((lock) => lock.set));
      drawNetwork(shown);
      words.textContent = locks.length ? `${locks.length === 1 ? "One weight" : `${locks.length} weights`} can never change sign: the set of all weights with these balances falls into 2^${locks.length} parts (balances in floating point here).` : "Connected: these balances keep no weight on one side of zero (balances in floating point here).";
      const rows = locks.slice(0, 40).map((lock) => node("tr", {}, node("td", { text: placeName(lock) }), node("td", { class: "number", text: Draw.short(lock.barrier) }), node("td", { class: "number", text: lock.set.length })));
      table.replaceChildren(locks.length ? node("table", {}, node("thead", {}, node("tr", {}, ...["sign-locked", "never closer to 0 than", "proved by the balances of so many neurons"].map((text) => node("th", { text })))), node("tbody", {}, ...rows)) : "");
    };
    const drag = node("div");
    const setup = () => {
      const [l, i] = state.neuron.split(",").map(Number);
      state.balance = balances[l][i];
      drag.replaceChildren(slider("its balance (incoming minus outgoing squares)", "balance", Draw.short, () => { balances[l][i] = state.balance; redraw(); }, [-extent, extent]));
    };
    box.append(node("p", { text: "Training conserves every neuron's balance. Where a neuron has a single way out or in, its balance can keep that weight from ever reaching zero. Drag a balance and watch the set split or join." }),
      chip(data.locked ? "decided exactly for the given weights:" : "not decided here:", !data.locked ? "the browser computes balances in floating point." : data.locked.length ? `${data.locked.length} weight${data.locked.length === 1 ? " is" : "s are"} locked.` : "no weight is locked.", `lawful components ${data.asked} --certificate where.json && lawful verify where.json`),
      names.length ? choice("hidden neuron", "neuron", names, setup) : "", drag, words, table,
      node("p", { class: "hint", text: "Yellow: locked weights; ringed: the neurons whose balances prove it." }));
    if (own[layer] === undefined || own[layer][unit] === undefined) state.neuron = "0,0";
    if (names.length) setup();
    redraw();
    if (data.path) box.append(walk(redraw));
  },
};

// A path inside the set from the given weights to those with every free sign flipped; the balances stay where they are.
function walk(redraw) {
  const start = Engine.flat(given), before = Engine.balances(given), words = node("p", { class: "value" });
  const step = () => {
    const net = Engine.shaped(given, state.walk ? Engine.along(data.path, state.walk) : start), theta = Engine.flat(net);
    const off = Math.max(0, ...Engine.balances(net).flatMap((layer, l) => layer.map((c, i) => Math.abs(c - before[l][i]))));
    const turned = theta.reduce((n, v, k) => n + (v * start[k] < 0), 0);
    redraw(net);
    words.textContent = `${turned} of ${data.path.flips} signs flipped; every balance within ${Draw.short(off)} of where it was.`;
  };
  const along = slider("along the path", "walk", (v) => v.toFixed(2), step), input = along.querySelector("input");
  const play = node("button", { type: "button", text: "Play", onclick: () => {
    const began = performance.now(), from = state.walk >= 1 ? 0 : state.walk;
    const tick = (now) => {
      if (!play.isConnected) return;
      input.value = Math.min(1, from + Math.max(0, now - began) / 6000);
      input.dispatchEvent(new Event("input"));
      if (Number(input.value) < 1) requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  } });
  step();
  return node("section", {}, node("h2", { text: "A way through" }),
    node("p", { text: `A path inside the set from the given weights to those with ${data.locked.length ? "every sign flipped that is free" : "every sign flipped"}, in ${data.path.signs.length} pieces: a weight changes sign only where it is zero.` }),
    along, play, words, chip("exact:", `at the waypoints the balances are those of the start, in fractions (off by ${data.path.drift}).`, "lawful path A B --certificate path.json && lawful verify path.json"));
}

// Networks of one input as curves over it.
function curve(networks, words) {
  const reach = Math.max(1, ...data.inputs.map((x) => Math.abs(x[0])));
  const spots = Array.from({ length: 401 }, (_, k) => reach * (k / 200 - 1));
  const series = networks.map(([name, net, tone]) => ({ name, tone, points: spots.map((x) => [x, Engine.forward(net, [x])[state.output]]) }));
  const values = series.flatMap(({ points }) => points.map((p) => p[1]));
  words.textContent = `Output from ${Draw.short(Math.min(...values))} to ${Draw.short(Math.max(...values))}.`;
  return Draw.curves(series, `output ${state.output}`, { high: 260, over: "the input,", from: -reach });
}

panels.same = {
  title: "Same?",
  show: () => data.other !== null,
  build(box) {
    lit = new Set(); outlined = new Set(); drawNetwork();
    const view = node("div", { class: "view" }), canvas = node("canvas", { width: 200, height: 200, role: "img", "aria-label": "difference of the two networks" });
    const point = data.verdict.input, base = point && given.widths[0] > 2 ? point : new Array(given.widths[0]).fill(0), words = node("p", { class: "value" });
    const redraw = () => {
      if (given.widths[0] === 1) { view.replaceChildren(curve([["this network", current(), colour("--plus")], ["the other", data.other, colour("--minus")]], words)); return; }
      const options = { axes: [0, 1], reach: 2, base, output: state.output };
      const seen = Draw.tiling(canvas, current(), data.other, options);
      view.replaceChildren(canvas, Draw.marks(point ? [point] : [], options));
      words.textContent = `In view the difference runs from ${Draw.short(seen.low)} to ${Draw.short(seen.high)}.`;
    };
    const moved = isMoved() ? node("p", { class: "hint", text: "The picture follows the weights that you moved; the verdict is about those given." }) : "";
    box.append(node("p", { text: "The difference of the two networks." }), chip(`${data.verdict.verdict}:`, data.verdict.words, `lawful same ${data.asked} ${data.otherCommand} --certificate same.json && lawful verify same.json`), moved, view, words, steps(data.verdict.steps));
    redraw();
  },
};

// The symmetries that lead two networks to one place.
function steps(list) {
  if (!list.length) return "";
  const rows = list.map(({ network, what, how }) => node("tr", {}, node("td", { text: network }), node("td", { text: what }), node("td", { text: how })));
  return node("table", {}, node("caption", { text: "After these steps, none of which changes a function, the two agree." }), node("thead", {}, node("tr", {}, ...["network", "step", "neurons or factors"].map((text) => node("th", { text })))), node("tbody", {}, ...rows));
}

panels.prune = {
  title: "Prune",
  show: () => data.pruned !== null,
  build(box) {
    const { before, after, complete, words, left, removed, network } = data.pruned;
    const moved = isMoved();
    lit = new Set(); outlined = new Set(moved ? [] : removed.map(({ place }) => place)); drawNetwork();
    const bar = (name, count, tone) => { const fill = node("div"); fill.style.cssText = `background:${tone};height:1rem;border-radius:4px;width:${Math.max(1, (100 * count) / Math.max(before, 1))}%`; return node("div", {}, node("span", { text: `${name}: ${count} hidden neurons` }), fill); };
    if (moved) box.append(node("p", { class: "hint", text: "You moved weights: what was proved is about the given ones and says nothing of those shown." }));
    else box.append(node("p", { text: words }), node("p", { text: left }));
    box.append(bar("given", before, colour("--soft")), bar(complete && !moved ? "needed" : "left by pruning the given weights", after, colour("--good")));
    if (!moved) box.append(chip("certified:", "re-checked in fractions by", `lawful prune ${data.asked} --out small.safetensors --certificate prune.json && lawful verify prune.json`));
    if (!removed.length) return;
    const gap = Engine.apart(current(), network, data.inputs);
    const picture = node("div");
    Draw.network(picture, network, { pick: () => {} });
    const rows = removed.slice(0, 40).map(({ name, why }) => node("tr", {}, node("td", { text: name }), node("td", { text: why })));
    box.append(node("table", {}, node("thead", {}, node("tr", {}, node("th", { text: moved ? "removed from the given weights" : "removed" }), node("th", { text: "why" }))), node("tbody", {}, ...rows)),
      node("h2", { text: `After: ${network.widths.join("-")}` }), picture,
      chip("measured here:", `the weights shown on the left and this network differ by ${short(gap)} at most on ${data.inputs.length} inputs.`));
  },
};

begin();
