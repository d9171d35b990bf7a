// Which plane of the input space is looked at: the inputs themselves, or a plane through three data points.
const Plane = (() => {
  const size = given.widths[0];
  const axis = (k) => Array.from({ length: size }, (_, j) => +(j === k));
  const minus = (a, b) => a.map((v, k) => v - b[k]), dot = (a, b) => a.reduce((sum, v, k) => sum + v * b[k], 0);
  function through(p, q, r) {
    const unit = (v) => { const n = Math.sqrt(dot(v, v)); return n > 1e-12 ? v.map((x) => x / n) : null; };
    const across = unit(minus(q, p));
    if (!across) return null;
    const rest = minus(r, p), along = dot(rest, across), up = unit(rest.map((v, k) => v - along * across[k]));
    return up && { origin: p.map((v, k) => (v + q[k] + r[k]) / 3), across, up };
  }
  const choices = [];
  if (size <= 2) choices.push(["the inputs", { origin: new Array(size).fill(0), across: axis(0), up: size > 1 ? axis(1) : [0] }]);
  else {
    for (let k = 0; k + 2 < data.inputs.length && choices.length < 6; k += 3) {
      const found = through(data.inputs[k], data.inputs[k + 1], data.inputs[k + 2]);
      if (found) choices.push([`through data points ${k + 1}, ${k + 2} and ${k + 3}`, found]);
    }
    for (let k = 0; k + 1 < Math.min(size, 8); k += 2) choices.push([`inputs ${k} and ${k + 1}, the others 0`, { origin: new Array(size).fill(0), across: axis(k), up: axis(k + 1) }]);
  }
  const point = (plane, a, b) => plane.origin.map((v, k) => v + a * plane.across[k] + b * plane.up[k]);
  // Data points that lie on the plane, in its coordinates.
  const marks = (plane) => data.inputs.flatMap((x, m) => {
    const d = minus(x, plane.origin), a = dot(d, plane.across), b = dot(d, plane.up), off = minus(d, plane.across.map((v, k) => a * v + b * plane.up[k]));
    return dot(off, off) <= 1e-12 * (1 + dot(x, x)) ? [[a, b, m]] : [];
  });
  return { choices, point, marks, single: size === 1 };
})();
