// Training in the browser, from one random start: gradient flow (fourth-order Runge–Kutta), SGD, momentum, Adam.
const Training = (() => {
  const RULES = { flow: "gradient flow", sgd: "SGD", momentum: "momentum", adam: "Adam" }, LONGEST = 600, past = {};
  const total = data.inputs.length, batch = Math.max(1, Math.min(total, 20));
  let rule = "flow", playing = false, run = null, seed = 1, now = NaN;
  const G = new Float64Array(Model.size), K = [0, 1, 2, 3].map(() => new Float64Array(Model.size)), T = new Float64Array(Model.size);
  const choices = byId("opt");
  for (const [key, words] of Object.entries(RULES)) {
    const input = node("input", { type: "radio", name: "o", id: `o-${key}`, value: key }), label = node("label", { for: `o-${key}`, text: words });
    label.style.setProperty("--c", `var(--${key})`);
    input.checked = key === rule;
    choices.append(node("span", {}, input, label));
  }
  choices.addEventListener("change", (event) => { rule = event.target.value; run = null; if (playing) start(); Address.save(); });
  function fresh(z) {
    let s = z * 7919 + 13;
    const gauss = () => { let u = 0; for (let k = 0; k < 12; k++) { s = (s * 16807) % 2147483647; u += s / 2147483647; } return u - 6; };
    return Float64Array.from(places, ({ layer, column }) => gauss() * (column < 0 ? 0.3 : Math.sqrt(1.6 / given.widths[layer])));
  }
  function start() {
    Live.begin(); Live.th = fresh(seed); Live.base = Live.th.slice(); Live.s = Live.t = 0; Live.kept = false;
    Bars.restart(); run = { k: 0, v: new Float64Array(Model.size), q: new Float64Array(Model.size), drift: [] }; past[rule] = run.drift;
    playing = true; Stage.choose(-1); Still.forget(); byId("play").textContent = "❚❚ Pause"; Loop.ask();
  }
  function stop() { if (playing) { playing = false; byId("play").textContent = "▶ Go on"; Live.edit(); Address.save(); } }
  byId("play").addEventListener("click", () => { if (playing) return stop(); if (!run) return start(); playing = true; byId("play").textContent = "❚❚ Pause"; Loop.ask(); });
  byId("seed").addEventListener("click", () => { seed++; for (const key in past) delete past[key]; run = null; start(); });
  const rate = byId("lr"), step = () => 10 ** Number(rate.value);
  rate.addEventListener("input", () => { byId("lro").textContent = short(step()); Address.save(); });
  byId("lro").textContent = short(step());
  function train() {
    const lr = step(), began = performance.now(), w = Live.th = Live.th.slice();
    for (let n = 0; n < 4 && performance.now() - began < 8; n++) {
      run.k++;
      if (rule === "flow") {
        const h = Math.min(0.06, lr * 0.5);
        now = Model.loss(w, K[0], 0, total);
        for (let r = 1; r < 4; r++) { const f = r === 3 ? h : h / 2; for (let k = 0; k < Model.size; k++) T[k] = w[k] - f * K[r - 1][k]; Model.loss(T, K[r], 0, total); }
        for (let k = 0; k < Model.size; k++) w[k] -= h / 6 * (K[0][k] + 2 * K[1][k] + 2 * K[2][k] + K[3][k]);
      } else {
        now = Model.loss(w, G, (run.k * batch) % total, batch);
        for (let k = 0; k < Model.size; k++) {
          const g = G[k];
          if (rule === "sgd") w[k] -= lr * g;
          else if (rule === "momentum") { run.v[k] = 0.9 * run.v[k] - lr * 0.3 * g; w[k] += run.v[k]; }
          else { run.v[k] = 0.9 * run.v[k] + 0.1 * g; run.q[k] = 0.999 * run.q[k] + 0.001 * g * g; w[k] -= lr * 0.15 * (run.v[k] / (1 - 0.9 ** run.k)) / (Math.sqrt(run.q[k] / (1 - 0.999 ** run.k)) + 1e-8); }
        }
      }
    }
    Live.base = w;
    run.drift.push(Bars.drift());
    const broken = !w.every(Number.isFinite);
    if (broken) { Live.undo(); byId("live").textContent = "the steps were too large: the weights became infinite"; }
    if (broken || run.drift.length >= LONGEST) { stop(); run = null; byId("play").textContent = "▶ Train"; }
    if (!run || run.drift.length % 6 === 0) chart();
  }
  // Largest drift of a balance, on a log scale; a line is named at its end.
  function chart() {
    const svg = byId("drift"), wide = Math.round(svg.clientWidth || 300), right = wide - 132, S = (tag, attributes, words) => { const each = document.createElementNS("http://www.w3.org/2000/svg", tag); for (const key in attributes) each.setAttribute(key, attributes[key]); if (words !== undefined) each.textContent = words; svg.append(each); };
    svg.setAttribute("viewBox", `0 0 ${wide} 168`); svg.replaceChildren();
    const runs = Object.keys(RULES).filter((key) => past[key]?.length), x = (k) => 40 + k / LONGEST * (right - 40), y = (v) => 10 + (1 - (Math.log10(Math.min(10, Math.max(v, 1e-9))) + 9) / 10) * 128;
    if (!runs.length) {
      S("rect", { x: 0.5, y: 0.5, width: wide - 1, height: 150, rx: 8, fill: "none", stroke: "var(--line)", "stroke-dasharray": "4 4" });
      ["No run yet. Press Train: gradient flow", `keeps every balance, the others drift.`].forEach((words, k) => S("text", { x: wide / 2, y: 70 + 18 * k, "text-anchor": "middle" }, words));
      return;
    }
    for (const p of [-8, -5, -2, 1]) { S("line", { class: "axis", x1: 40, x2: right, y1: y(10 ** p), y2: y(10 ** p) }); S("text", { x: 36, y: y(10 ** p) + 4, "text-anchor": "end" }, short(10 ** p)); }
    S("text", { x: 40, y: 164 }, "largest drift of a balance →");
    const ends = runs.map((key) => { const h = past[key]; S("path", { d: h.map((v, k) => (k ? "L" : "M") + x(k).toFixed(1) + " " + y(v).toFixed(1)).join(""), fill: "none", stroke: `var(--${key})`, "stroke-width": 2.5, "stroke-linejoin": "round" }); return [key, y(h.at(-1)), h.at(-1)]; }).sort((a, b) => a[1] - b[1]);
    let last = -99;
    for (const [key, at, v] of ends) { last = Math.max(at, last + 16); S("text", { x: right + 6, y: last + 4, style: `fill:var(--${key});font-weight:600` }, `${RULES[key]} ${short(v, 1)}`); }
  }
  let measured = null;  // the weights of which `now` is the loss
  function words() {
    if (!playing && measured !== Live.th) { measured = Live.th; now = Model.loss(Live.th, G, 0, total); }
    if (playing) measured = null;
    byId("loss").textContent = short(now); byId("steps").textContent = (run ? run.k : 0).toLocaleString("en");
    byId("dr").textContent = short(Bars.drift(), 1);
  }
  return { train, stop, start, chart, words, past, get playing() { return playing; }, get rule() { return rule; }, choose(key) { if (RULES[key]) { rule = key; byId(`o-${key}`).checked = true; } } };
})();
