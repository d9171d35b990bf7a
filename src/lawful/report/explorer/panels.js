// The questions: each panel builds its controls once and redraws when a slider or a weight moves.

const data = JSON.parse(document.getElementById("data").textContent);
const given = data.network, places = Engine.places(given);
const byId = (id) => document.getElementById(id);
const state = { tab: "laws", law: 0, step: -1.5, fiber: 0, shift: 0, reach: 2, output: 0, first: 0, second: Math.min(1, given.widths[0] - 1), neuron: "0,0", moved: {} };

function node(tag, options = {}, ...children) {
  const { text, ...rest } = options;
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(rest)) name.startsWith("on") ? made.addEventListener(name.slice(2), value) : made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  made.append(...children);
  return made;
}

const chip = (strong, rest, command) => node("p", { class: "chip" }, node("b", { text: strong }), ` ${rest} `, command ? node("code", { text: command }) : "");

function slider(label, key, low, high, show, changed) {
  const value = node("output", { text: show(state[key]) });
  const input = node("input", { type: "range", min: low, max: high, step: "any", value: state[key], "aria-label": label });
  input.addEventListener("input", () => { state[key] = Number(input.value); value.textContent = show(state[key]); changed(); remember(); });
  return node("label", {}, node("span", { text: label + " " }), value, input);
}

function choice(label, key, options, changed) {
  const list = node("select", { "aria-label": label });
  for (const [value, text] of options) list.append(node("option", { value, text }));
  list.value = String(state[key]);
  list.addEventListener("change", () => { state[key] = typeof state[key] === "number" ? Number(list.value) : list.value; changed(); remember(); });
  return node("label", {}, node("span", { text: label + " " }), list);
}

// The weights as the reader moved them, then along the fiber.
function edited() {
  const theta = Engine.flat(given);
  for (const [number, value] of Object.entries(state.moved)) theta[number] = value;
  return Engine.shaped(given, theta);
}

const rates = (() => { let seed = 7; const next = () => { seed = (seed * 16807) % 2147483647; return (2 * seed) / 2147483647 - 1; };
  return given.weights.slice(0, -1).map((w, l) => w.map(() => (given.slopes[l] === undefined ? 0 : next()))); })();

function current() {
  let net = edited();
  if (data.hidden !== null && state.shift) net = Engine.translated(net, data.hidden, state.shift * Math.abs(Engine.lowest(net, data.hidden)) * 0.99);
  return state.fiber ? Engine.rescaled(net, state.fiber, rates) : net;
}

const placeName = (place) => place.column < 0 ? `bias of neuron ${place.row} in layer ${place.layer + 1}` : `weight ${place.column} → ${place.row} of layer ${place.layer + 1}`;
const numberOf = (spot) => places.findIndex((p) => p.layer === spot.layer && p.row === spot.row && p.column === spot.column);
let chosen = -1, lit = new Set(), outlined = new Set();

function drawNetwork() {
  Draw.network(byId("network"), current(), { lit, outlined, chosen, pick });
}

function pick(number) {
  chosen = number;
  byId("weight-editor").hidden = false;
  const value = Engine.flat(edited())[number], largest = Math.max(...Engine.flat(given).map(Math.abs), Math.abs(value));
  const input = byId("weight");
  byId("weight-name").textContent = placeName(places[number]) + " ";
  input.min = -2 * largest; input.max = 2 * largest; input.value = value;
  byId("weight-value").textContent = value.toPrecision(4);
  drawNetwork();
}

const panels = {};

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
      redraw(); remember();
    } })));
    const said = data.count ? chip(data.count.status + ":", `${data.count.laws} independent laws, whatever the data and loss.`, `lawful laws ${data.command} --certificate laws.json && lawful verify laws.json`)
      : node("p", { class: "hint", text: "Too many parameters to count the laws here: `lawful laws` counts them." });
    box.append(node("p", { text: "Choose a law: its weights light up. Gradient flow keeps it for ever; each optimiser moves it by finite steps. Make the steps smaller." }), said, list,
      slider("step size", "step", -3.5, 0, (v) => Draw.short(10 ** v), redraw),
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
    const redraw = () => {
      const locks = Engine.locks(net, balances);
      lit = new Set(locks.map(numberOf));
      outlined = new Set(locks.map((lock) => (net.weights[lock.layer].length === 1 ? `${lock.layer},${lock.column}` : `${lock.layer + 1},${lock.row}`)));
      drawNetwork();
      words.textContent = locks.length ? `${locks.length} weights can never change sign: the reachable set has 2^${locks.length} separate parts (balances in floating point here).` : "Connected: training can reach every sign pattern (balances in floating point here).";
      const rows = locks.slice(0, 40).map((lock) => node("tr", {}, node("td", { text: placeName(lock) }), node("td", { class: "number", text: Draw.short(lock.barrier) })));
      table.replaceChildren(locks.length ? node("table", {}, node("thead", {}, node("tr", {}, node("th", { text: "sign-locked" }), node("th", { text: "never closer to 0 than" }))), node("tbody", {}, ...rows)) : "");
    };
    const drag = node("div");
    const setup = () => {
      const [l, i] = state.neuron.split(",").map(Number);
      state.balance = balances[l][i];
      drag.replaceChildren(slider("its balance (incoming minus outgoing squares)", "balance", -extent, extent, Draw.short, () => { balances[l][i] = state.balance; redraw(); }));
    };
    const checked = data.locked.length === Engine.locks(given, Engine.balances(given)).length;
    box.append(node("p", { text: "Training conserves every neuron's balance. Where a neuron has a single way out or in, its balance can keep that weight from ever reaching zero. Drag a balance and watch the set split or join." }),
      chip(checked ? "decided exactly:" : "decided exactly for the given weights:", data.locked.length ? `${data.locked.length} weights are locked.` : "no weight is locked.", `lawful components ${data.command} --certificate where.json && lawful verify where.json`),
      names.length ? choice("hidden neuron", "neuron", names, setup) : "", drag, words, table,
      node("p", { class: "hint", text: "Yellow: locked weights; ringed: the neuron whose balance proves it." }));
    if (own[layer] === undefined || own[layer][unit] === undefined) state.neuron = "0,0";
    if (names.length) setup();
    redraw();
  },
};

panels.function = {
  title: "Function",
  build(box) {
    lit = new Set(); outlined = new Set();
    const size = places.length > 3000 ? 90 : 220;
    const canvas = node("canvas", { width: size, height: size, role: "img", "aria-label": "the function on a plane of two inputs" });
    const words = node("p", { class: "value" }), proof = node("p", { class: "chip" });
    const base = new Array(given.widths[0]).fill(0);
    const redraw = () => {
      drawNetwork();
      const marks = given.widths[0] === 2 ? data.inputs.slice(0, 60) : [];
      const options = { axes: [state.first, state.second], reach: state.reach, base, output: state.output, marks };
      const seen = Draw.tiling(canvas, current(), options);
      words.textContent = `${seen.count} linear regions in view; output from ${Draw.short(seen.low)} to ${Draw.short(seen.high)}.`;
      const still = Draw.tiling(node("canvas", { width: 40, height: 40 }), edited(), options).values;
      const now = Draw.tiling(node("canvas", { width: 40, height: 40 }), current(), options).values;
      let gap = 0;
      for (let k = 0; k < still.length; k++) gap = Math.max(gap, Math.abs(still[k] - now[k]));
      proof.replaceChildren(node("b", { text: "measured here:" }), ` along the fiber the outputs in view have moved by ${gap.toExponential(1)} (rounding). `, node("code", { text: `lawful fiber ${data.command}` }));
    };
    const axis = Array.from({ length: given.widths[0] }, (_, i) => [i, `input ${i}`]);
    box.append(node("p", { text: "Each tint is a region on which the network is affine. Drag a weight on the left and the tiling follows. Move along the fiber: the weights change, the tiling does not." }),
      slider("along the fiber (all neurons rescaled)", "fiber", -1.5, 1.5, (v) => v.toFixed(2), redraw),
      data.hidden === null ? "" : slider(`hidden hyperplane ${data.hidden} of layer 1 (nobody sees it move)`, "shift", -1, 1, (v) => v.toFixed(2), redraw),
      canvas, words, proof,
      node("div", { class: "row" }, slider("half-width of the view", "reach", 0.2, 10, (v) => v.toFixed(1), redraw),
        given.widths[0] > 2 ? choice("across", "first", axis, redraw) : "", given.widths[0] > 2 ? choice("up", "second", axis, redraw) : "",
        given.widths[given.widths.length - 1] > 1 ? choice("output", "output", Array.from({ length: given.widths[given.widths.length - 1] }, (_, i) => [i, `output ${i}`]), redraw) : ""));
    redraw();
  },
};

panels.same = {
  title: "Same?",
  show: () => data.other !== null,
  build(box) {
    lit = new Set(); outlined = new Set(); drawNetwork();
    const canvas = node("canvas", { width: 200, height: 200, role: "img", "aria-label": "difference of the two networks" });
    const base = new Array(given.widths[0]).fill(0), words = node("p", { class: "value" });
    const point = data.verdict.input;
    const redraw = () => {
      const seen = Draw.tiling(canvas, current(), { axes: [state.first, state.second], reach: state.reach, base: point && given.widths[0] > 2 ? point : base, output: state.output, other: data.other, marks: point ? [point] : [] });
      words.textContent = `In view the difference runs from ${Draw.short(seen.low)} to ${Draw.short(seen.high)}.`;
    };
    box.append(node("p", { text: "The difference of the two networks on the plane." }), chip(`${data.verdict.verdict}:`, point ? "the dot is an input on which the exact outputs differ." : "see the evidence.", `lawful same ${data.command} OTHER --certificate same.json`), canvas, words,
      slider("half-width of the view", "reach", 0.2, 10, (v) => v.toFixed(1), redraw));
    redraw();
  },
};

panels.prune = {
  title: "Prune",
  build(box) {
    lit = new Set(); outlined = new Set(); drawNetwork();
    const { before, after, bound, widths } = data.pruned;
    const bar = (name, count, tone) => { const fill = node("div"); fill.style.cssText = `background:${tone};height:1rem;border-radius:4px;width:${Math.max(1, (100 * count) / Math.max(before, 1))}%`; return node("div", {}, node("span", { text: `${name}: ${count} hidden neurons` }), fill); };
    box.append(node("p", { text: before === after ? "No neuron can be removed without changing the function for some input." : `${before - after} of ${before} hidden neurons can go; every output stays within ${bound.toExponential(1)} for every input.` }),
      bar("now", before, colour("--soft")), bar("needed", after, colour("--good")), widths.length ? node("p", { class: "hint", text: `widths after: ${widths.join("-")}` }) : "",
      chip("certified:", "a bound for every input, re-checked in fractions.", `lawful prune ${data.command} --out small.safetensors --certificate prune.json && lawful verify prune.json`));
  },
};

function open(name) {
  state.tab = name;
  for (const tab of byId("tabs").children) { const on = tab.dataset.name === name; tab.setAttribute("aria-selected", String(on)); tab.tabIndex = on ? 0 : -1; }
  const panel = byId("panel");
  panel.replaceChildren();
  panel.setAttribute("aria-label", panels[name].title);
  panels[name].build(panel);
  remember();
}

// The whole state lives in the address, so a link shows what its sender saw.
let writing = 0;
function remember() {
  clearTimeout(writing);
  writing = setTimeout(() => { try { history.replaceState(null, "", "#" + encodeURIComponent(JSON.stringify(state))); } catch { /* some viewers forbid it */ } }, 150);
}

function recall() {
  try {
    const found = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    for (const key of Object.keys(state)) if (typeof found[key] === typeof state[key]) state[key] = found[key];
    for (const [number, value] of Object.entries(state.moved)) if (!(number >= 0 && number < places.length && Number.isFinite(value))) delete state.moved[number];
    const inside = (value, count) => (Number.isInteger(value) && value >= 0 && value < count ? value : 0);
    state.law = inside(state.law, data.laws.length);
    state.first = inside(state.first, given.widths[0]); state.second = inside(state.second, given.widths[0]);
    state.output = inside(state.output, given.widths[given.widths.length - 1]);
  } catch { /* no state in the address */ }
}

function begin() {
  recall();
  byId("name").textContent = data.source;
  byId("lead").textContent = `${given.widths.join("-")} network, ${places.length} parameters. Everything on this page is computed in your browser; each claim names the command that re-checks it.`;
  byId("network-hint").textContent = `Blue weights are positive, red negative. Choose one to change it.`;
  const shown = Object.keys(panels).filter((name) => !panels[name].show || panels[name].show());
  const tabs = byId("tabs");
  for (const name of shown) tabs.append(node("button", { type: "button", role: "tab", "data-name": name, text: panels[name].title, onclick: () => open(name) }));
  tabs.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!move) return;
    const next = shown[(shown.indexOf(state.tab) + move + shown.length) % shown.length];
    open(next);
    [...tabs.children].find((tab) => tab.dataset.name === next).focus();
  });
  byId("weight").addEventListener("input", (event) => {
    state.moved[chosen] = Number(event.target.value);
    byId("weight-value").textContent = Number(event.target.value).toPrecision(4);
    open(state.tab);
  });
  byId("reset").addEventListener("click", () => { state.moved = {}; state.fiber = 0; state.shift = 0; chosen = -1; byId("weight-editor").hidden = true; open(state.tab); });
  open(shown.includes(state.tab) ? state.tab : shown[0]);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => open(state.tab));
}

begin();
