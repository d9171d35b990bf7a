// Whether the picture moved: its pixels when the gesture began against those now, read back when the hand rests.
const Still = (() => {
  let kept = null, weights = null, timer = 0;
  const seen = { pixels: 0, weights: 0, of: 0 };
  function hold() { if (Stage.width && Stage.height) { Stage.refine(); kept = Stage.ctx.getImageData(0, 0, Stage.width, Stage.height); weights = Live.th.slice(); } }
  function compare() {
    if (!kept || kept.width !== Stage.width || kept.height !== Stage.height) return 0;
    Stage.refine();
    const a = new Uint32Array(kept.data.buffer), b = new Uint32Array(Stage.ctx.getImageData(0, 0, Stage.width, Stage.height).data.buffer);
    let pixels = 0, changed = 0;
    for (let k = 0; k < a.length; k++) if (a[k] !== b[k]) pixels++;
    for (let k = 0; k < Model.size; k++) if (weights[k] !== Live.th[k]) changed++;
    Object.assign(seen, { pixels, weights: changed, of: a.length });
    byId("px").textContent = pixels.toLocaleString("en");
    byId("px").style.color = pixels ? "var(--void)" : "var(--good)";
    byId("of").textContent = `of ${a.length.toLocaleString("en")} pixels changed`;
    byId("wm").textContent = changed.toLocaleString("en");
    return pixels;
  }
  function soon() { clearTimeout(timer); timer = setTimeout(compare, 90); }
  function forget() { kept = null; byId("px").textContent = byId("wm").textContent = "0"; byId("px").style.color = ""; byId("of").textContent = "pixels changed"; }
  return { hold, compare, soon, forget, seen, ready: () => { if (!kept) hold(); } };
})();
