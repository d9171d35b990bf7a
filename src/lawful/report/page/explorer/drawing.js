// Pictures: the network as a graph or as heat maps, curves, and a function of two inputs as a tiling.

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const Draw = {
  element(tag, attributes = {}, text = "") {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text) node.textContent = text;
    return node;
  },

  // A drawn graph for up to a dozen neurons a layer, else one heat map for each matrix. `pick` hears of chosen weights.
  network(box, net, { lit = new Set(), outlined = new Set(), chosen = -1, pick }) {
    box.replaceChildren();
    if (Math.max(...net.widths) <= 12) Draw.graph(box, net, lit, outlined, chosen, pick);
    else Draw.maps(box, net, lit, chosen, pick);
  },

  graph(box, net, lit, outlined, chosen, pick) {
    const wide = 460, high = 60 + 34 * Math.max(...net.widths);
    const svg = Draw.element("svg", { viewBox: `0 0 ${wide} ${high}`, role: "group", "aria-label": "the network's weights" });
    const x = (l) => 30 + (l * (wide - 60)) / (net.widths.length - 1);
    const y = (l, i) => high / 2 + (i - (net.widths[l] - 1) / 2) * 34;
    const largest = Math.max(1e-12, ...net.weights.flat(2).map(Math.abs));
    const few = net.weights.reduce((s, w) => s + w.length * w[0].length, 0) <= 150;
    Engine.places(net).forEach((place, number) => {
      if (place.column < 0) return;
      const value = net.weights[place.layer][place.row][place.column];
      const on = lit.has(number), name = `weight ${place.column} to ${place.row} of layer ${place.layer + 1}: ${value.toPrecision(3)}`;
      const line = Draw.element("line", {
        class: "edge" + (on ? " lit" : lit.size && number !== chosen ? " faded" : ""), x1: x(place.layer), y1: y(place.layer, place.column),
        x2: x(place.layer + 1), y2: y(place.layer + 1, place.row), "stroke-width": 0.6 + 5 * Math.abs(value) / largest,
        stroke: on ? "" : value >= 0 ? colour("--plus") : colour("--minus"), role: "button", "aria-label": name,
        "stroke-dasharray": number === chosen ? "6 3" : "",
      });
      if (few) line.setAttribute("tabindex", "0");
      line.append(Draw.element("title", {}, name));
      const go = () => pick(number);
      line.addEventListener("click", go);
      line.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); go(); } });
      svg.append(line);
    });
    net.widths.forEach((width, l) => {
      for (let i = 0; i < width; i++) {
        const ringed = outlined.has(`${l},${i}`);
        svg.append(Draw.element("circle", { cx: x(l), cy: y(l, i), r: 7, fill: colour("--card"), stroke: ringed ? colour("--lock") : colour("--soft"), "stroke-width": ringed ? 4 : 1.5 }));
      }
    });
    box.append(svg);
  },

  maps(box, net, lit, chosen, pick) {
    let start = 0;
    net.weights.forEach((w, l) => {
      const rows = w.length, columns = w[0].length, first = start;
      start += rows * columns + (net.biases[l] ? rows : 0);
      const canvas = document.createElement("canvas");
      canvas.width = columns; canvas.height = rows;
      canvas.style.aspectRatio = `${columns} / ${rows}`;
      canvas.style.maxHeight = "16rem";
      canvas.tabIndex = 0;
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `weights of layer ${l + 1}, ${rows} by ${columns}; arrow keys choose one`);
      const image = canvas.getContext("2d").createImageData(columns, rows);
      const largest = Math.max(1e-12, ...w.flat().map(Math.abs));
      const [plus, minus, none] = ["--plus", "--minus", "--card"].map((name) => Draw.rgb(colour(name)));
      w.forEach((row, i) => row.forEach((value, j) => {
        const number = first + i * columns + j, t = Math.abs(value) / largest, tone = value >= 0 ? plus : minus;
        const at = 4 * (i * columns + j), mark = lit.has(number) || number === chosen;
        for (let k = 0; k < 3; k++) image.data[at + k] = mark ? [242, 193, 78][k] : none[k] + (tone[k] - none[k]) * t;
        image.data[at + 3] = 255;
      }));
      canvas.getContext("2d").putImageData(image, 0, 0);
      canvas.addEventListener("click", (event) => {
        const area = canvas.getBoundingClientRect();
        const i = Math.min(rows - 1, Math.floor(((event.clientY - area.top) / area.height) * rows));
        const j = Math.min(columns - 1, Math.floor(((event.clientX - area.left) / area.width) * columns));
        pick(first + i * columns + j);
      });
      canvas.addEventListener("keydown", (event) => {
        const move = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
        if (!move) return;
        event.preventDefault();
        const now = chosen >= first && chosen < first + rows * columns ? chosen : first;
        pick(Math.min(first + rows * columns - 1, Math.max(first, now + move)));
        document.querySelectorAll("#network canvas")[l].focus();
      });
      const caption = document.createElement("p");
      caption.className = "hint";
      caption.textContent = `layer ${l + 1}: ${rows} × ${columns}`;
      box.append(caption, canvas);
    });
  },

  rgb(text) {
    const hex = /^#(..)(..)(..)$/.exec(text.length === 4 ? text.replace(/[^#]/g, "$&$&") : text);
    return hex ? hex.slice(1).map((part) => parseInt(part, 16)) : [128, 128, 128];
  },

  // Curves over time; `series` are { name, points, tone }.
  curves(series, label, { high = 150, floor = 0, over = "time", from = 0 } = {}) {
    const wide = Math.max(220, byId("panel").clientWidth - 34), left = 62, bottom = 22;  // text keeps its size
    const svg = Draw.element("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": label });
    const points = series.flatMap((each) => each.points).filter((p) => Math.abs(p[1]) < 1e300);
    const end = Math.max(from + 1e-12, ...points.map((p) => p[0]));
    floor = Math.min(floor, 1e300) || 0;
    let low = Math.min(0, ...points.map((p) => p[1])), top = Math.max(floor, ...points.map((p) => p[1]));
    if (top - low < 1e-15) top = low + Math.max(floor, 1e-15);
    const x = (t) => left + ((t - from) / (end - from)) * (wide - left - 8), y = (v) => 8 + ((top - v) / (top - low)) * (high - bottom - 12);
    for (const value of [low, (low + top) / 2, top]) {
      svg.append(Draw.element("line", { class: "axis", x1: left, x2: wide - 8, y1: y(value), y2: y(value) }));
      svg.append(Draw.element("text", { x: left - 5, y: y(value) + 4, "text-anchor": "end" }, Draw.short(value)));
    }
    svg.append(Draw.element("text", { x: wide - 8, y: high - 4, "text-anchor": "end" }, `${label} over ${over} ${Draw.short(from)} to ${Draw.short(end)}`));
    for (const { name, points: line, tone } of series) {
      const path = line.filter((p) => Math.abs(p[1]) < 1e300).map((p, k) => `${k ? "L" : "M"}${x(p[0]).toFixed(1)} ${y(Math.max(low, Math.min(top, p[1]))).toFixed(1)}`).join("");
      const curve = Draw.element("path", { d: path, fill: "none", stroke: tone, "stroke-width": 2 });
      curve.append(Draw.element("title", {}, name));
      svg.append(curve);
    }
    return svg;
  },

  short: (value) => short(value),

  // The difference of two networks on a plane of two inputs: hue for the direction of its slope, light and dark for its
  // value, a border wherever the slope jumps.
  tiling(canvas, net, other, { axes, reach, base, output }) {
    const size = canvas.width, context = canvas.getContext("2d"), image = context.createImageData(size, size);
    const values = new Float64Array(size * size), slopes = [new Float64Array(size * size), new Float64Array(size * size)];
    const x = base.slice();
    let low = Infinity, high = -Infinity, steepest = 0, floor = 0;
    for (let r = 0; r < size; r++) for (let c = 0; c < size; c++) {
      x[axes[0]] = base[axes[0]] + reach * ((2 * (c + 0.5)) / size - 1);
      x[axes[1]] = base[axes[1]] + reach * (1 - (2 * (r + 0.5)) / size);
      const at = r * size + c, jet = Engine.jet(net, x, axes, output);
      floor = Math.max(floor, 1e-12 * Math.abs(jet[0]), 1e-12 * reach * Math.max(Math.abs(jet[1]), Math.abs(jet[2])));  // rounding
      Engine.jet(other, x, axes, output).forEach((v, k) => { jet[k] -= v; });
      [values[at], slopes[0][at], slopes[1][at]] = jet;
      low = Math.min(low, jet[0]); high = Math.max(high, jet[0]);
      steepest = Math.max(steepest, Math.abs(jet[1]), Math.abs(jet[2]));
    }
    steepest = Math.max(steepest, floor / reach);
    const jumps = (a, b) => Math.max(Math.abs(slopes[0][a] - slopes[0][b]), Math.abs(slopes[1][a] - slopes[1][b])) > Math.max(1e-7 * steepest, floor / reach);
    const dark = Stage.tone.dark, span = Math.max(high - low, floor) || 1;
    for (let at = 0; at < values.length; at++) {
      const [du, dv] = slopes.map((each) => (Math.abs(each[at]) > floor / reach ? each[at] : 0)), t = (values[at] - low) / span;
      const edge = (at % size && jumps(at, at - 1)) || (at >= size && jumps(at, at - size));
      const tint = Draw.tint((Math.atan2(dv, du) * 180) / Math.PI + 180, dark ? 0.18 + 0.42 * t : 0.5 + 0.44 * t, Math.hypot(du, dv) / (steepest || 1));
      image.data.set([...(edge ? tint.map((c) => 0.3 * c + 0.7 * (dark ? 230 : 30)) : tint), 255], 4 * at);
    }
    context.putImageData(image, 0, 0);
    return { low, high };
  },

  // Over a tiling: marked points.
  marks(points, { axes: [a, b], reach, base }) {
    const svg = Draw.element("svg", { viewBox: "-1 -1 2 2", class: "overlay", "aria-hidden": "true" });
    for (const point of points) svg.append(Draw.element("circle", { cx: (point[a] - base[a]) / reach, cy: -(point[b] - base[b]) / reach, r: 0.014, class: "mark" }));
    return svg;
  },

  tint(hue, light, strength = 1) {
    const a = (0.2 + 0.4 * Math.min(1, strength)) * Math.min(light, 1 - light);
    const f = (n) => { const k = (n + hue / 30) % 12; return Math.round(255 * (light - a * Math.max(-1, Math.min(k - 3, 9 - k, 1)))); };
    return [f(0), f(8), f(4)];
  },
};
