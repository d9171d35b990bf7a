// Convex polygons, filled row by row into the pixels of the picture: a pixel has the colour of the piece that its centre lies in.
// Thousands of small paths cost the canvas more than their pixels; here a piece costs its rows, and neighbours leave no seam.
const Raster = (() => {
  let image = null, pixels = null, W = 0, H = 0, left = new Float64Array(0), right = new Float64Array(0);
  function begin(ctx, width, height, ground) {
    if (!image || width !== W || height !== H) {
      W = width; H = height;
      image = ctx.createImageData(W, H);
      pixels = new Uint32Array(image.data.buffer);
      left = new Float64Array(H); right = new Float64Array(H);
    }
    pixels.fill(ground);
  }
  const end = (ctx) => ctx.putImageData(image, 0, 0);
  // Corners X, Y of n; where base + across·x + down·y > 0 the colour is `plus`, elsewhere `minus`.
  function fill(X, Y, n, plus, minus, base, across, down) {
    let top = Infinity, low = -Infinity;
    for (let k = 0; k < n; k++) { if (Y[k] < top) top = Y[k]; if (Y[k] > low) low = Y[k]; }
    const from = Math.max(0, Math.ceil(top - 0.5)), to = Math.min(H - 1, Math.ceil(low - 0.5) - 1);
    if (to < from) return;
    for (let y = from; y <= to; y++) { left[y] = Infinity; right[y] = -Infinity; }
    for (let k = 0; k < n; k++) {
      const l = k + 1 === n ? 0 : k + 1, isDown = Y[k] < Y[l], a = isDown ? k : l, b = isDown ? l : k;  // always from above: both sides of an edge agree
      const first = Math.max(from, Math.ceil(Y[a] - 0.5)), final = Math.min(to, Math.ceil(Y[b] - 0.5) - 1);
      if (final < first) continue;
      const slope = (X[b] - X[a]) / (Y[b] - Y[a]);
      let x = X[a] + slope * (first + 0.5 - Y[a]);
      for (let y = first; y <= final; y++, x += slope) { if (x < left[y]) left[y] = x; if (x > right[y]) right[y] = x; }
    }
    for (let y = from; y <= to; y++) {
      const a = Math.max(0, Math.ceil(left[y] - 0.5)), b = Math.min(W, Math.ceil(right[y] - 0.5));
      if (b <= a) continue;
      if (plus === minus) { pixels.fill(plus, y * W + a, y * W + b); continue; }
      const here = base + down * (y + 0.5), zero = -here / across;  // f = here + across·x
      const turn = across === 0 ? (here > 0 === true ? b : a) : Math.min(b, Math.max(a, Math.ceil(zero - 0.5))), before = across === 0 ? plus : across > 0 ? minus : plus;
      pixels.fill(before, y * W + a, y * W + turn);
      pixels.fill(before === plus ? minus : plus, y * W + turn, y * W + b);
    }
  }
  return { begin, end, fill };
})();
