// Exact pieces of a plane through the input space: polygons on which the network is affine. Nothing is sampled.
//
// Idea: walk down a tree of polygons. At a polygon, every neuron whose form has one sign on it is decided, once for all
// polygons below; the first of those that are left cuts it in two. When a layer is decided, the next one begins.
// Invariant: `forms` of the layer above hold the bias and the parts of all decided neurons, so they are complete when the
// layer is. A neuron is decided at about as many polygons as its crease passes, not at every piece, so the cost is about
// (pieces) × (width) instead of (pieces) × (width)²; all numbers live in arrays that are made once and grow.
const Pieces = (() => {
  const { widths, depth, starts, offsets, slopes, first, neurons } = Model, last = depth - 1;
  const layerOf = Int32Array.from(neurons, ([l]) => l), placeOf = Int32Array.from(neurons, ([, i]) => i);
  // What is shared by all pieces: corners P (x, y), the neuron E that owns the edge after each corner (−1: the box), the jump J
  // of the slope over it (−1: this side does not know), and per piece the affine form gx x + gy y + c. Piece k has the
  // corners start[k] to start[k + 1].
  const made = { count: 0, start: new Int32Array(1025), P: new Float64Array(8192), E: new Int32Array(4096), J: new Float64Array(4096), gx: new Float64Array(1024), gy: new Float64Array(1024), c: new Float64Array(1024) };
  made.map = (tell) => Array.from({ length: made.count }, (_, k) => { const [a, b] = [made.start[k], made.start[k + 1]]; return tell({ P: [...made.P.subarray(2 * a, 2 * b)], E: [...made.E.subarray(a, b)], J: [...made.J.subarray(a, b)], gx: made.gx[k], gy: made.gy[k], c: made.c[k] }); });
  // The path from the root to the polygon at hand, as stacks: corners, owners, undecided neurons, forms.
  let corners = new Float64Array(4096), owners = new Int32Array(2048), waiting = new Int32Array(4096), forms = new Float64Array(16384);
  const larger = (array, size) => { if (array.length >= size) return array; const out = new array.constructor(2 * size); out.set(array); return out; };
  const side = new Float64Array(4096);  // of each corner: its distance to the line, times the length of its normal
  const on = widths.slice(1, -1).map((width) => new Uint8Array(width)), from = new Int32Array(depth + 1);  // where each layer's forms begin
  const norms = widths.slice(1, -1).map((width) => new Float64Array(width));
  const columns = given.weights.map((w) => new Float64Array(w.length * w[0].length)), above = widths.slice(1).map((width) => new Float64Array(width));
  const alive = widths.slice(1).map((width) => new Int32Array(width)), lively = new Int32Array(depth);  // the neurons of a layer that the output hears
  let w = null, shown = 0, pixel = 1, skip = -1, most = 0;

  // The affine forms of the first layer on the plane x = origin + a·across + b·up: three numbers a neuron.
  function firstForms(weights, plane) {
    const F = new Float64Array(3 * widths[1]);
    for (let i = 0; i < widths[1]; i++) {
      const o = starts[0] + i * widths[0];
      let a = 0, b = 0, c = offsets[0] >= 0 ? weights[offsets[0] + i] : 0;
      for (let j = 0; j < widths[0]; j++) { a += weights[o + j] * plane.across[j]; b += weights[o + j] * plane.up[j]; c += weights[o + j] * plane.origin[j]; }
      F[3 * i] = a; F[3 * i + 1] = b; F[3 * i + 2] = c;
    }
    return F;
  }
  // Only the chosen row of the output counts.
  const rowsAbove = (l) => (l + 1 === last ? 1 : widths[l + 2]);

  // Neuron i of layer l is on (or off) on the polygon at hand: its part of the forms above is known.
  function decide(l, i, isOn, g) {
    on[l][i] = isOn ? 1 : 0;
    const gain = isOn ? 1 : slopes[l];
    if (gain === 0) return;
    const F = forms, f = from[l] + 3 * i, a = gain * F[f], b = gain * F[f + 1], c = gain * F[f + 2], rows = rowsAbove(l), column = columns[l + 1];
    for (let r = 0, k = i * rows; r < rows; r++, k++, g += 3) { const v = column[k]; F[g] += v * a; F[g + 1] += v * b; F[g + 2] += v * c; }
  }
  // Begin layer l, whose forms are complete and stand at `f`; those of the layer above go right after them.
  function layer(l, p, n, t, u, f) {
    const wide = widths[l + 1], rows = rowsAbove(l), g = f + 3 * wide;
    from[l] = f;
    forms = larger(forms, g + 3 * rows);
    waiting = larger(waiting, u + wide);
    for (let r = 0; r < rows; r++) { const row = l + 1 === last ? shown : r; forms[g + 3 * r] = forms[g + 3 * r + 1] = 0; forms[g + 3 * r + 2] = offsets[l + 1] >= 0 ? w[offsets[l + 1] + row] : 0; }
    let left = 0;
    for (let i = 0; i < wide; i++) {
      const a = forms[f + 3 * i], b = forms[f + 3 * i + 1], square = a * a + b * b;
      // Where squares leave the range of doubles the norm does not: a norm of 0 would lose the crease of a tiny neuron.
      norms[l][i] = square > 1e-280 && square < 1e280 ? Math.sqrt(square) : Math.hypot(a, b);
      // A linear neuron has no crease. A hidden one may be taken as linear: where it is off, its listeners are off either way;
      // so its crease is no edge, and moving it moves no pixel.
      if (slopes[l] === 1 || (l === 0 && i === skip)) decide(l, i, true, g); else waiting[u + left++] = i;
    }
    descend(l, p, n, t, u, left, g);
  }
  // The polygon with n corners from p on; `count` neurons of layer l from u on are not decided; corners from t on are free.
  function descend(l, p, n, t, u, count, g) {
    if (made.count > most) return;
    const begin = u + count, f = from[l], N = norms[l], end = 2 * (p + n);
    let left = begin;
    waiting = larger(waiting, begin + count);
    const C = corners, F = forms, U = waiting;  // none of them is replaced below: `decide` only writes into them
    // A disc around the polygon: a line that misses it misses the polygon, which settles most neurons with one product.
    // Rounding moves no verdict: a line that passes the disc by less than a billionth of its radius is tried at the corners.
    let x = 0, y = 0, reach = 0;
    for (let q = 2 * p; q < end; q += 2) { x += C[q]; y += C[q + 1]; }
    x /= n; y /= n;
    for (let q = 2 * p; q < end; q += 2) { const dx = C[q] - x, dy = C[q + 1] - y, far = dx * dx + dy * dy; if (far > reach) reach = far; }
    reach = (1 + 1e-9) * Math.sqrt(reach) + 1e-6 * pixel;
    for (let k = u; k < begin; k++) {
      const i = U[k], a = F[f + 3 * i], b = F[f + 3 * i + 1], c = F[f + 3 * i + 2], v = a * x + b * y + c, past = N[i] * reach;
      if (v > past || v < -past) { decide(l, i, v > 0, g); continue; }
      // A corner within a millionth of a pixel of the line lies on it: where many lines meet, rounding would make it two corners.
      const near = 1e-6 * pixel * N[i];
      let low = Infinity, high = -Infinity;
      for (let q = 2 * p; q < end; q += 2) { const d = a * C[q] + b * C[q + 1] + c; if (d < low) low = d; if (d > high) high = d; }
      if (low >= -near) decide(l, i, high > near || c > 0, g);
      else if (high <= near) decide(l, i, false, g);
      else U[left++] = i;
    }
    if (left === begin) {
      if (l + 1 === last) finish(p, n, g); else layer(l + 1, p, n, t, begin, g);
      return;
    }
    const i = waiting[begin], size = 3 * rowsAbove(l), high = cut(p, n, t, f + 3 * i, first[l] + i, 1e-6 * pixel * norms[l][i]), low = cutLow;
    forms = larger(forms, g + 2 * size);
    if (high > 2) {
      forms.copyWithin(g + size, g, g + size);
      decide(l, i, true, g + size);
      descend(l, t, high, t + high + low, begin + 1, left - begin - 1, g + size);
    }
    if (low > 2) { decide(l, i, false, g); descend(l, t + high, low, t + high + low, begin + 1, left - begin - 1, g); }
  }
  let cutLow = 0;  // corners of the lower part that `cut` made last
  // Split the polygon by a x + b y + c: its upper part goes to t, its lower one right behind; returns the upper one's corners.
  function cut(p, n, t, f, id, near) {
    const a = forms[f], b = forms[f + 1], c = forms[f + 2], room = t + 2 * n + 4;
    corners = larger(corners, 2 * room); owners = larger(owners, room);
    for (let k = 0; k < n; k++) { const d = a * corners[2 * (p + k)] + b * corners[2 * (p + k) + 1] + c; side[k] = d < near && d > -near ? 0 : d; }
    let to = t, high = 0;
    for (let sign = 1; sign >= -1; sign -= 2) {
      for (let k = 0; k < n; k++) {
        const l = k + 1 === n ? 0 : k + 1, d = sign * side[k], e = sign * side[l], at = 2 * (p + k), next = 2 * (p + l), owner = owners[p + k];
        if (d >= 0) {
          corners[2 * to] = corners[at]; corners[2 * to + 1] = corners[at + 1];
          owners[to++] = d === 0 && e < 0 ? id : owner;
        }
        if ((d > 0 && e < 0) || (d < 0 && e > 0)) {
          // The same arithmetic on both sides, so that neighbours share their corners bit by bit.
          const u = side[k] / (side[k] - side[l]);
          corners[2 * to] = corners[at] + u * (corners[next] - corners[at]); corners[2 * to + 1] = corners[at + 1] + u * (corners[next + 1] - corners[at + 1]);
          owners[to++] = d > 0 ? id : owner;
        }
      }
      if (sign > 0) high = to - t; else cutLow = to - t - high;
    }
    return high;
  }

  function finish(p, n, g) {
    const k = made.count++, begin = made.start[k];
    if (made.start.length < k + 2) made.start = larger(made.start, k + 2);
    if (made.c.length < k + 1) for (const name of ["gx", "gy", "c"]) made[name] = larger(made[name], k + 1);
    if (made.E.length < begin + n) { made.P = larger(made.P, 2 * (begin + n)); made.E = larger(made.E, begin + n); made.J = larger(made.J, begin + n); }
    const { P, E, J } = made;
    made.start[k + 1] = begin + n;
    made.gx[k] = forms[g]; made.gy[k] = forms[g + 1]; made.c[k] = forms[g + 2];
    let down = last;  // how far down the sensitivities of this piece are known
    for (let q = 0, to = begin; q < n; q++, to++) {
      P[2 * to] = corners[2 * (p + q)]; P[2 * to + 1] = corners[2 * (p + q) + 1];
      const id = E[to] = owners[p + q];
      if (id < 0) { J[to] = 0; continue; }
      const l = layerOf[id], i = placeOf[id];
      if (!on[l][i]) { J[to] = -1; continue; }
      // The jump of the slope over an edge is that of the neuron that owns it: how the output hears the neuron, times its slope.
      while (down > l + 1) sense(--down);
      J[to] = Math.abs(heard(l, i)) * (1 - slopes[l]) * norms[l][i];
    }
  }
  // How the output hears neuron i of layer l, from how it hears the layer above: most of that is 0, and left out.
  function heard(l, i) {
    const rows = rowsAbove(l), column = columns[l + 1];
    if (l + 1 === last) return column[i];
    const A = above[l + 1], L = alive[l + 1], count = lively[l + 1], begin = i * rows;
    let sum = 0;
    for (let q = 0; q < count; q++) { const r = L[q]; sum += A[r] * column[begin + r]; }
    return sum;
  }
  // How the output hears the values of layer l before their activations.
  function sense(l) {
    const A = above[l], L = alive[l], gain = slopes[l], O = on[l];
    let count = 0;
    for (let i = 0; i < widths[l + 1]; i++) if (O[i] || gain !== 0) { A[i] = heard(l, i) * (O[i] ? 1 : gain); L[count++] = i; }
    lively[l] = count;
  }

  // All pieces in a box; the answer is one object, which the next call fills anew.
  function split(weights, plane, [x0, y0, x1, y1], size, output, limit = 50000) {
    w = weights; pixel = size; shown = output; most = limit;
    const crease = Model.hidden(w), F = firstForms(w, plane);
    skip = crease ? crease.i : -1;
    made.count = 0; made.start[0] = 0;
    [x0, y0, x1, y0, x1, y1, x0, y1].forEach((v, k) => { corners[k] = v; });
    owners.fill(-1, 0, 4);
    for (let l = 1; l < depth; l++) {  // a column of the weights in one place: `decide` walks along it
      const rows = rowsAbove(l - 1), wide = widths[l];
      for (let r = 0; r < rows; r++) for (let i = 0, o = starts[l] + (l === last ? output : r) * wide; i < wide; i++) columns[l][i * rows + r] = w[o + i];
    }
    forms = larger(forms, F.length);
    if (depth === 1) { forms.set(F.subarray(3 * output, 3 * output + 3)); finish(0, 4, 0); } else { forms.set(F); layer(0, 0, 4, 4, 0, 0); }
    return made;
  }

  // Activation regions: the pieces, and one more for each that the hidden crease crosses.
  function regions(weights, plane, { count, start, P }) {
    const crease = Model.hidden(weights);
    if (!crease) return count;
    const F = firstForms(weights, plane), [a, b, c] = F.subarray(3 * crease.i, 3 * crease.i + 3);
    let total = count;
    for (let k = 0; k < count; k++) {
      let low = 0, high = 0;
      for (let q = 2 * start[k]; q < 2 * start[k + 1]; q += 2) { const d = a * P[q] + b * P[q + 1] + c; low = Math.min(low, d); high = Math.max(high, d); }
      if (low < 0 && high > 0) total++;
    }
    return total;
  }
  return { split, firstForms, regions };
})();
