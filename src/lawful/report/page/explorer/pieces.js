// Exact pieces of a plane through the input space: the box is split by every neuron, layer by layer, into polygons on which
// the network is affine. A neuron's affine form on a part is known from the layers below, so nothing is sampled.
const Pieces = (() => {
  const D = new Float64Array(4096);
  // A corner within a millionth of a pixel of the line lies on it: where many lines meet, rounding would make it two corners.
  // Split one polygon P (with the neuron that owns each edge in E) by a x + b y + c; `on` marks the side where it is positive.
  function cut(part, i, a, b, c, id, eps, out) {
    const [P, E, on] = part, n = P.length >> 1;
    let low = Infinity, high = -Infinity;
    for (let k = 0; k < n; k++) { let d = a * P[2 * k] + b * P[2 * k + 1] + c; if (d < eps && d > -eps) d = 0; D[k] = d; if (d < low) low = d; if (d > high) high = d; }
    if (low >= -eps) { if (high > eps || c > 0) on[i] = 1; out.push(part); return; }
    if (high <= eps) { out.push(part); return; }
    const p = [], e = [], q = [], r = [];
    for (let k = 0; k < n; k++) {
      const l = k + 1 === n ? 0 : k + 1, d = D[k], g = D[l], x = P[2 * k], y = P[2 * k + 1];
      if (d >= 0) {
        p.push(x, y);
        if (g < 0) {
          if (d === 0) { e.push(id); q.push(x, y); r.push(E[k]); continue; }
          const u = d / (d - g), X = x + u * (P[2 * l] - x), Y = y + u * (P[2 * l + 1] - y);
          e.push(E[k]); p.push(X, Y); e.push(id); q.push(X, Y); r.push(E[k]);
        } else e.push(E[k]);
      } else {
        q.push(x, y);
        if (g > 0) { const u = d / (d - g), X = x + u * (P[2 * l] - x), Y = y + u * (P[2 * l + 1] - y); r.push(E[k]); q.push(X, Y); r.push(id); p.push(X, Y); e.push(E[k]); }
        else if (g === 0) { r.push(E[k]); q.push(P[2 * l], P[2 * l + 1]); r.push(id); } else r.push(E[k]);
      }
    }
    if (p.length > 4) { const yes = on.slice(); yes[i] = 1; out.push([p, e, yes]); }
    if (q.length > 4) out.push([q, r, on]);
  }

  // The affine forms of the first layer on the plane x = origin + a·across + b·up: three numbers a neuron.
  function firstForms(w, plane) {
    const { widths, starts, offsets } = Model, F = new Float64Array(3 * widths[1]);
    for (let i = 0; i < widths[1]; i++) {
      const o = starts[0] + i * widths[0];
      let a = 0, b = 0, c = offsets[0] >= 0 ? w[offsets[0] + i] : 0;
      for (let j = 0; j < widths[0]; j++) { a += w[o + j] * plane.across[j]; b += w[o + j] * plane.up[j]; c += w[o + j] * plane.origin[j]; }
      F[3 * i] = a; F[3 * i + 1] = b; F[3 * i + 2] = c;
    }
    return F;
  }
  function nextForms(w, l, F, on) {
    const { widths, starts, offsets, slopes } = Model, wide = widths[l], G = new Float64Array(3 * widths[l + 1]);
    for (let i = 0; i < widths[l + 1]; i++) {
      let a = 0, b = 0, c = offsets[l] >= 0 ? w[offsets[l] + i] : 0;
      for (let j = 0, o = starts[l] + i * wide; j < wide; j++) {
        const gain = on[j] ? 1 : slopes[l - 1];
        if (gain === 0) continue;
        const v = w[o + j] * gain;
        a += v * F[3 * j]; b += v * F[3 * j + 1]; c += v * F[3 * j + 2];
      }
      G[3 * i] = a; G[3 * i + 1] = b; G[3 * i + 2] = c;
    }
    return G;
  }

  // All pieces in a box. A hidden neuron may be taken as linear: where it is off, its listeners are off either way; so its
  // crease is no edge, and moving it moves no pixel.
  function split(w, plane, [x0, y0, x1, y1], pixel, output, most = 50000) {
    const { widths, depth, starts, offsets, slopes, first } = Model, all = [];
    const crease = Model.hidden(w), skip = crease ? crease.i : -1;
    let count = 0;
    function layer(l, P, E, F, masks, forms) {
      if (count > most) return;
      const start = new Uint8Array(widths[l + 1]);
      let parts = [[P, E, start]];
      for (let i = 0; i < widths[l + 1]; i++) {
        if (l === 0 && i === skip) { for (const part of parts) part[2][i] = 1; continue; }
        if (slopes[l] === 1) continue;  // a linear neuron has no crease
        const a = F[3 * i], b = F[3 * i + 1], c = F[3 * i + 2], eps = 1e-6 * pixel * Math.hypot(a, b), out = [];
        for (const part of parts) cut(part, i, a, b, c, first[l] + i, eps, out);
        parts = out;
      }
      for (const [p, e, on] of parts) {
        const own = [...masks, on], lines = [...forms, F];
        if (l + 1 < depth - 1) layer(l + 1, p, e, nextForms(w, l + 1, F, on), own, lines);
        else finish(p, e, own, lines);
      }
    }
    function finish(P, E, masks, forms) {
      count++;
      // Sensitivities of the output to every activation, from the last layer back: the jump of the slope over an edge is
      // that of the neuron that owns the edge, and needs no neighbour.
      const last = depth - 1, sense = new Array(last);
      sense[last - 1] = w.subarray(starts[last] + output * widths[last], starts[last] + (output + 1) * widths[last]);
      for (let l = last - 2; l >= 0; l--) {
        const above = sense[l + 1], on = masks[l + 1], S = new Float64Array(widths[l + 1]);
        for (let j = 0; j < widths[l + 2]; j++) {
          const g = above[j] * (on[j] ? 1 : slopes[l + 1]);
          if (g) for (let i = 0, o = starts[l + 1] + j * widths[l + 1]; i < widths[l + 1]; i++) S[i] += g * w[o + i];
        }
        sense[l] = S;
      }
      let gx = 0, gy = 0, c = offsets[last] >= 0 ? w[offsets[last] + output] : 0;
      const F = forms[last - 1], on = masks[last - 1];
      for (let j = 0; j < widths[last]; j++) {
        const v = sense[last - 1][j] * (on[j] ? 1 : slopes[last - 1]);
        if (v) { gx += v * F[3 * j]; gy += v * F[3 * j + 1]; c += v * F[3 * j + 2]; }
      }
      const J = new Float64Array(E.length);
      for (let k = 0; k < E.length; k++) {
        if (E[k] < 0) continue;
        const [l, i] = Model.neurons[E[k]];
        J[k] = masks[l][i] ? Math.abs(sense[l][i]) * (1 - slopes[l]) * Math.hypot(forms[l][3 * i], forms[l][3 * i + 1]) : -1;
      }
      all.push({ P, E, J, gx, gy, c });
    }
    const box = [x0, y0, x1, y0, x1, y1, x0, y1];
    if (depth === 1) {
      const F = firstForms(w, plane);
      return [{ P: box, E: [-1, -1, -1, -1], J: new Float64Array(4), gx: F[3 * output], gy: F[3 * output + 1], c: F[3 * output + 2] }];
    }
    layer(0, box, [-1, -1, -1, -1], firstForms(w, plane), [], []);
    return all;
  }

  // Activation regions: the pieces, and one more for each that the hidden crease crosses.
  function regions(w, plane, list) {
    const crease = Model.hidden(w);
    if (!crease) return list.length;
    const F = firstForms(w, plane), [a, b, c] = F.subarray(3 * crease.i, 3 * crease.i + 3);
    return list.reduce((n, { P }) => {
      let low = 0, high = 0;
      for (let k = 0; k < P.length; k += 2) { const d = a * P[k] + b * P[k + 1] + c; low = Math.min(low, d); high = Math.max(high, d); }
      return n + (low < 0 && high > 0);
    }, list.length);
  }
  return { split, firstForms, regions };
})();
