// The weights on the page: one vector, in the order of Engine.flat, and what moves it without changing the function.
const Model = (() => {
  const widths = given.widths, depth = given.weights.length, slopes = given.slopes;
  const starts = [], offsets = [];  // where each matrix and each bias begins; −1 without a bias
  let size = 0;
  for (let l = 0; l < depth; l++) {
    starts.push(size); size += widths[l + 1] * widths[l];
    offsets.push(given.biases[l] ? size : -1); size += given.biases[l] ? widths[l + 1] : 0;
  }
  const neurons = [], first = [];
  for (let l = 0; l < depth - 1; l++) { first.push(neurons.length); for (let i = 0; i < widths[l + 1]; i++) neurons.push([l, i]); }
  const name = (n) => (n < 0 ? "" : `h${neurons[n][0] + 1}.${neurons[n][1]}`);
  const file = Engine.flat(given);
  const at = (w, l, i, j) => starts[l] + i * widths[l] + j;

  // Neuron n: inputs times a, outputs divided by a; the function stays.
  function rescale(w, n, a) {
    const [l, i] = neurons[n];
    for (let j = 0; j < widths[l]; j++) w[at(w, l, i, j)] *= a;
    if (offsets[l] >= 0) w[offsets[l] + i] *= a;
    for (let k = 0; k < widths[l + 2]; k++) w[at(w, l + 1, k, i)] /= a;
  }
  // A crease of the first layer is hidden if every unit that hears it does so with a positive weight, hears all others with
  // weights ≤ 0 and has a bias < 0: where the neuron is off, all its listeners are off (P4 Theorem 5).
  function hidden(w) {
    if (depth < 3 || slopes[0] !== 0 || slopes[1] !== 0 || offsets[0] < 0 || offsets[1] < 0) return null;
    for (let i = 0; i < widths[1]; i++) {
      let heard = 0, fits = true, low = -Infinity;
      for (let j = 0; j < widths[2] && fits; j++) {
        const v = w[at(w, 1, j, i)];
        if (v === 0) continue;
        heard++;
        if (v < 0 || !(w[offsets[1] + j] < 0)) { fits = false; break; }
        for (let k = 0; k < widths[1]; k++) if (k !== i && w[at(w, 1, j, k)] > 0) { fits = false; break; }
        low = Math.max(low, w[offsets[1] + j] / v);
      }
      if (fits && heard) return { i, low };
    }
    return null;
  }
  const rates = (() => {
    let z = 7;
    const next = () => ((z = (z * 16807) % 2147483647) / 2147483647) * 2 - 1;
    return neurons.map(() => { const v = next(); return Math.sign(v) * (0.35 + 0.65 * Math.abs(v)); });
  })();
  function fiber(w, s, t) {
    const out = w.slice(), crease = t ? hidden(w) : null;
    if (crease) {
      out[offsets[0] + crease.i] += t;
      for (let j = 0; j < widths[2]; j++) out[offsets[1] + j] -= t * w[at(w, 1, j, crease.i)];
    }
    if (s) neurons.forEach((_, n) => rescale(out, n, Math.exp(1.1 * s * rates[n])));
    return out;
  }
  const sides = (w, n) => {
    const [l, i] = neurons[n];
    let into = offsets[l] >= 0 ? w[offsets[l] + i] ** 2 : 0, out = 0;
    for (let j = 0; j < widths[l]; j++) into += w[at(w, l, i, j)] ** 2;
    for (let k = 0; k < widths[l + 2]; k++) out += w[at(w, l + 1, k, i)] ** 2;
    return [into, out];
  };
  const balances = (w) => Float64Array.from(neurons, (_, n) => { const [into, out] = sides(w, n); return into - out; });
  // Which neurons have a weight that their balances keep from zero, in floating point.
  function locked(w) {
    const net = Engine.shaped(given, w), found = new Map();
    for (const lock of Engine.locks(net, Engine.balances(net))) {
      const n = lock.row === 0 && widths[lock.layer + 1] === 1 && lock.layer > 0 ? first[lock.layer - 1] + lock.column : first[lock.layer] + lock.row;
      found.set(n, lock.barrier);
    }
    return found;
  }
  // All values before the activations at a point of the input space, and the outputs.
  function evaluate(w, x) {
    const before = new Float64Array(neurons.length);
    let values = x, n = 0;
    for (let l = 0; l < depth; l++) {
      const next = new Float64Array(widths[l + 1]);
      for (let i = 0; i < next.length; i++) {
        let sum = offsets[l] >= 0 ? w[offsets[l] + i] : 0;
        for (let j = 0, o = starts[l] + i * widths[l]; j < values.length; j++) sum += w[o + j] * values[j];
        if (l < depth - 1) { before[n++] = sum; next[i] = sum > 0 ? sum : slopes[l] * sum; } else next[i] = sum;
      }
      values = next;
    }
    return { before, values };
  }
  // Mean squared error over some samples, and its gradient: the loss of Engine, without its arrays of arrays.
  function loss(w, gradient, from, count) {
    gradient.fill(0);
    const { inputs, targets } = data, outputs = widths[depth], scale = 1 / (count * outputs);
    let total = 0;
    for (let q = 0; q < count; q++) {
      const m = (from + q) % inputs.length, layers = [inputs[m]];
      for (let l = 0; l < depth; l++) {
        const next = new Float64Array(widths[l + 1]), below = layers[l];
        for (let i = 0; i < next.length; i++) {
          let sum = offsets[l] >= 0 ? w[offsets[l] + i] : 0;
          for (let j = 0, o = starts[l] + i * widths[l]; j < below.length; j++) sum += w[o + j] * below[j];
          next[i] = l < depth - 1 && sum <= 0 ? slopes[l] * sum : sum;
        }
        layers.push(next);
      }
      let back = layers[depth].map((v, i) => { const e = v - targets[m][i]; total += e * e * scale; return 2 * e * scale; });
      for (let l = depth - 1; l >= 0; l--) {
        if (l < depth - 1) back = back.map((g, i) => (layers[l + 1][i] > 0 ? g : g * slopes[l]));
        const below = layers[l], next = new Float64Array(widths[l]);
        for (let i = 0; i < back.length; i++) {
          const g = back[i];
          if (!g) continue;
          if (offsets[l] >= 0) gradient[offsets[l] + i] += g;
          for (let j = 0, o = starts[l] + i * widths[l]; j < below.length; j++) { gradient[o + j] += g * below[j]; next[j] += g * w[o + j]; }
        }
        back = next;
      }
    }
    return total;
  }
  return { widths, depth, slopes, starts, offsets, size, neurons, first, name, file, at, rescale, hidden, fiber, sides, balances, locked, evaluate, loss };
})();

// What is shown now: th = fiber(base, s, t). Any other weights than the file's void what was proved of the file's.
const Live = { th: Model.file.slice(), base: Model.file.slice(), s: 0, t: 0, kept: true, past: [], listeners: [] };
Live.same = () => { for (let k = 0; k < Model.size; k++) if (Live.th[k] !== Model.file[k]) return false; return true; };
Live.changed = (onFiber = false) => { if (!onFiber) Live.kept = false; for (const tell of Live.listeners) tell(); };
Live.begin = () => { Live.past.push([Live.th.slice(), Live.base.slice(), Live.s, Live.t, Live.kept]); if (Live.past.length > 50) Live.past.shift(); };
Live.edit = (onFiber = false) => { Live.base = Live.th.slice(); Live.s = 0; Live.t = 0; Live.changed(onFiber); };
Live.slide = (s, t) => { Live.s = s; Live.t = t; Live.th = Model.fiber(Live.base, s, t); Live.changed(true); };
Live.put = (k, value) => { Live.th = Live.th.slice(); Live.th[k] = value; Live.edit(); };
Live.undo = () => { const last = Live.past.pop(); if (last) { [Live.th, Live.base, Live.s, Live.t, Live.kept] = last; for (const tell of Live.listeners) tell(); } };
Live.reset = () => { Live.th = Model.file.slice(); Live.base = Model.file.slice(); Live.s = Live.t = 0; Live.kept = true; for (const tell of Live.listeners) tell(); };
