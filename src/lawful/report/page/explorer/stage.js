// The picture: pieces as facets, creases to drag, pan and zoom. One canvas shows the function, one lies over it.
const Stage = (() => {
  const back = byId("f"), over = byId("over"), ctx = back.getContext("2d", { alpha: false, willReadFrequently: true }), top = over.getContext("2d");
  const home = { x: 0, y: 0, k: 0 }, view = { x: 0, y: 0, k: 0 };
  let W = 0, H = 0, ratio = 1, shift = 0, coarse = 1, cost = 0, list = { count: 0 }, steepness = 0, chosen = -1, hover = -1, knob = null, act = null, pointer = null, locks = new Map(), marks = [];
  const tone = {};
  const plane = () => Plane.choices[state.plane][1];
  const sx = (x) => W / 2 + shift + (x - view.x) * view.k, sy = (y) => H / 2 - (y - view.y) * view.k;
  const ux = (X) => view.x + (X - W / 2 - shift) / view.k, uy = (Y) => view.y - (Y - H / 2) / view.k;
  const fine = (v) => Math.round(v * 64) / 64;  // the same bits for the same place, however it was computed

  function colours() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["paper", "card", "ink", "soft", "line", "mark", "plus", "minus", "lock", "void"]) tone[name] = style.getPropertyValue("--" + name).trim();
    tone.dark = style.colorScheme === "dark";
    dots.clear();
  }
  function size() {
    ratio = Math.min(3, devicePixelRatio || 1);
    const floats = getComputedStyle(byId("rail")).position === "absolute", w = Math.round(over.clientWidth * ratio), h = Math.round(over.clientHeight * ratio);
    if (w !== W || h !== H) { W = w; H = h; coarse = 1; for (const c of [back, over]) { c.width = w; c.height = h; } Still.forget(); }
    shift = floats ? -182 * ratio : 0;
    frame();
  }
  // The whole picture shows the data; the reader's zoom is kept relative to it.
  function frame() {
    const zoom = home.k ? view.k / home.k : 1, moved = home.k ? [view.x - home.x, view.y - home.y] : [0, 0];
    marks = Plane.single ? data.inputs.map((x, m) => [x[0], data.targets[m][state.output], m]) : Plane.marks(plane());
    const reach = (k) => { const v = marks.map((m) => m[k]); return v.length > 1 ? [Math.min(...v), Math.max(...v)] : [-2, 2]; };
    const [a, b] = reach(0), [c, d] = reach(1), wide = Math.max(b - a, 1e-6) * 1.5, high = Math.max(d - c, 1e-6) * 1.5;
    home.x = (a + b) / 2; home.y = (c + d) / 2;
    home.k = Plane.single ? (W + 2 * shift) / wide : Math.min((W + 2 * shift) / wide, H / high);
    view.k = home.k * zoom; view.x = home.x + moved[0]; view.y = home.y + moved[1];
  }
  // A colour as the four bytes of a pixel, lowest first (every browser's machine is little-endian).
  const packed = (hex) => { const full = hex.length === 4 ? hex.replace(/[^#]/g, "$&$&") : hex; return (255 << 24 | parseInt(full.slice(5, 7), 16) << 16 | parseInt(full.slice(3, 5), 16) << 8 | parseInt(full.slice(1, 3), 16)) >>> 0; };
  // sRGB's curve by a table of 4,096 steps, finer than a byte shows: three powers a facet would cost more than its pixels.
  const curve = Uint8Array.from({ length: 4097 }, (_, k) => { const v = k / 4096; return Math.round(255 * (v <= 0.0031308 ? 12.92 * v : 1.055 * v ** (1 / 2.4) - 0.055)); });
  const byte = (v) => curve[v <= 0 ? 0 : v >= 1 ? 4096 : 4096 * v + 0.5 | 0];
  function oklch(L, C, h) {
    const a = C * Math.cos(h), b = C * Math.sin(h), l = (L + 0.3963377774 * a + 0.2158037573 * b) ** 3, m = (L - 0.1055613458 * a - 0.0638541728 * b) ** 3, s = (L - 0.0894841775 * a - 1.291485548 * b) ** 3;
    return (255 << 24 | byte(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s) << 16 | byte(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s) << 8 | byte(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s)) >>> 0;
  }
  const LIGHT = [Math.cos(2.36), Math.sin(2.36)], HUE = [Math.sin(0.6), Math.cos(0.6)];  // directions of light and of the turn of hue
  // A facet lit from the upper left: hue by the sign of f, light by the direction of its slope. Constant on a piece.
  function shade(gx, gy, positive) {
    const slope = Math.sqrt(gx * gx + gy * gy), q = Math.tanh(0.55 * slope / steepness), cos = slope ? gx / slope : 1, sin = slope ? gy / slope : 0;
    const lit = (LIGHT[0] * cos + LIGHT[1] * sin) * q, h = (positive ? 4.16 : 0.52) + 0.34 * (HUE[0] * cos + HUE[1] * sin) * q;
    return tone.dark ? oklch(0.325 + 0.13 * lit + 0.02 * q, 0.045 + 0.085 * q, h) : oklch(0.855 - 0.115 * lit - 0.035 * q, 0.03 + 0.1 * q, h);
  }
  // The typical slope, from a fixed grid of places: it depends on the function, not on the part in view.
  function typical(w) {
    const reach = 0.4 * Math.min(W, H) / home.k, e = 1e-4 * reach, f = (a, b) => Model.evaluate(w, Plane.point(plane(), a, b)).values[state.output];
    let total = 0;
    for (let i = -2; i <= 2; i++) for (let j = -2; j <= 2; j++) { const x = home.x + i * reach / 2, y = home.y + j * reach / 2, v = f(x, y); total += Math.hypot(f(x + e, y) - v, f(x, y + e) - v) / e; }
    return Math.max(1e-12, total / 25);
  }
  const WIDTHS = [0.6, 0.8, 1.1, 1.5], INKS = [0.2, 0.36, 0.52, 0.7];  // of a crease, by how much the slope jumps over it
  const FLAT = 1e-7;  // of the typical slope: a smaller jump is rounding, and the function does not bend there
  // The edge from corner k to corner l.
  function segment(c, k, l) {
    const P = list.P;
    c.moveTo(fine(sx(P[2 * k])), fine(sy(P[2 * k + 1]))); c.lineTo(fine(sx(P[2 * l])), fine(sy(P[2 * l + 1])));
  }
  // Every crease once, from the side that knows its jump: its corner, and the next one of the same piece.
  function eachEdge(tell) {
    const { count, start, E, J } = list;
    for (let q = 0; q < count; q++) for (let begin = start[q], end = start[q + 1], k = begin; k < end; k++) if (E[k] >= 0 && J[k] >= 0) tell(k, k + 1 === end ? begin : k + 1);
  }
  const X = new Float64Array(4096), Y = new Float64Array(4096), values = new Float64Array(4096);
  // One piece: its pixels, and the ends of f = 0 on it for the thick line.
  function facet(q) {
    const { P, start } = list, begin = start[q], n = start[q + 1] - begin, gx = list.gx[q], gy = list.gy[q], c = list.c[q];
    const near = 1e-6 * Math.sqrt(gx * gx + gy * gy) / view.k;  // a corner within a millionth of a pixel of 0 is at 0, whichever way it was rounded
    let low = Infinity, high = -Infinity;
    for (let k = 0; k < n; k++) {
      const x = P[2 * (begin + k)], y = P[2 * (begin + k) + 1], v = gx * x + gy * y + c, value = v < near && v > -near ? 0 : v;
      X[k] = sx(x) / coarse; Y[k] = sy(y) / coarse; values[k] = value;
      if (value < low) low = value;
      if (value > high) high = value;
    }
    if (low >= 0 || high <= 0) { const tint = shade(gx, gy, low + high > 0); Raster.fill(X, Y, n, tint, tint, 0, 0, 0); return; }
    Raster.fill(X, Y, n, shade(gx, gy, true), shade(gx, gy, false), gx * ux(0) + gy * uy(0) + c, coarse * gx / view.k, -coarse * gy / view.k);
    for (let k = 0; k < n; k++) {
      const l = k + 1 === n ? 0 : k + 1, d = values[k], e = values[l];
      if (d === 0) zeros.push(X[k], Y[k]);
      else if (d > 0 !== e > 0 && e !== 0) { const u = d / (d - e); zeros.push(X[k] + u * (X[l] - X[k]), Y[k] + u * (Y[l] - Y[k])); }
    }
  }
  const zeros = [];
  let painted = [];  // what the picture below was made from: if nothing of it changed, only what lies over it is drawn again
  function paint() {
    if (!W || !H) return;
    if (!steepness || Training.playing) steepness = typical(Live.th);
    const step = Loop.moving && cost > SLOW ? 2 : 1;
    const now = [Live.th, view.x, view.y, view.k, W, H, shift, state.plane, state.output, steepness, tone.card, step];
    const isNew = Training.playing || now.some((each, k) => each !== painted[k]);
    painted = now;
    if (isNew) locks = Model.size <= 4000 ? Model.locked(Live.th) : new Map();
    if (Plane.single) return Curve.paint();
    if (isNew) resolution(step);
    if (isNew) pieces();
    overlay();
  }
  // A picture of so many pieces that a frame takes longer than this (ms) has half as many pixels each way while it moves,
  // and all of them again once the hand rests; polygons are exact either way.
  const SLOW = 11;
  function resolution(step) {
    if (step === coarse) return;
    coarse = step;
    back.width = Math.ceil(W / coarse); back.height = Math.ceil(H / coarse);
  }
  // All pixels of what is shown now, before they are compared.
  function refine() { if (coarse > 1) { Loop.rest(); paint(); } }
  function pieces() {
    const began = performance.now();
    const pad = 4 * ratio;
    list = Pieces.split(Live.th, plane(), [ux(-pad), uy(H + pad), ux(W + pad), uy(-pad)], 1 / view.k, state.output);
    zeros.length = 0;
    Raster.begin(ctx, back.width, back.height, packed(tone.card));
    for (let q = 0; q < list.count; q++) facet(q);
    const ink = tone.dark ? "#ffffff" : "#0c1a28", colour = packed(ink), { P, J } = list;
    // As in `eachEdge`, but without a call for each of some ten thousand edges.
    const { start, E } = list, q = 1 / coarse, grain = ratio * q;
    for (let piece = 0; piece < list.count; piece++) for (let begin = start[piece], end = start[piece + 1], k = begin; k < end; k++) {
      const jump = J[k] / steepness;
      if (E[k] < 0 || !(jump >= FLAT)) continue;
      const l = k + 1 === end ? begin : k + 1, level = jump < 0.08 ? 0 : jump < 0.35 ? 1 : jump < 1 ? 2 : 3;
      Raster.line(q * fine(sx(P[2 * k])), q * fine(sy(P[2 * k + 1])), q * fine(sx(P[2 * l])), q * fine(sy(P[2 * l + 1])), WIDTHS[level] * grain, colour, INKS[level]);
    }
    Raster.end(ctx);
    ctx.setTransform(1, 0, 0, 1, 0, 0); ctx.lineJoin = ctx.lineCap = "round"; ctx.strokeStyle = ink;
    ctx.lineWidth = 3 * grain; ctx.beginPath();
    for (let k = 0; k + 3 < zeros.length; k += 4) { ctx.moveTo(fine(zeros[k]), fine(zeros[k + 1])); ctx.lineTo(fine(zeros[k + 2]), fine(zeros[k + 3])); }  // f = 0 is the one thick line
    ctx.stroke();
    if (coarse === 1) cost += 0.3 * (performance.now() - began - cost);
  }
  function pen(style, width, dash = []) { top.strokeStyle = style; top.lineWidth = width * ratio; top.setLineDash(dash.map((v) => v * ratio)); top.beginPath(); }
  function crease(n, style, width, dash = []) {
    const hid = Model.hidden(Live.th);
    if (hid && hid.i === n) return straight(n, style, width, dash);
    pen(style, width, dash);
    eachEdge((k, l) => { if (list.E[k] === n) segment(top, k, l); });
    top.stroke(); top.setLineDash([]);
  }
  const line = (i) => { const F = Pieces.firstForms(Live.th, plane()), [a, b, c] = F.subarray(3 * i, 3 * i + 3), n = Math.hypot(a, b); if (!n) return null; const d = (a * view.x + b * view.y + c) / n; return { a: a / n, b: b / n, x: view.x - a / n * d, y: view.y - b / n * d }; };
  function straight(i, style, width, dash) {
    const at = line(i);
    if (!at) return;
    const R = 2 * (W + H) / view.k;
    pen(style, width, dash);
    top.moveTo(sx(at.x - at.b * R), sy(at.y + at.a * R)); top.lineTo(sx(at.x + at.b * R), sy(at.y - at.a * R));
    top.stroke(); top.setLineDash([]);
  }
  const dots = new Map();
  function dot(positive) {
    const key = positive + tone.plus + ratio;
    if (!dots.has(key)) {
      const c = document.createElement("canvas"), r = Math.ceil(5 * ratio), g = (c.width = c.height = 2 * r, c.getContext("2d"));
      g.arc(r, r, 3.6 * ratio, 0, 7); g.fillStyle = positive ? tone.plus : tone.minus; g.fill(); g.lineWidth = 1.3 * ratio; g.strokeStyle = tone.card; g.stroke();
      dots.set(key, c);
    }
    return dots.get(key);
  }
  function overlay() {
    top.setTransform(1, 0, 0, 1, 0, 0); top.clearRect(0, 0, W, H); top.lineCap = "round";
    for (const n of locks.keys()) crease(n, tone.lock, 2.2);
    pen(tone.ink, 1.8, [1.5, 5]);  // pieces of creases over which the function does not bend
    eachEdge((k, l) => { if (list.J[k] < FLAT * steepness) segment(top, k, l); });
    top.stroke(); top.setLineDash([]);
    const hid = Model.hidden(Live.th);
    if (hid) straight(hid.i, tone.ink, 2.4, [2, 6]);
    if (hover >= 0 && hover !== chosen) crease(hover, tone.mark, 3);
    const middle = data.middle[state.output];
    for (const [x, y, m] of marks) { const b = dot(data.targets[m][state.output] > middle); top.drawImage(b, Math.round(sx(x) - b.width / 2), Math.round(sy(y) - b.width / 2)); }
    knob = null;
    if (chosen < 0) return;
    crease(chosen, tone.card, 6.5); crease(chosen, tone.mark, 3.6);
    const at = Model.neurons[chosen][0] === 0 && given.widths[0] === 2 ? line(chosen) : null;
    if (!at) return;
    const r = 0.3 * Math.min(W + 2 * shift, H) / view.k;
    knob = { ax: at.x, ay: at.y, x: at.x - at.b * r, y: at.y + at.a * r };
    for (const [u, v, R] of [[knob.ax, knob.ay, 5], [knob.x, knob.y, 9]]) { top.beginPath(); top.arc(sx(u), sy(v), R * ratio, 0, 7); top.fillStyle = tone.card; top.fill(); top.lineWidth = 2.5 * ratio; top.strokeStyle = tone.mark; top.stroke(); }
  }

  // Gestures: what is touched is found from the neurons' own forms at the pointer, not from pixels.
  const spot = (x, y) => (Plane.single ? [x] : Plane.point(plane(), x, y));
  function hit(px, py, reach) {
    if (knob && Math.hypot(sx(knob.x) - px, sy(knob.y) - py) < (reach + 6) * ratio) return { turn: true, n: chosen };
    const x = ux(px), y = uy(py), e = 1e-3 / view.k, { before } = Model.evaluate(Live.th, spot(x, y));
    const right = Model.evaluate(Live.th, spot(x + e, y)).before, above = Plane.single ? before : Model.evaluate(Live.th, spot(x, y + e)).before;
    let best = reach * ratio, n = -1;
    before.forEach((value, k) => {
      const slope = Math.hypot(right[k] - value, above[k] - value) / e;
      if (!slope || Model.slopes[Model.neurons[k][0]] === 1) return;
      const far = Math.abs(value) / slope * view.k * (k === chosen ? 0.5 : 1);
      if (far < best) { best = far; n = k; }
    });
    return n < 0 ? null : { n, value: before[n] };
  }
  const place = (event) => { const r = over.getBoundingClientRect(); return [(event.clientX - r.left) * ratio, (event.clientY - r.top) * ratio]; };
  // A crease follows the pointer by its bias; a neuron without one is turned instead.
  function drag(n, x, y, value) {
    const [l, i] = Model.neurons[n], { before } = Model.evaluate(Live.th, spot(x, y));
    if (Model.offsets[l] < 0) return;
    Live.th = Live.th.slice();
    Live.th[Model.offsets[l] + i] += value - before[n];
    Live.edit();
  }
  function turn(n, angle, x, y) {
    const [, i] = Model.neurons[n], o = Model.starts[0] + 2 * i, C = Math.cos(angle), S = Math.sin(angle), w = Live.th = Live.th.slice(), [a, b] = [w[o], w[o + 1]];
    w[o] = C * a - S * b; w[o + 1] = S * a + C * b;
    if (Model.offsets[0] >= 0) w[Model.offsets[0] + i] = -(w[o] * x + w[o + 1] * y);
    Live.edit();
  }
  const fingers = new Map();
  over.addEventListener("touchstart", (event) => { const touch = event.touches[0], r = over.getBoundingClientRect(); if (event.touches.length > 1 || hit((touch.clientX - r.left) * ratio, (touch.clientY - r.top) * ratio, 16)) event.preventDefault(); }, { passive: false });
  over.addEventListener("pointerdown", (event) => {
    over.setPointerCapture(event.pointerId);
    const [px, py] = place(event);
    fingers.set(event.pointerId, [px, py]);
    if (fingers.size === 2) { act = { kind: "pinch" }; return; }
    const found = hit(px, py, event.pointerType === "touch" ? 16 : 9);
    if (found) { Training.stop(); Live.begin(); Still.hold(); chosen = found.n; act = { kind: found.turn ? "turn" : "drag", n: found.n, value: found.value || 0 }; }
    else act = { kind: "pan", px, py, x: view.x, y: view.y, moved: 0 };
    over.classList.add("held"); Loop.ask();
  });
  over.addEventListener("pointermove", (event) => {
    const [px, py] = place(event);
    pointer = [px, py];
    if (!act) { const found = hit(px, py, 9); over.classList.toggle("line", Boolean(found)); hover = found ? found.n : -1; Loop.ask(); return; }
    if (act.kind === "pinch") {
      if (fingers.size !== 2) return;
      const [a, b] = [...fingers.values()], before = Math.hypot(a[0] - b[0], a[1] - b[1]), from = [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
      fingers.set(event.pointerId, [px, py]);
      const [c, d] = [...fingers.values()], to = [(c[0] + d[0]) / 2, (c[1] + d[1]) / 2];
      view.x -= (to[0] - from[0]) / view.k; view.y += (to[1] - from[1]) / view.k;
      return zoom(Math.hypot(c[0] - d[0], c[1] - d[1]) / before, ...to);
    }
    if (act.kind === "pan") { act.moved++; view.x = act.x - (px - act.px) / view.k; if (!Plane.single) view.y = act.y + (py - act.py) / view.k; return moved(); }
    if (act.kind === "turn" && knob) return turn(act.n, Math.atan2(uy(py) - knob.ay, ux(px) - knob.ax) - Math.atan2(knob.y - knob.ay, knob.x - knob.ax), knob.ax, knob.ay);
    drag(act.n, ux(px), uy(py), act.value);
  });
  const up = (event) => { fingers.delete(event.pointerId); if (act && act.kind === "pan" && act.moved < 3) chosen = -1; if (fingers.size < 2) { act = null; over.classList.remove("held"); } Address.save(); Loop.ask(); };
  over.addEventListener("pointerup", up); over.addEventListener("pointercancel", up);
  over.addEventListener("pointerleave", () => { if (!act) { hover = -1; pointer = null; Loop.ask(); } });
  function zoom(factor, px = W / 2 + shift, py = H / 2) {
    const x = ux(px), y = uy(py);
    view.k = Math.min(home.k * 400, Math.max(home.k / 30, view.k * factor));
    view.x = x - (px - W / 2 - shift) / view.k;
    if (!Plane.single) view.y = y + (py - H / 2) / view.k;
    moved();
  }
  function moved() { Still.forget(); Address.save(); Loop.stir(); }
  function whole() { Object.assign(view, home); moved(); }
  over.addEventListener("wheel", (event) => { if (!(event.ctrlKey || event.metaKey || document.activeElement === over)) return; event.preventDefault(); zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), ...place(event)); }, { passive: false });
  over.addEventListener("keydown", (event) => {
    const arrow = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key], count = Model.neurons.length;
    if (arrow && !event.shiftKey) { const d = 0.06 * Math.min(W, H) / view.k; view.x += arrow[0] * d; view.y += arrow[1] * d; moved(); }
    else if (arrow && chosen >= 0) {
      const d = 0.02 * Math.min(W, H) / view.k, here = Model.evaluate(Live.th, spot(view.x, view.y)).before[chosen], there = Model.evaluate(Live.th, spot(view.x + arrow[0] * d, view.y + arrow[1] * d)).before[chosen];
      const [l, i] = Model.neurons[chosen];
      if (Model.offsets[l] < 0) return;
      Training.stop(); Live.begin();
      Live.th = Live.th.slice();
      Live.th[Model.offsets[l] + i] -= there - here || (arrow[0] + arrow[1]) * 0.03;
      Live.edit();
    } else if (/^Page(Up|Down)$/.test(event.key) && event.shiftKey && knob) { Training.stop(); Live.begin(); turn(chosen, event.key === "PageUp" ? 0.05 : -0.05, knob.ax, knob.ay); }
    else if (event.key === "+" || event.key === "=") zoom(1.3); else if (event.key === "-") zoom(1 / 1.3); else if (event.key === "0") whole();
    else if ((event.key === "]" || event.key === "[") && count) { choose((chosen + (event.key === "]" ? 1 : -1) + count + (chosen < 0 && event.key === "[" ? 1 : 0)) % count); byId("live").textContent = `${Model.name(chosen)} chosen`; }
    else if (event.key === "Escape") choose(-1); else if (event.key === " ") byId("play").click(); else return;
    event.preventDefault();
  });
  function choose(n) { chosen = n; Address.save(); Loop.ask(); }
  // The piece that holds a point, or −1.
  function pieceAt(x, y) {
    const { P, start, count } = list;
    for (let q = 0; q < count; q++) {
      let turn = 0, k = start[q];
      for (const end = start[q + 1]; k < end; k++) {
        const l = k + 1 === end ? start[q] : k + 1, c = (P[2 * l] - P[2 * k]) * (y - P[2 * k + 1]) - (P[2 * l + 1] - P[2 * k + 1]) * (x - P[2 * k]);
        if (c !== 0 && turn && c > 0 !== turn > 0) break;
        turn = c || turn;
      }
      if (k === start[q + 1]) return q;
    }
    return -1;
  }
  // What is under the pointer, in words.
  function say() {
    const box = byId("say"), count = Plane.single ? Curve.count() : Pieces.regions(Live.th, plane(), list), noun = count === 1 ? "piece" : "pieces";
    if (!pointer) { box.replaceChildren(node("b", { text: count.toLocaleString("en") }), ` ${noun} in view; on each the network is affine. Point at one to read its formula.`); return; }
    const x = ux(pointer[0]), y = uy(pointer[1]), n = act && act.n >= 0 ? act.n : hover, value = Model.evaluate(Live.th, spot(x, y)).values[state.output];
    const q = Plane.single ? -1 : pieceAt(x, y), sign = (v) => (v < 0 ? " − " : " + ") + short(Math.abs(v));
    const words = [];
    if (n >= 0) words.push(node("b", { text: Model.name(n) }), `: its crease${locks.has(n) ? ", sign locked" : ""}. `);
    if (q >= 0) words.push(`Here f = ${short(list.gx[q])} x${sign(list.gy[q])} y${sign(list.c[q])} = `, node("b", { text: short(value) }));
    else words.push(`f(${short(x)}) = `, node("b", { text: short(value) }));
    box.replaceChildren(...words);
  }
  return { view, home, paint, refine, size, frame, colours, zoom, whole, choose, say, tone, ctx, top, pen, dot, sx, sy, ux, uy, typical: () => { steepness = 0; },
    get list() { return list; }, get chosen() { return chosen; }, get hover() { return hover; }, set hover(n) { hover = n; }, get locks() { return locks; }, get width() { return W; }, get height() { return H; }, get ratio() { return ratio; }, get marks() { return marks; }, get busy() { return Boolean(act); } };
})();
