// Balances as bars, each with a mark where it started: training by gradient flow keeps them, others drift (the red gap).
const Bars = (() => {
  const svg = byId("bars"), MOST = 96, shown = Math.min(MOST, Model.neurons.length);
  let start = Model.balances(Live.th), made = [], drawn = [], wide = 0, rows = [], reach = 1, tall = 0, half = 70;
  const S = (tag, attributes, parent) => { const each = document.createElementNS("http://www.w3.org/2000/svg", tag); for (const key in attributes) each.setAttribute(key, attributes[key]); parent.append(each); return each; };
  const flat = (c) => (Number.isNaN(c) ? 0 : Math.tanh(1.4 * c / reach) / Math.tanh(1.4));  // large balances stay in the picture, infinite ones too
  const middle = (r) => 12 + half + r * (2 * half + 34);
  const y = (c, r) => middle(r) - half * Math.max(-1.05, Math.min(1.05, flat(c)));
  const valueAt = (Y, r) => Math.atanh(Math.max(-0.88, Math.min(0.88, (middle(r) - Y) / half * Math.tanh(1.4)))) * reach / 1.4;
  function build() {
    const now = Math.round(svg.clientWidth || svg.parentNode.clientWidth - 34);
    if (now === wide || now < 50 || !shown) return;
    wide = now;
    const fit = Math.max(1, Math.floor((wide - 44) / 20)), count = Math.min(3, Math.ceil(shown / fit));  // rows of equal length
    const per = Math.ceil(shown / count), step = Math.min(40, (wide - 44) / per);
    half = shown > per ? 70 : 110;
    reach = Math.max(1e-9, ...Model.balances(Model.file).map(Math.abs).filter(Number.isFinite));
    rows = Array.from({ length: Math.ceil(shown / per) }, (_, r) => r);
    tall = middle(rows.length - 1) + half + 30;
    svg.setAttribute("viewBox", `0 0 ${wide} ${tall}`); svg.replaceChildren(); made = []; drawn = [];
    for (const r of rows) for (const c of [-reach, 0, reach]) { S("line", { class: "axis", x1: 40, x2: wide, y1: y(c, r), y2: y(c, r) }, svg); S("text", { x: 36, y: y(c, r) + 4, "text-anchor": "end" }, svg).textContent = short(c, 2); }
    for (let n = 0; n < shown; n++) {
      const r = Math.floor(n / per), x = 44 + (n % per) * step, [l, i] = Model.neurons[n];
      if (i === 0 || n % per === 0) { if (step * Math.min(Model.widths[l + 1] - i, per - (n % per)) > 46) S("text", { x, y: middle(r) + half + 18 }, svg).textContent = `layer ${l + 1}`; }
      const group = S("g", { role: "slider", tabindex: n ? -1 : 0, "aria-label": `balance of ${Model.name(n)}`, "aria-valuemin": (-8 * reach).toPrecision(3), "aria-valuemax": (8 * reach).toPrecision(3) }, svg);
      const bar = S("rect", { class: "b", x: x + step * 0.16, width: step * 0.68, rx: 2 }, group), gap = S("line", { class: "gap", x1: x + step / 2, x2: x + step / 2 }, group), was = S("line", { class: "was", x1: x + 1, x2: x + step - 1 }, group);
      S("rect", { class: "hit", x, y: middle(r) - half - 4, width: step, height: 2 * half + 8, rx: 4 }, group);
      const title = S("title", {}, group);
      made.push({ group, bar, gap, was, title, r });
      let held = false;
      const set = (event) => { const box = svg.getBoundingClientRect(); move(n, valueAt((event.clientY - box.top) / box.height * tall, r)); };
      group.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false });
      group.addEventListener("pointerdown", (event) => { held = true; Training.stop(); Live.begin(); Still.hold(); group.setPointerCapture(event.pointerId); Stage.choose(n); set(event); event.preventDefault(); });
      group.addEventListener("pointermove", (event) => { if (held) set(event); else if (Stage.hover !== n) { Stage.hover = n; Loop.ask(); } });
      group.addEventListener("pointerup", () => { held = false; Address.save(); });
      group.addEventListener("pointerleave", () => { Stage.hover = -1; Loop.ask(); });
      group.addEventListener("keydown", (event) => {
        const by = { ArrowUp: 0.05, ArrowDown: -0.05 }[event.key], to = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (by) { event.preventDefault(); Training.stop(); Live.begin(); Still.hold(); Stage.choose(n); move(n, Model.balances(Live.th)[n] + by * reach); }
        if (to) { event.preventDefault(); const next = (n + to + shown) % shown; made[n].group.setAttribute("tabindex", -1); made[next].group.setAttribute("tabindex", 0); made[next].group.focus(); }
      });
    }
    byId("more").textContent = Model.neurons.length > shown ? `The first ${shown} of ${Model.neurons.length.toLocaleString("en")} neurons.` : "";
  }
  // Rescale one neuron to a balance: with squared sides A and B, a² solves A a² − B / a² = c.
  function move(n, c) {
    const [A, B] = Model.sides(Live.th, n);
    if (!(A > 1e-12 && B > 1e-12)) return;
    Live.th = Live.th.slice();
    Model.rescale(Live.th, n, Math.sqrt((c + Math.sqrt(c * c + 4 * A * B)) / (2 * A)));
    start[n] = Model.balances(Live.th)[n];
    Live.edit(true);
  }
  function paint() {
    if (!made.length) return;
    const c = Model.balances(Live.th);
    made.forEach(({ group, bar, gap, was, title, r }, n) => {
      const lock = Stage.locks.get(n), now = [c[n], start[n], lock, n === Stage.chosen];
      if (drawn[n] && now.every((each, k) => each === drawn[n][k])) return;
      drawn[n] = now;
      const top = y(c[n], r), zero = y(0, r), from = y(start[n], r);
      bar.setAttribute("y", Math.min(top, zero)); bar.setAttribute("height", Math.max(1, Math.abs(top - zero)));
      bar.setAttribute("class", "b" + (lock !== undefined ? " lock" : c[n] < 0 ? " neg" : ""));
      was.setAttribute("y1", from); was.setAttribute("y2", from); gap.setAttribute("y1", from); gap.setAttribute("y2", top);
      gap.style.display = Math.abs(top - from) > 1.5 ? "" : "none";
      group.classList.toggle("on", n === Stage.chosen); group.setAttribute("aria-valuenow", c[n].toPrecision(4));
      const words = `${Model.name(n)}: balance ${short(c[n])}` + (lock !== undefined ? `, a weight of it stays ${short(lock)} away from 0` : "");
      if (title.textContent !== words) title.textContent = words;
    });
  }
  const drift = () => Model.balances(Live.th).reduce((most, c, n) => Math.max(most, Math.abs(c - start[n])), 0);
  return { build, paint, drift, restart: () => { start = Model.balances(Live.th); } };
})();
