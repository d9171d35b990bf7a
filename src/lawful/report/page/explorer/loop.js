// One frame for everything that changed since the last.
const Loop = (() => {
  const SMALL = 1000, AGAIN = 90, REST = 70;  // weights that cost nothing to draw; ms between tables while moving, and until it rests
  let asked = false, swaying = 0, moving = false, stirred = false, tables = -1e9, resting = 0;
  function ask() { if (!asked) { asked = true; requestAnimationFrame(draw); } }
  function draw() {
    asked = false;
    byId("still").style.visibility = Training.playing ? "hidden" : "";
    if (Training.playing) Training.train();
    Stage.paint(); Bars.paint(); Stage.say(); sliders();
    // The hand follows the picture: what stands beside it may lag a tenth of a second, but for evidence that becomes void.
    const now = performance.now(), all = !moving || Model.size < SMALL || now - tables > AGAIN;
    Evidence.show(all);
    if (all) { Weights.paint(); Training.words(); tables = now; }
    if (Training.playing) ask();
    else if (stirred) { clearTimeout(resting); resting = setTimeout(() => { const again = moving; rest(); if (again) ask(); }, REST); }  // from the end of a frame: a slow one is no rest
  }
  // Something changed: one change is drawn in full at once, the next ones as quickly as they come.
  function stir() { moving = stirred; stirred = true; ask(); }
  function rest() { moving = stirred = false; clearTimeout(resting); }
  function sliders() {
    const s = byId("s"), t = byId("t"), crease = Model.hidden(Live.base);
    if (document.activeElement !== s || Number(s.value) !== Live.s) s.value = Live.s;
    t.disabled = !crease;
    t.min = crease ? Math.max(-2.5, 0.999 * crease.low) : 0;
    t.max = crease ? 1.5 * Math.hypot(...given.weights[0][crease.i]) : 1;
    t.value = Live.t;
    byId("hn").textContent = crease ? `of h1.${crease.i}` : "";
    byId("to").textContent = crease ? (Live.t < 0 ? "−" : "+") + Math.abs(Live.t).toFixed(2) : "none";
    byId("tn").textContent = crease ? "The dotted crease belongs to a neuron that the next layer hides: it moves, and the function shows no trace of it."
      : "No crease is hidden here. A first-layer neuron hides its crease if every neuron that it feeds has a negative bias, a positive weight for it, and no positive weight for any other.";
    byId("undo").disabled = !Live.past.length;
  }
  let slid = 0;
  const slide = (s, t) => { const now = performance.now(); if (now - slid > 800) Live.begin(); slid = now; Training.stop(); Still.ready(); Live.slide(s, t); };
  byId("s").addEventListener("input", (event) => slide(Number(event.target.value), Live.t));
  byId("t").addEventListener("input", (event) => slide(Live.s, Number(event.target.value)));
  byId("sway").addEventListener("click", () => {
    const button = byId("sway");
    if (swaying) { cancelAnimationFrame(swaying); swaying = 0; button.textContent = "▶"; Address.save(); return; }
    Live.begin(); Training.stop(); Still.ready(); button.textContent = "❚❚";
    let phase = Math.asin(Math.max(-1, Math.min(1, Live.s))), last = performance.now(), frames = 0;
    const go = (now) => { phase += (now - last) / 900; last = now; Live.slide(Math.sin(phase), Live.t); if (++frames % 8 === 0) Still.compare(); swaying = requestAnimationFrame(go); };
    swaying = requestAnimationFrame(go);
  });
  byId("undo").addEventListener("click", () => { Training.stop(); Live.undo(); });
  byId("reset").addEventListener("click", () => { Training.stop(); Live.begin(); Live.reset(); Stage.typical(); Stage.choose(-1); Still.forget(); Bars.restart(); });
  byId("in").addEventListener("click", () => Stage.zoom(1.5)); byId("out").addEventListener("click", () => Stage.zoom(1 / 1.5)); byId("home").addEventListener("click", Stage.whole);
  byId("share").addEventListener("click", () => { Address.write(); copied(location.href, byId("share")); });
  byId("theme").addEventListener("click", () => { document.documentElement.dataset.theme = Stage.tone.dark ? "light" : "dark"; Stage.colours(); Training.chart(); Address.save(); ask(); });
  addEventListener("keydown", (event) => { if ((event.ctrlKey || event.metaKey) && event.key === "z") { event.preventDefault(); byId("undo").click(); } });
  Live.listeners.push(() => { if (!Training.playing && Live.past.length === 0) Bars.restart(); Address.save(); Still.soon(); stir(); });
  return { ask, draw, stir, rest, get moving() { return moving || Training.playing; } };
})();
