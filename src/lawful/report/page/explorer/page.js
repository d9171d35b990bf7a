// The frame of the page: its state, which lives in the address, controls, and the network on the left.

const data = JSON.parse(document.getElementById("data").textContent);
const given = data.network, places = Engine.places(given);
const byId = (id) => document.getElementById(id);
const state = { tab: "laws", law: 0, step: -1.5, fiber: 0, shift: 0, reach: 2, output: 0, first: 0, second: Math.min(1, given.widths[0] - 1), neuron: "0,0", walk: 0, moved: {} };

const LIMITS = { step: [-3.5, 0], fiber: [-1.5, 1.5], shift: [-1, 1], reach: [0.2, 10], walk: [0, 1] };

function node(tag, options = {}, ...children) {
  const { text, ...rest } = options;
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(rest)) name.startsWith("on") ? made.addEventListener(name.slice(2), value) : made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  made.append(...children);
  return made;
}

const chip = (strong, rest, command) => node("p", { class: "chip" }, node("b", { text: strong }), ` ${rest} `, command ? node("code", { text: command }) : "");

function slider(label, key, show, changed, [low, high] = LIMITS[key]) {
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

// Whether the weights shown are others than those that everything was proved of.
function isMoved() {
  const [own, shown] = [Engine.flat(given), Engine.flat(current())];
  return own.some((value, number) => value !== shown[number]);
}

const placeName = (place) => place.column < 0 ? `bias of neuron ${place.row} in layer ${place.layer + 1}` : `weight ${place.column} → ${place.row} of layer ${place.layer + 1}`;
const numberOf = (spot) => places.findIndex((p) => p.layer === spot.layer && p.row === spot.row && p.column === spot.column);
let chosen = -1, lit = new Set(), outlined = new Set();

function drawNetwork(net = current()) {
  Draw.network(byId("network"), net, { lit, outlined, chosen, pick });
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

function recall(hash = location.hash) {
  try {
    const found = JSON.parse(decodeURIComponent(hash.slice(1)));
    for (const key of Object.keys(state)) if (typeof found[key] === typeof state[key]) state[key] = found[key];
    for (const [number, value] of Object.entries(state.moved)) if (!(number >= 0 && number < places.length && Number.isFinite(value))) delete state.moved[number];
    for (const [key, [low, high]] of Object.entries(LIMITS)) state[key] = Math.min(high, Math.max(low, state[key]));
    const inside = (value, count) => (Number.isInteger(value) && value >= 0 && value < count ? value : 0);
    state.law = inside(state.law, data.laws.length);
    state.first = inside(state.first, given.widths[0]); state.second = inside(state.second, given.widths[0]);
    state.output = inside(state.output, given.widths[given.widths.length - 1]);
  } catch { /* no state in the address */ }
}

function begin() {
  recall();
  byId("name").textContent = data.title;
  if (data.lead) byId("story").textContent = data.lead;
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
  byId("reset").addEventListener("click", () => { state.moved = {}; state.fiber = 0; state.shift = 0; state.walk = 0; chosen = -1; byId("weight-editor").hidden = true; open(state.tab); });
  open(shown.includes(state.tab) ? state.tab : shown[0]);
  window.addEventListener("hashchange", (event) => { clearTimeout(writing); recall(new URL(event.newURL).hash); open(shown.includes(state.tab) ? state.tab : shown[0]); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => open(state.tab));
}
