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
      if (plus === minus) { row(y * W + a, y * W + b, plus); continue; }
      const here = base + down * (y + 0.5), zero = -here / across;  // f = here + across·x
      const turn = across === 0 ? (here > 0 === true ? b : a) : Math.min(b, Math.max(a, Math.ceil(zero - 0.5))), before = across === 0 ? plus : across > 0 ? minus : plus;
      row(y * W + a, y * W + turn, before);
      row(y * W + turn, y * W + b, before === plus ? minus : plus);
    }
  }
  // Most rows of small pieces are a few pixels: a loop is quicker than a call.
  function row(from, to, colour) { if (to - from > 24) pixels.fill(colour, from, to); else for (let k = from; k < to; k++) pixels[k] = colour; }
  // A straight line of some width, mixed into the pixels by how much of each it covers: column by column, or row by row where
  // it is steep. The canvas would stroke thousands of edges for longer than everything else takes together.
  function line(x0, y0, x1, y1, width, ink, strength) {
    const steep = Math.abs(y1 - y0) > Math.abs(x1 - x0);
    let a = steep ? y0 : x0, b = steep ? x0 : y0, c = steep ? y1 : x1, d = steep ? x1 : y1;
    if (a > c) { [a, c] = [c, a]; [b, d] = [d, b]; }
    const along = steep ? H : W, across = steep ? W : H, step = steep ? W : 1, over = steep ? 1 : W;
    const slope = c > a ? (d - b) / (c - a) : 0, half = 0.5 * width * Math.sqrt(1 + slope * slope);
    const first = Math.max(0, Math.ceil(a - 0.5)), final = Math.min(along - 1, Math.ceil(c - 0.5) - 1);
    // Two channels at a time: eight bits of room stand between them, and the cover is in 256ths.
    const inks = ink & 0xff00ff, inkGreen = ink & 0xff00, full = 256 * strength;
    let middle = b + slope * (first + 0.5 - a);
    for (let k = first; k <= final; k++, middle += slope) {
      const low = middle - half, high = middle + half, from = Math.max(0, Math.floor(low)), to = Math.min(across - 1, Math.ceil(high) - 1);
      for (let p = from, at = k * step + from * over; p <= to; p++, at += over) {
        const cover = ((high < p + 1 ? high : p + 1) - (low > p ? low : p)) * full | 0;
        if (cover === 0) continue;
        const v = pixels[at], rest = 256 - cover;
        pixels[at] = 255 << 24 | (Math.imul(v & 0xff00ff, rest) + Math.imul(inks, cover)) >>> 8 & 0xff00ff | (Math.imul(v & 0xff00, rest) + Math.imul(inkGreen, cover)) >>> 8 & 0xff00;
      }
    }
  }
  return { begin, end, fill, line };
})();
