// The questions below the picture: tabs, and the network beside them, which follow the weights on the page.

const edited = () => Engine.shaped(given, Live.base);
const current = () => Engine.shaped(given, Live.th);
// Whether the weights shown are others than those that everything was proved of.
const isMoved = () => !Live.same();

const placeName = (place) => place.column < 0 ? `bias of neuron ${place.row} in layer ${place.layer + 1}` : `weight ${place.column} → ${place.row} of layer ${place.layer + 1}`;
const numberOf = (spot) => places.findIndex((p) => p.layer === spot.layer && p.row === spot.row && p.column === spot.column);
let chosen = -1, lit = new Set(), outlined = new Set();

function drawNetwork(net = current()) {
  Draw.network(byId("network"), net, { lit, outlined, chosen, pick });
}

function pick(number) {
  chosen = number;
  byId("weight-editor").hidden = false;
  const value = Live.th[number], largest = Math.max(...Model.file.map(Math.abs), Math.abs(value));
  const input = byId("weight");
  byId("weight-name").textContent = placeName(places[number]) + " ";
  input.min = -2 * largest; input.max = 2 * largest; input.value = value;
  byId("weight-value").textContent = short(value);
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
  Address.save();
}

function begin() {
  const view = Address.read();
  Stage.colours(); Stage.size();
  if (view) Object.assign(Stage.view, { x: view.x, y: view.y, k: view.zoom * Stage.home.k });
  byId("lead").textContent = data.lead || (Plane.single ? "Slide along the fiber: every weight moves, the curve stays. Then drag a bend, and it is another function." : "Slide along the fiber: every weight moves, no pixel of the picture does. Then drag a crease, and it is another function.");
  byId("network-hint").textContent = "Blue weights are positive, red negative. Choose one to change it.";
  byId("all").textContent = `of ${Model.size.toLocaleString("en")} weights changed`;
  byId("trained").textContent = data.madeUp ? "Made-up data: random inputs and a smooth target. --data FILE brings your own." : `${data.inputs.length} samples of your data.`;
  for (const [name, options] of [["plane", Plane.choices.map(([words]) => words)], ["output", Array.from({ length: given.widths.at(-1) }, (_, k) => `output ${k}`)]]) {
    const list = byId(`choose-${name}`);
    list.replaceChildren(...options.map((text, value) => node("option", { value, text })));
    list.value = String(state[name]);
    list.parentElement.hidden = options.length < 2;
    list.addEventListener("change", () => { state[name] = Number(list.value); Stage.typical(); Stage.frame(); Stage.whole(); });
  }
  Weights.size(); Bars.build(); Training.chart();
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
  byId("weight").addEventListener("input", (event) => { Live.begin(); Live.put(chosen, Number(event.target.value)); byId("weight-value").textContent = short(Number(event.target.value)); });
  // The panel follows the weights when the hand rests: a frame of the picture must not wait for it.
  let resting = 0;
  Live.listeners.push(() => { clearTimeout(resting); resting = setTimeout(() => { if (!Training.playing) open(shown.includes(state.tab) ? state.tab : shown[0]); }, 200); });
  open(shown.includes(state.tab) ? state.tab : shown[0]);
  new ResizeObserver(() => { Stage.size(); Weights.size(); Bars.build(); Training.chart(); Loop.ask(); }).observe(byId("stage"));
  window.addEventListener("hashchange", (event) => {
    Training.stop();
    const seen = Address.read(new URL(event.newURL).hash);
    Stage.colours(); Stage.typical(); Stage.frame();
    Object.assign(Stage.view, seen ? { x: seen.x, y: seen.y, k: seen.zoom * Stage.home.k } : Stage.home);
    open(shown.includes(state.tab) ? state.tab : shown[0]);
    Loop.ask();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { Stage.colours(); open(state.tab); Loop.ask(); });
  Loop.draw();
}
