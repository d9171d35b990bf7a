// The whole state lives in the address, so a link shows what its sender saw: the same bits, the same view.
const Address = (() => {
  let timer = 0;
  const plain = { tab: String, law: Number, step: Number, neuron: String, walk: Number, output: Number, plane: Number };
  const standard = { ...state };
  const encode = (w) => { let text = ""; new Uint8Array(w.slice().buffer).forEach((v) => { text += String.fromCharCode(v); }); return btoa(text).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, ""); };
  function decode(text) {
    try {
      const raw = Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0)), w = new Float64Array(raw.buffer);
      return w.length === Model.size && w.every(Number.isFinite) ? w : null;
    } catch { return null; }
  }
  function write() {
    clearTimeout(timer);
    const q = new URLSearchParams(), { view, home } = Stage, zoom = view.k / home.k;
    if (view.x !== home.x || view.y !== home.y || zoom !== 1) q.set("v", [view.x, view.y, zoom].map((v) => +v.toPrecision(6)).join());
    if (Live.s) q.set("s", +Live.s.toFixed(4));
    if (Live.t) q.set("t", +Live.t.toFixed(4));
    if (Stage.chosen >= 0) q.set("n", Stage.chosen);
    if (Training.rule !== "flow") q.set("o", Training.rule);
    if (document.documentElement.dataset.theme) q.set("theme", document.documentElement.dataset.theme);
    for (const key in plain) if (state[key] !== standard[key]) q.set(key, state[key]);
    if (Live.base.some((v, k) => v !== Model.file[k])) q.set("w", encode(Live.base));
    try { history.replaceState(null, "", "#" + q); } catch { /* some viewers forbid it */ }
  }
  function save() { clearTimeout(timer); timer = setTimeout(write, 250); }
  const inside = (value, count) => (Number.isInteger(value) && value >= 0 && value < count ? value : 0);
  function read(hash = location.hash) {
    clearTimeout(timer);
    Object.assign(state, standard);
    let q = new URLSearchParams(hash.slice(1));
    try { if (/^#(%7B|\{)/i.test(hash)) q = new URLSearchParams(Object.entries(JSON.parse(decodeURIComponent(hash.slice(1))))); } catch { /* no state */ }
    for (const key in plain) { const value = plain[key](q.get(key)); if (q.has(key) && !Number.isNaN(value)) state[key] = value; }
    state.law = inside(state.law, data.laws.length); state.output = inside(state.output, given.widths.at(-1)); state.plane = inside(state.plane, Plane.choices.length);
    state.step = Math.min(0, Math.max(-3.5, state.step)); state.walk = Math.min(1, Math.max(0, state.walk));
    if (["light", "dark"].includes(q.get("theme"))) document.documentElement.dataset.theme = q.get("theme");
    const own = q.has("w") ? decode(q.get("w")) : null, number = (key, most) => { const v = Number(q.get(key)); return Number.isFinite(v) ? Math.min(most, Math.max(-most, v)) : 0; };
    Live.base = own ?? Model.file.slice(); Live.kept = !own;
    Live.s = number("s", 1); Live.t = number("t", 1e6);
    const crease = Model.hidden(Live.base);
    Live.t = crease ? Math.max(0.999 * crease.low, Live.t) : 0;
    Live.th = Model.fiber(Live.base, Live.s, Live.t);
    Training.choose(q.get("o"));
    Bars.restart();
    const n = Number(q.get("n"));
    Stage.choose(q.has("n") && Number.isInteger(n) && n >= 0 && n < Model.neurons.length ? n : -1);
    const [x, y, zoom] = (q.get("v") || "").split(",").map(Number);
    return zoom > 0 && [x, y, zoom].every(Number.isFinite) ? { x, y, zoom } : null;
  }
  return { save, write, read, encode };
})();
