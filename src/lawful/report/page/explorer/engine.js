"use strict";
// What a layered network computes, its gradient, its laws, and the weights that training cannot push through zero.

const Engine = {
  copy: (net) => ({ widths: net.widths, slopes: net.slopes, weights: net.weights.map((w) => w.map((r) => r.slice())),
    biases: net.biases.map((b) => (b ? b.slice() : null)) }),

  // All parameters as one vector: each matrix row by row, then its bias. The order of the laws' terms.
  flat(net) {
    const out = [];
    net.weights.forEach((w, l) => { w.forEach((row) => out.push(...row)); if (net.biases[l]) out.push(...net.biases[l]); });
    return Float64Array.from(out);
  },

  shaped(net, theta) {
    const made = Engine.copy(net);
    let at = 0;
    made.weights.forEach((w, l) => {
      w.forEach((row) => { for (let j = 0; j < row.length; j++) row[j] = theta[at++]; });
      if (made.biases[l]) for (let j = 0; j < made.biases[l].length; j++) made.biases[l][j] = theta[at++];
    });
    return made;
  },

  // Where a parameter lives: layer, row and column, or a bias (column −1).
  places(net) {
    const out = [];
    net.weights.forEach((w, l) => {
      w.forEach((row, i) => row.forEach((_, j) => out.push({ layer: l, row: i, column: j })));
      if (net.biases[l]) net.biases[l].forEach((_, i) => out.push({ layer: l, row: i, column: -1 }));
    });
    return out;
  },

  forward(net, x, keep) {
    let values = x;
    const layers = [x];
    const last = net.weights.length - 1;
    for (let l = 0; l <= last; l++) {
      const w = net.weights[l], b = net.biases[l], slope = l < last ? net.slopes[l] : 1;
      const next = new Float64Array(w.length);
      for (let i = 0; i < w.length; i++) {
        const row = w[i];
        let sum = b ? b[i] : 0;
        for (let j = 0; j < row.length; j++) sum += row[j] * values[j];
        next[i] = sum > 0 ? sum : slope * sum;
      }
      values = next;
      if (keep) layers.push(next);
    }
    return keep ? layers : values;
  },

  // One output at a point with its slopes along two input axes; they are constant on a linear region.
  jet(net, x, axes, output) {
    let values = x, across = x.map((_, j) => +(j === axes[0])), up = x.map((_, j) => +(j === axes[1]));
    const last = net.weights.length - 1;
    for (let l = 0; l <= last; l++) {
      const w = net.weights[l], b = net.biases[l], slope = l < last ? net.slopes[l] : 1;
      const next = [new Float64Array(w.length), new Float64Array(w.length), new Float64Array(w.length)];
      for (let i = 0; i < w.length; i++) {
        const row = w[i];
        let sum = b ? b[i] : 0, da = 0, du = 0;
        for (let j = 0; j < row.length; j++) { sum += row[j] * values[j]; da += row[j] * across[j]; du += row[j] * up[j]; }
        const gain = sum > 0 ? 1 : slope;
        next[0][i] = gain * sum; next[1][i] = gain * da; next[2][i] = gain * du;
      }
      [values, across, up] = next;
    }
    return [values[output], across[output], up[output]];
  },

  // Mean squared error over all outputs and samples, and its gradient in the order of `flat`.
  loss(net, inputs, targets) {
    const depth = net.weights.length;
    const dw = net.weights.map((w) => w.map((r) => new Float64Array(r.length)));
    const db = net.biases.map((b) => (b ? new Float64Array(b.length) : null));
    const scale = 1 / (inputs.length * targets[0].length);
    let total = 0;
    for (let n = 0; n < inputs.length; n++) {
      const layers = Engine.forward(net, inputs[n], true);
      let back = layers[depth].map((v, i) => { const e = v - targets[n][i]; total += e * e * scale; return 2 * e * scale; });
      for (let l = depth - 1; l >= 0; l--) {
        if (l < depth - 1) back = back.map((g, i) => (layers[l + 1][i] > 0 ? g : g * net.slopes[l]));
        const w = net.weights[l], below = layers[l], next = new Float64Array(below.length);
        for (let i = 0; i < w.length; i++) {
          const g = back[i];
          if (!g) continue;
          if (db[l]) db[l][i] += g;
          for (let j = 0; j < below.length; j++) { dw[l][i][j] += g * below[j]; next[j] += g * w[i][j]; }
        }
        back = next;
      }
    }
    const out = [];
    dw.forEach((w, l) => { w.forEach((row) => out.push(...row)); if (db[l]) out.push(...db[l]); });
    return { loss: total, gradient: Float64Array.from(out) };
  },

  law: (law, theta) => law.terms.reduce((sum, [edges, factor]) => sum + factor * edges.reduce((p, e) => p * theta[e], 1), 0),

  // Train for a stretch of time with one step size; momentum and Adam take the same steps in their own way.
  train(net, inputs, targets, rule, step, time, law) {
    let theta = Engine.flat(net);
    const n = theta.length, affordable = Math.max(20, Math.floor(1e8 / (n * inputs.length)));
    const steps = Math.max(1, Math.min(1500, affordable, Math.round(time / step)));
    const speed = new Float64Array(n), square = new Float64Array(n);
    const losses = [], values = [], stride = Math.max(1, Math.floor(steps / 120));
    const start = law ? Engine.law(law, theta) : 0;
    for (let k = 0; k <= steps; k++) {
      const at = Engine.loss(Engine.shaped(net, theta), inputs, targets);
      if (k % stride === 0 || k === steps) {
        losses.push([k * step, at.loss]);
        values.push([k * step, law ? Engine.law(law, theta) - start : 0]);
      }
      if (!Number.isFinite(at.loss) || at.loss > 1e12) break;
      for (let i = 0; i < n; i++) {
        const g = at.gradient[i];
        if (rule === "momentum") { speed[i] = 0.9 * speed[i] - step * 0.1 * g; theta[i] += speed[i]; }
        else if (rule === "Adam") {
          speed[i] = 0.9 * speed[i] + 0.1 * g; square[i] = 0.999 * square[i] + 0.001 * g * g;
          const m = speed[i] / (1 - 0.9 ** (k + 1)), v = square[i] / (1 - 0.999 ** (k + 1));
          theta[i] -= step * m / (Math.sqrt(v) + 1e-8);
        } else theta[i] -= step * g;
      }
    }
    return { losses, values, theta };
  },

  // Squared incoming minus squared outgoing weights of every hidden neuron: what gradient flow conserves.
  balances(net) {
    return net.weights.slice(0, -1).map((w, l) => w.map((row, i) => {
      let c = row.reduce((s, v) => s + v * v, 0) + (net.biases[l] ? net.biases[l][i] ** 2 : 0);
      net.weights[l + 1].forEach((above) => { c -= above[i] ** 2; });
      return c;
    }));
  },

  // Locked weights of a layered network for given balances (P0 Theorem 1). The only edge out of a neuron v carries at
  // least −Σ c over any set T of neurons that must all send through v and whose successors lie in T: v alone, or, if v
  // is alone in its layer, also whole layers before it and any part of one more. Mirrored for the only edge in.
  // Each lock comes with its barrier and the set that proves it.
  locks(net, balances) {
    const found = new Map(), widths = net.widths, hidden = balances.length;
    const heaviest = (l, i, others, sign) => {
      let whole = sign * balances[l][i], inside = [`${l + 1},${i}`], best = { least: whole, set: inside };
      if (balances[l].length === 1) for (const k of others) {
        const helps = balances[k].flatMap((c, j) => (sign * c > 0 ? [j] : []));
        const least = whole + helps.reduce((s, j) => s + sign * balances[k][j], 0);
        if (least > best.least) best = { least, set: [...inside, ...helps.map((j) => `${k + 1},${j}`)] };
        whole += balances[k].reduce((s, c) => s + sign * c, 0);
        inside = [...inside, ...balances[k].map((_, j) => `${k + 1},${j}`)];
      }
      return best;
    };
    const add = (spot, { least, set }) => {
      const key = `${spot.layer},${spot.row},${spot.column}`, barrier = Math.sqrt(Math.max(0, least));
      if (barrier > (found.get(key)?.barrier ?? 0)) found.set(key, { ...spot, barrier, set });
    };
    for (let l = 0; l < hidden; l++) for (let i = 0; i < balances[l].length; i++) {
      const before = Array.from({ length: l }, (_, k) => l - 1 - k), after = [];
      for (let k = l + 1; k < hidden && !net.biases[k]; k++) after.push(k);
      if (widths[l + 2] === 1) add({ layer: l + 1, row: 0, column: i }, heaviest(l, i, before, -1));
      if (widths[l] === 1 && !net.biases[l]) add({ layer: l, row: i, column: 0 }, heaviest(l, i, after, 1));
    }
    return [...found.values()];
  },

  // Where a path is at a time in [0, 1]: between waypoints the squares move linearly and no sign changes.
  along(path, time) {
    const piece = Math.min(path.signs.length - 1, Math.floor(time * path.signs.length)), part = time * path.signs.length - piece;
    return path.signs[piece].map((sign, k) => sign * Math.hypot(Math.sqrt(1 - part) * path.sizes[piece][k], Math.sqrt(part) * path.sizes[piece + 1][k]));
  },

  // The largest difference of the outputs of two networks on some inputs; NaN if one is.
  apart: (one, two, inputs) => inputs.reduce((most, x) => {
    const [a, b] = [Engine.forward(one, x), Engine.forward(two, x)];
    return Math.max(most, ...a.map((v, k) => Math.abs(v - b[k])));
  }, 0),
};
