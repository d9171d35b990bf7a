// A network of one input is a curve: its breakpoints are found exactly, as zeros of the neurons on the intervals between.
const Curve = (() => {
  let points = [];
  function breakpoints(w, low, high) {
    let cuts = [low, high];
    for (let l = 0; l < Model.depth - 1; l++) {
      if (Model.slopes[l] === 1) continue;
      const next = new Set(cuts);
      for (let k = 0; k + 1 < cuts.length; k++) {
        const a = Model.evaluate(w, [cuts[k]]).before, b = Model.evaluate(w, [cuts[k + 1]]).before;
        for (let i = 0, n = Model.first[l]; i < Model.widths[l + 1]; i++, n++) if (a[n] > 0 !== b[n] > 0 && a[n] !== b[n]) next.add(cuts[k] + (cuts[k + 1] - cuts[k]) * a[n] / (a[n] - b[n]));
      }
      cuts = [...next].sort((p, q) => p - q);
    }
    return cuts;
  }
  const span = (w) => { const reach = Stage.width / 2 / Stage.home.k, all = [...breakpoints(w, Stage.home.x - reach, Stage.home.x + reach).map((x) => value(w, x)), ...Stage.marks.map((m) => m[1])]; return [Math.min(...all), Math.max(...all)]; };
  const value = (w, x) => Model.evaluate(w, [x]).values[state.output];
  function paint() {
    const { ctx, top, tone, ratio, width: W, height: H } = Stage, w = Live.th;
    points = breakpoints(w, Stage.ux(0), Stage.ux(W));
    const [low, high] = span(Model.file), room = 0.7 * H / ((high - low) || 1), Y = (v) => H / 2 - (v - (low + high) / 2) * room;
    ctx.setTransform(1, 0, 0, 1, 0, 0); ctx.fillStyle = tone.card; ctx.fillRect(0, 0, W, H);
    ctx.strokeStyle = tone.line; ctx.lineWidth = ratio; ctx.beginPath(); ctx.moveTo(0, Y(0)); ctx.lineTo(W, Y(0)); ctx.stroke();
    ctx.strokeStyle = tone.plus; ctx.lineWidth = 3 * ratio; ctx.lineJoin = "round"; ctx.beginPath();
    const fine = (v) => Math.round(v * 64) / 64;
    points.forEach((x, k) => ctx[k ? "lineTo" : "moveTo"](fine(Stage.sx(x)), fine(Y(value(w, x)))));
    ctx.stroke();
    top.setTransform(1, 0, 0, 1, 0, 0); top.clearRect(0, 0, W, H);
    for (const [x, y] of Stage.marks) { const b = Stage.dot(y > data.middle[state.output]); top.drawImage(b, Math.round(Stage.sx(x) - b.width / 2), Math.round(Y(y) - b.width / 2)); }
    for (const x of points.slice(1, -1)) { top.beginPath(); top.arc(Stage.sx(x), Y(value(w, x)), 4 * ratio, 0, 7); top.fillStyle = tone.card; top.fill(); top.lineWidth = 2 * ratio; top.strokeStyle = tone.ink; top.stroke(); }
    const n = Stage.chosen >= 0 ? Stage.chosen : Stage.hover;
    if (n >= 0) for (const x of points.slice(1, -1)) if (Math.abs(Model.evaluate(w, [x]).before[n]) < 1e-9 * (1 + Math.abs(x))) { Stage.pen(tone.mark, 2.4); top.moveTo(Stage.sx(x), 0); top.lineTo(Stage.sx(x), H); top.stroke(); }
  }
  return { paint, count: () => Math.max(1, points.length - 1) };
})();
