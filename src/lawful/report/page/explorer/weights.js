// All weights as squares: the first layer's neurons are columns, which the second layer's rows continue; others are rows.
const Weights = (() => {
  const canvas = byId("plan"), pen = canvas.getContext("2d"), LEFT = 22, GAP = 14;
  const spots = new Float64Array(2 * Model.size);
  let cell = 12, wide = 0, scale = 1, pick = null, painted = [];  // what the squares show now
  const blocks = given.weights.map((_, l) => (l === 0 && given.weights.length > 1
    ? { l, rows: given.widths[0], columns: given.widths[1], flipped: true } : { l, rows: given.widths[l + 1], columns: given.widths[l], flipped: false }));
  const across = Math.max(...blocks.map((b) => b.columns + (b.flipped ? 0 : Model.offsets[b.l] >= 0 ? 1.45 : 0)));
  const rowsOf = (b) => b.rows + (b.flipped && Model.offsets[b.l] >= 0 ? 1 : 0);
  function size() {
    wide = canvas.clientWidth || 300;
    cell = Math.max(0.3, Math.min(16, (wide - LEFT - 2) / across));
    let y = GAP;
    for (const b of blocks) { b.y = y; y += rowsOf(b) * cell + GAP; }
    canvas.style.height = `${Math.min(y, 900)}px`;
    canvas.width = Math.round(wide * Stage.ratio); canvas.height = Math.round(Math.min(y, 900) * Stage.ratio);
    painted = [];  // a canvas that is given a size is empty, even if the size is the one that it had
    scale = Model.file.reduce((most, v) => Math.max(most, Math.abs(v)), 1e-12);
    for (let k = 0; k < Model.size; k++) [spots[2 * k], spots[2 * k + 1]] = box(k);
  }
  // Where a weight is drawn.
  function box(k) {
    const { layer, row, column } = places[k], b = blocks[layer];
    if (b.flipped) return [LEFT + row * cell, b.y + (column < 0 ? b.rows : column) * cell];
    return [LEFT + (column < 0 ? b.columns + 0.45 : column) * cell, b.y + row * cell];
  }
  const rgb = (c) => { const full = c.length === 4 ? c.replace(/[^#]/g, "$&$&") : c; return [1, 3, 5].map((k) => parseInt(full.slice(k, k + 2), 16)); };
  let ramp = [], inked = "";  // colours from −48 to 48, mixed once for a theme
  const level = (v) => 48 + Math.round(48 * Math.min(1, Math.sqrt(Math.abs(v) / scale))) * (v < 0 ? -1 : 1);
  const first = new Int32Array(97), next = new Int32Array(Model.size);  // squares of one colour, as a list: changing the pen costs more than a square
  function squares(side) {
    if (inked !== Stage.tone.plus) {
      inked = Stage.tone.plus;
      const ground = rgb(Stage.tone.card), ends = [rgb(Stage.tone.minus), rgb(Stage.tone.plus)];
      ramp = Array.from({ length: 97 }, (_, k) => `rgb(${ends[+(k > 48)].map((x, c) => Math.round(ground[c] + (x - ground[c]) * Math.abs(k - 48) / 48)).join(" ")})`);
    }
    first.fill(-1);
    for (let k = 0; k < Model.size; k++) if (spots[2 * k + 1] < 900) { const c = level(Live.th[k]); next[k] = first[c]; first[c] = k; }
    for (let c = 0; c < 97; c++) if (first[c] >= 0) { pen.fillStyle = ramp[c]; for (let k = first[c]; k >= 0; k = next[k]) pen.fillRect(spots[2 * k], spots[2 * k + 1], side, side); }
  }
  function paint() {
    const n = Stage.chosen >= 0 ? Stage.chosen : Stage.hover, now = [Live.th, Stage.tone.plus, n, Stage.locks, canvas.width, canvas.height];
    if (!Training.playing && now.every((each, k) => each === painted[k])) return;
    painted = now;
    pen.setTransform(Stage.ratio, 0, 0, Stage.ratio, 0, 0); pen.clearRect(0, 0, wide, 2000);
    const side = cell > 4 ? cell - 1 : cell;
    squares(side);
    pen.lineWidth = 2; pen.strokeStyle = Stage.tone.lock;
    const mark = (n) => { const [l, i] = Model.neurons[n], b = blocks[l]; if (b.flipped) pen.strokeRect(LEFT + i * cell - 1, b.y - 1, cell + 1, rowsOf(b) * cell + 1); else pen.strokeRect(LEFT - 1, b.y + i * cell - 1, (b.columns + 1.45) * cell + 1, cell + 1); };
    for (const n of Stage.locks.keys()) mark(n);
    if (n >= 0) { pen.strokeStyle = Stage.tone.mark; mark(n); }
    pen.fillStyle = Stage.tone.soft; pen.font = "12px system-ui, sans-serif";
    for (const b of blocks) pen.fillText(`layer ${b.l + 1}: ${b.flipped ? "a column" : "a row"} is a neuron`, LEFT, b.y - 3);
  }
  function at(event) {
    const r = canvas.getBoundingClientRect(), x = event.clientX - r.left, y = event.clientY - r.top;
    for (let k = 0; k < Model.size; k++) { const [a, b] = spots.subarray(2 * k, 2 * k + 2); if (x >= a && x < a + cell && y >= b && y < b + cell) return k; }
    return -1;
  }
  canvas.addEventListener("pointerdown", (event) => {
    const k = at(event);
    if (k < 0) return;
    const { layer, row } = places[k];
    Stage.choose(layer < Model.depth - 1 ? Model.first[layer] + row : -1);
    pick = { k, y: event.clientY, value: Live.th[k], begun: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!pick || (!pick.begun && Math.abs(event.clientY - pick.y) < 4)) return;
    if (!pick.begun) { pick.begun = true; Training.stop(); Live.begin(); Still.hold(); }
    Live.put(pick.k, pick.value - (event.clientY - pick.y) * 0.006 * scale);
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { pick = null; Address.save(); });
  return { size, paint };
})();
