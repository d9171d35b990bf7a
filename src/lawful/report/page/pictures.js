"use strict";
// Pictures drawn from data at the width of their box: text of 13 px stays 13 px, and a resize draws anew.
const Pictures = (() => {
  const draw = (tag, attributes, parent, words) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (words !== undefined) made.textContent = words;
    parent.append(made);
    return made;
  };
  const html = (tag, attributes, ...children) => {
    const made = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) if (key.startsWith("on")) made[key] = value; else made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const width = (box) => Math.max(200, Math.round(box.clientWidth));
  const canvas = (box, wide, tall) => draw("svg", { viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": box.dataset.label }, box);
  // Three digits that matter, thousands with commas, 6·10⁻⁴ instead of 6.0e-04, a true minus.
  const raised = (text) => [...text].map((c) => ({ "-": "⁻" })[c] ?? "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]).join("");
  function short(value) {
    const size = Math.abs(value), sign = value < 0 ? "−" : "";
    if (size === 0) return "0";
    if (size >= 1e-3 && size < 1e6) return sign + Number(size.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 });
    const [digits, power] = size.toExponential(1).split("e");
    return `${sign}${digits.replace(/\.0$/, "")}·10${raised(String(Number(power)))}`;
  }
  const clip = (text, room) => text.length * 7.2 > room ? text.slice(0, Math.max(3, Math.floor(room / 7.2) - 1)) + "…" : text;
  const colours = () => {
    const style = getComputedStyle(document.documentElement);
    return (name) => { let c = style.getPropertyValue("--" + name).trim(); if (c.length === 4) c = c.replace(/[^#]/g, "$&$&"); return [1, 3, 5].map((k) => parseInt(c.slice(k, k + 2), 16)); };
  };

  // Weights as cells: colour by sign, strength by size.
  function cells(target, values, wide, largest, signed = true) {
    const tall = Math.ceil(values.length / wide), colour = colours();
    target.width = wide; target.height = tall;
    const pen = target.getContext("2d"), image = pen.createImageData(wide, tall);
    const ground = colour("card"), plus = colour(signed ? "plus" : "ink"), minus = colour("minus");
    values.forEach((value, k) => {
      const share = Math.min(1, Math.sqrt(Math.abs(value) / (largest || 1))), ink = value < 0 ? minus : plus;
      for (let i = 0; i < 3; i++) image.data[4 * k + i] = ground[i] + (ink[i] - ground[i]) * share;
      image.data[4 * k + 3] = 255;
    });
    pen.putImageData(image, 0, 0);
  }

  // What goes in and what comes out of each neuron, back to back on one scale.
  function pairs(box, { rows, left, right, note }) {
    const wide = width(box), middle = wide / 2, names = Math.min(110, Math.max(32, ...rows.map((row) => 8.6 * row[0].length + 12)));
    const largest = Math.max(...rows.map((row) => Math.max(row[1], row[2]))) || 1, half = middle - names / 2 - 4;
    // A number stands in its bar or beside it; where half the width has no room for both, bars are shorter.
    const numbers = 7.2 * Math.max(...rows.flatMap((row) => [short(row[1]).length, short(row[2]).length])) + 12;
    const unit = (half > 2.2 * numbers ? half : Math.max(12, half - numbers)) / largest;
    const svg = canvas(box, wide, 26 + 30 * rows.length + (note ? 24 : 0));
    draw("text", { x: middle - names / 2, y: 14, "text-anchor": "end" }, svg, left);
    draw("text", { x: middle + names / 2, y: 14 }, svg, right);
    rows.forEach(([name, first, second], k) => {
      const y = 24 + 30 * k;
      draw("text", { x: middle, y: y + 16, "text-anchor": "middle", class: "v" }, svg, clip(name, names));
      for (const [value, side] of [[first, -1], [second, 1]]) {
        const long = Math.max(1, value * unit), edge = middle + side * names / 2, words = short(value);
        draw("rect", { x: side < 0 ? edge - long : edge, y, width: long, height: 22, rx: 3, fill: "var(--plus)" }, svg);
        const inside = long > 8 * words.length + 12 && half > 2.2 * numbers;  // the number stands in its bar, or beside it
        draw("text", { x: edge + side * (inside ? 6 : long + 6), y: y + 16, "text-anchor": side < 0 ? "end" : "start", style: inside ? "fill:var(--card)" : "" }, svg, words);
      }
    });
    if (note) draw("text", { x: middle, y: 26 + 30 * rows.length + 16, "text-anchor": "middle" }, svg, clip(note, wide));
  }

  const STATES = { stay: ["var(--tint)", "var(--mark)", ""], go: ["none", "var(--dead)", "3 3"], open: ["none", "var(--lock)", "2 2"], lock: ["var(--lock)", "var(--lock)", ""] };
  // Neurons as squares, layer by layer; a state is a shape of line as well as a colour.
  function squares(box, { layers, note }) {
    const wide = width(box), most = Math.max(...layers.map((layer) => layer.cells.length));
    const side = Math.max(12, Math.min(40, most > 16 ? 24 : 40)), across = Math.max(1, Math.floor((wide - 4) / side));
    let y = 0;
    const svg = canvas(box, wide, 10);
    for (const layer of layers) {
      if (layers.length > 1) { draw("text", { x: 2, y: y + 14 }, svg, layer.name); y += 20; }
      layer.cells.forEach(([name, state], k) => {
        const [fill, stroke, dash] = STATES[state], size = side - 5;
        const square = draw("rect", { x: 2 + (k % across) * side, y: y + 2 + Math.floor(k / across) * side, width: size, height: size, rx: Math.min(6, size / 4), fill, stroke, "stroke-width": 1.5, "stroke-dasharray": dash }, svg);
        draw("title", {}, square, name);
      });
      y += Math.ceil(layer.cells.length / across) * side + 6;
    }
    for (const line of lines(note, wide)) { y += 18; draw("text", { x: 2, y: y - 2 }, svg, line); }
    svg.setAttribute("viewBox", `0 0 ${wide} ${y + 6}`);
  }
  function lines(words, wide) {
    const room = Math.floor(wide / 7), made = [];
    let line = "";
    for (const word of (words || "").split(" ")) { if (line && (line + " " + word).length > room) { made.push(line); line = word; } else line = line ? line + " " + word : word; }
    return line ? [...made, line] : made;
  }

  // A small network as it is: columns of neurons, lines by sign and size; what is known of a neuron is said below.
  function graph(box, { columns, edges, largest }) {
    const wide = width(box), tallest = Math.max(...columns.map((column) => column.length)), step = Math.max(30, Math.min(44, 360 / tallest));
    const tall = step * tallest + 18, svg = canvas(box, wide, tall), margin = Math.min(60, wide / 8);
    svg.classList.add("graph");
    svg.setAttribute("role", "group");
    const at = (column, row) => [columns.length < 2 ? wide / 2 : margin + column * (wide - 2 * margin) / (columns.length - 1), (tall - 18) * (row + 0.5) / columns[column].length];
    const longest = Math.max(...columns.flat().map((node) => Math.min(10, node.name.length)));
    const apart = columns.length < 2 ? wide : (wide - 2 * margin) / (columns.length - 1);  // no name over that of the next column
    const fits = (column) => (tall - 18) / columns[column].length >= 30 && apart > 7 * longest;
    for (const [a, b, c, d, weight] of edges) {
      const [x1, y1] = at(a, b), [x2, y2] = at(c, d);
      const line = draw("line", { x1, y1, x2, y2, stroke: weight === null ? "var(--soft)" : weight < 0 ? "var(--minus)" : "var(--plus)", "stroke-width": (0.4 + 3 * Math.abs(weight ?? 0.2) / (largest || 1)).toFixed(2), "stroke-opacity": 0.6 }, svg);
      draw("title", {}, line, `${columns[a][b].name} → ${columns[c][d].name}${weight === null ? "" : `: ${short(weight)}`}`);
    }
    columns.forEach((column, c) => column.forEach((node, r) => {
      const [x, y] = at(c, r), group = draw("g", node.note ? { tabindex: 0, "data-note": node.note, role: "img", "aria-label": node.note } : {}, svg);
      draw("circle", { cx: x, cy: y, r: 8, fill: node.mark || (node.hidden ? "var(--tint)" : "var(--card)"), stroke: "var(--ink)", "stroke-dasharray": node.gone ? "3 3" : "" }, group);
      if (fits(c)) draw("text", { x, y: y + 21, "text-anchor": "middle", style: "font-size:12px;paint-order:stroke;stroke:var(--card);stroke-width:3px" }, group, node.name.length > 10 ? node.name.slice(0, 9) + "…" : node.name);
      const tell = () => { box.querySelector("output").textContent = node.note; };
      if (node.note) { group.addEventListener("mouseenter", tell); group.addEventListener("focus", tell); }
    }));
    box.append(html("output", { class: "k" }, "Point at a neuron, or tab to it."));
  }

  // Named values, a bar each; a mark says how large it is now.
  function bars(box, { rows, note, marked }) {
    const wide = width(box), largest = Math.max(...rows.map((row) => Math.max(Math.abs(row[1]), Math.abs(row[2] ?? 0)))) || 1;
    const svg = canvas(box, wide, 32 * rows.length + 20 * lines(note, wide).length + 4);
    rows.forEach(([name, value, mark], k) => {
      const y = 32 * k, words = short(value) + (mark === undefined || mark === null ? "" : `, ${marked} ${short(mark)}`);
      draw("text", { x: 0, y: y + 12 }, svg, clip(name, wide - 7.5 * words.length - 10));
      draw("text", { x: wide, y: y + 12, "text-anchor": "end", class: "v" }, svg, words);
      draw("rect", { x: 0, y: y + 17, width: Math.max(1, Math.abs(value) / largest * wide), height: 7, rx: 3, fill: mark === undefined || mark === null ? value < 0 ? "var(--minus)" : "var(--mark)" : "var(--lock)" }, svg);
      if (mark !== undefined && mark !== null) draw("rect", { x: Math.min(wide - 2, Math.abs(mark) / largest * wide), y: y + 14, width: 2.5, height: 13, fill: "var(--ink)" }, svg);
    });
    lines(note, wide).forEach((line, k) => draw("text", { x: 0, y: 32 * rows.length + 16 + 20 * k }, svg, line));
  }

  // One neuron at three scales: other numbers, the same function.
  function twins(box, { name, incoming, outgoing, side }) {
    const wide = width(box), third = wide / 3, size = third * 0.42, across = side || incoming.length;
    const svg = canvas(box, wide, size + 48);
    const most = 2 * Math.max(...incoming.map(Math.abs)), loud = 2 * Math.max(...outgoing.map(Math.abs));
    draw("text", { x: 0, y: 12 }, svg, clip(`neuron ${name}: its incoming weights, and its outgoing weights as bars`, wide));
    [0.5, 1, 2].forEach((factor, k) => {
      const left = k * third;
      const holder = draw("foreignObject", { x: left, y: 20, width: size, height: size }, svg), cell = html("canvas", { "aria-hidden": "true", style: `width:${size}px;height:${side ? size : Math.min(size, 28)}px;image-rendering:pixelated;display:block;border-radius:4px;outline:1px solid var(--line)` });
      holder.append(cell);
      cells(cell, incoming.map((value) => value * factor), across, most);
      const room = third - size - 20, bar = Math.min(16, room / outgoing.length);
      outgoing.forEach((value, n) => {
        const tall = (value / factor / (loud || 1)) * size / 2;
        draw("rect", { x: left + size + 8 + n * bar, y: 20 + size / 2 - Math.max(0, tall), width: Math.max(0.7, bar - 1), height: Math.max(0.8, Math.abs(tall)), fill: value < 0 ? "var(--minus)" : "var(--plus)" }, svg);
      });
      draw("text", { x: left, y: size + 40 }, svg, clip({ 0.5: "in × ½, out × 2", 1: "as it is", 2: "in × 2, out × ½" }[factor], third - 4));
    });
  }

  // Blocks as rows: what each conserves by symmetry, its balances as points, what is dead in it.
  function rows(box, { heads, rows, kinds, unit }) {
    const table = html("div", { class: "blocks", role: "img", "aria-label": box.dataset.label });
    table.append(html("div", { class: "row" }, ...heads.map((words) => html("span", {}, words))));
    box.append(table);
    const most = Math.max(1, ...rows.map((row) => row.parts.reduce((sum, part) => sum + part, 0)));
    const low = Math.min(0, ...rows.flatMap((row) => row.points)), high = Math.max(0, ...rows.flatMap((row) => row.points));
    for (const [place, row] of rows.entries()) {
      const stack = html("div", {}), scatter = html("div", {}), line = html("div", { class: "row" }, html("span", { class: "n" }, row.name), stack, scatter, html("span", { class: "dead" }, row.dead));
      table.append(line);
      const wide = width(stack), svg = draw("svg", { viewBox: `0 0 ${wide} 28`, "aria-hidden": "true" }, stack);
      let x = 0;
      row.parts.forEach((part, k) => {
        if (!part) return;
        const long = Math.max(3, part / most * wide - 2), bar = draw("rect", { x, y: 0, width: long, height: 28, rx: 3, fill: kinds[k].colour }, svg);
        draw("title", {}, bar, `${part.toLocaleString("en")} ${unit}: ${kinds[k].words}`);
        if (long > 9 * String(part).length + 8) draw("text", { x: x + 6, y: 19, style: "fill:var(--on);font-weight:600" }, svg, part.toLocaleString("en"));
        x += long + 2;
      });
      if (!row.points.length) continue;
      const across = width(scatter), last = place === rows.findLastIndex((each) => each.points.length), dots = draw("svg", { viewBox: `0 0 ${across} ${last ? 44 : 28}`, "aria-hidden": "true" }, scatter);
      const at = (value) => 6 + (value - low) / ((high - low) || 1) * (across - 12);
      draw("line", { class: "axis", x1: 0, x2: across, y1: 26, y2: 26 }, dots);
      draw("line", { class: "axis", x1: at(0), x2: at(0), y1: 2, y2: 26 }, dots);
      row.points.forEach((value, k) => draw("circle", { cx: at(value).toFixed(1), cy: (5 + ((k * 7919) % 17)).toFixed(1), r: 2.2, fill: "var(--mark)", "fill-opacity": 0.5 }, dots));
      if (last) {
        const ends = [[low, 0, "start"], [high, across, "end"]].filter(([value]) => value !== 0);
        if (low < 0 && high > 0 ? at(0) > 60 && at(0) < across - 60 : true) draw("text", { x: Math.max(4, Math.min(across - 4, at(0))), y: 42, "text-anchor": low === 0 ? "start" : high === 0 ? "end" : "middle" }, dots, "0");
        for (const [value, x, anchor] of ends) draw("text", { x, y: 42, "text-anchor": anchor }, dots, short(value));
      }
    }
    box.append(html("ul", { class: "key" }, ...kinds.map((kind) => html("li", {}, html("i", { style: `--c:${kind.colour}` }), kind.words))));
  }

  // First-layer neurons by what they look at; where the weights came along, both networks answer an input.
  function tiles(box, data) {
    const { neurons, side, live } = data, largest = Math.max(...neurons.flatMap((neuron) => neuron.weights.map(Math.abs)));
    const gone = neurons.filter((neuron) => neuron.gone).length;
    const holder = html("div", { class: live ? "parts" : "", role: "group", "aria-label": box.dataset.label });
    box.append(holder);
    const told = html("p", { class: "k", style: "margin:.6rem 0 0;min-height:3em" });
    const grid = html("div", { class: "tiles" }, ...neurons.map((neuron) => {
      const zero = neuron.weights.every((value) => value === 0), cell = html("canvas", { "aria-hidden": "true" });
      cells(cell, neuron.weights, side || neuron.weights.length, largest);
      const tell = () => told.replaceChildren(html("span", {}, `Neuron ${neuron.name} `), html("small", {}, neuron.words));
      return html("button", { type: "button", class: `tile${neuron.gone ? " gone" : ""}${zero ? " zero" : ""}`, "aria-label": `neuron ${neuron.name}: ${neuron.words}`, onclick: tell, onpointerenter: tell, onfocus: tell }, cell);
    }));
    const middle = html("div", {});
    if (gone) {
      const choose = (after) => { box.classList.toggle("after", after); one.setAttribute("aria-pressed", !after); two.setAttribute("aria-pressed", after); };
      const one = html("button", { type: "button", "aria-pressed": "true", onclick: () => choose(false) }, `Before: ${neurons.length} neurons`);
      const two = html("button", { type: "button", "aria-pressed": "false", onclick: () => choose(true) }, `After: ${neurons.length - gone}`);
      middle.append(html("div", { class: "toggle", role: "group", "aria-label": "network" }, one, two));
    }
    told.append(html("small", {}, data.note));
    middle.append(grid, told);
    if (live) answer(holder, middle, data); else holder.append(middle);
  }

  // Networks as lists of matrices, evaluated in the browser: floating point, for looking, not for proving.
  function evaluate(network, input) {
    let value = input;
    network.weights.forEach((matrix, layer) => {
      const bias = network.biases[layer];
      value = matrix.map((row, k) => row.reduce((sum, weight, j) => sum + weight * value[j], bias ? bias[k] : 0));
      if (layer < network.slopes.length) value = value.map((v) => (v > 0 ? v : network.slopes[layer] * v));
    });
    return value;
  }
  function answer(holder, middle, { side, live }) {
    const { before, after, examples } = live, largest = live.largest || 1;
    let input = examples[0].slice(), fresh = true;
    const picture = html("canvas", { class: "paint", role: "img", "aria-label": "the input that both networks read; paint it with the pointer" });
    const choice = html("div", { class: "pick" }, ...examples.slice(0, 10).map((example, k) => html("button", { type: "button", "aria-label": `example ${k + 1}`, onclick: () => { input = example.slice(); fresh = true; show(); } }, String(k + 1))));
    const reads = html("h3", {}), words = html("p", { class: "k", style: "margin:0 0 .5rem" }), plot = html("div", { "data-label": "outputs before and after" });
    holder.append(html("div", {}, html("h3", {}, "An input ", html("small", {}, "or paint one")), picture, choice), middle, html("div", {}, reads, words, plot));
    function show() {
      cells(picture, input, side, largest, false);
      const one = evaluate(before, input), two = evaluate(after, input), apart = Math.max(...one.map((value, k) => Math.abs(value - two[k])));
      const best = one.indexOf(Math.max(...one)), same = best === two.indexOf(Math.max(...two));
      reads.textContent = same ? `Output ${best} is the largest, before and after` : "The largest outputs are not the same";
      words.replaceChildren(html("small", {}, `above before, below after; largest difference in floating point ${short(apart)}`));
      plot.replaceChildren();
      const wide = width(plot), svg = canvas(plot, wide, 26 * one.length), top = Math.max(...one.map(Math.abs), ...two.map(Math.abs)) || 1, reach = wide - 26 - 56;
      one.forEach((value, k) => {
        const y = 26 * k;
        draw("text", { x: 12, y: y + 17, "text-anchor": "middle", class: k === best ? "v" : "" }, svg, k);
        [[value, "var(--soft)"], [two[k], "var(--mark)"]].forEach(([each, fill], n) => draw("rect", { x: 26, y: y + 3 + 10 * n, width: Math.max(1.5, Math.abs(each) / top * reach), height: 9, rx: 2, fill, "fill-opacity": each < 0 ? 0.45 : 1 }, svg));
        draw("text", { x: wide, y: y + 17, "text-anchor": "end", class: k === best ? "v" : "" }, svg, short(value));
      });
    }
    const dab = (event) => {
      const box = picture.getBoundingClientRect(), x = Math.floor((event.clientX - box.left) / box.width * side), y = Math.floor((event.clientY - box.top) / box.height * side);
      for (let b = -1; b < 2; b++) for (let a = -1; a < 2; a++) {
        const u = x + a, v = y + b;
        if (u >= 0 && u < side && v >= 0 && v < side) input[v * side + u] = Math.min(largest, input[v * side + u] + largest * (a || b ? (a && b ? 0 : 0.12) : 0.8));
      }
      show();
    };
    picture.onpointerdown = (event) => { if (fresh) input = input.map(() => 0); fresh = false; picture.setPointerCapture(event.pointerId); dab(event); };
    picture.onpointermove = (event) => { if (event.buttons) dab(event); };
    show();
  }

  // Two values a row, one under the other on one signed scale: what A gives and what B gives.
  function versus(box, { rows, names, note }) {
    const wide = width(box), label = 30, numbers = 76, room = wide - label - numbers, under = lines(note, wide);
    const all = rows.flatMap((row) => row.slice(1)), low = Math.min(0, ...all), high = Math.max(0, ...all), unit = room / ((high - low) || 1), zero = label - low * unit;
    const svg = canvas(box, wide, 24 + 42 * rows.length + 20 * under.length);
    names.forEach((name, k) => { draw("rect", { x: label + 60 * k, y: 4, width: 10, height: 10, rx: 2, fill: k ? "var(--minus)" : "var(--plus)" }, svg); draw("text", { x: label + 60 * k + 16, y: 14 }, svg, name); });
    draw("line", { class: "axis", x1: zero, x2: zero, y1: 22, y2: 22 + 42 * rows.length }, svg);
    rows.forEach(([name, ...pair], r) => {
      draw("text", { x: label - 8, y: 24 + 42 * r + 22, "text-anchor": "end", class: "v" }, svg, name);
      pair.forEach((value, k) => {
        const y = 26 + 42 * r + 17 * k;
        draw("rect", { x: Math.min(zero, zero + value * unit), y, width: Math.max(1, Math.abs(value * unit)), height: 14, rx: 2, fill: k ? "var(--minus)" : "var(--plus)" }, svg);
        draw("text", { x: wide, y: y + 11, "text-anchor": "end" }, svg, short(value));
      });
    });
    under.forEach((line, k) => draw("text", { x: 0, y: 24 + 42 * rows.length + 14 + 20 * k }, svg, line));
  }

  // All weights of two networks, one above the other on one scale: what looks unrelated may be one function.
  function weights(box, { sides }) {
    const largest = Math.max(...sides.flatMap((side) => side.weights.map(Math.abs)));
    const holder = html("div", { role: "img", "aria-label": box.dataset.label });
    box.append(holder);
    for (const side of sides) {
      const cell = html("canvas", { "aria-hidden": "true", style: "width:100%;image-rendering:pixelated;display:block;border-radius:4px;outline:1px solid var(--line);margin-bottom:.8rem" });
      holder.append(html("div", { class: "k" }, `${side.name}: ${side.weights.length.toLocaleString("en")} weights`), cell);
      cells(cell, side.weights, Math.min(side.weights.length, Math.max(24, Math.ceil(Math.sqrt(6 * side.weights.length)))), largest);
    }
  }

  // Checkpoints on lines that meet where they are alike: 1 at the right, 0 at the left. The first leaf is in colour.
  function tree(box, { leaves, joins, note }) {
    const wide = width(box), under = lines(note, wide), names = Math.min(wide * 0.5, Math.max(...leaves.map((leaf) => 7.4 * (leaf.name.length + leaf.note.length) + 30)));
    const left = 16, right = wide - names, step = 26, tall = 26 + step * leaves.length;
    const svg = canvas(box, wide, tall + 4 + 20 * under.length), x = (alike) => left + alike * (right - left);
    for (const alike of [0, 0.5, 1]) {
      draw("path", { d: `M${x(alike)} 20V${tall - 4}`, stroke: "var(--line)" }, svg);
      draw("text", { x: x(alike), y: 13, "text-anchor": alike ? "middle" : "start" }, svg, alike ? String(alike) : "0");
    }
    // Leaves in the order in which the tree holds them, so that no lines cross.
    const inside = (group) => (group < leaves.length ? [group] : joins[group - leaves.length].slice(0, 2).flatMap(inside));
    const order = inside(leaves.length + joins.length - 1), place = [];
    order.forEach((leaf, row) => { place[leaf] = [right, 34 + step * row]; });
    const own = new Set([0]);
    joins.forEach(([a, b, alike], k) => {
      const at = Math.min(x(alike), place[a][0], place[b][0]);  // means may rise a little: no line turns back
      for (const group of [a, b]) draw("path", { d: `M${place[group][0]} ${place[group][1]}H${at}V${(place[a][1] + place[b][1]) / 2}`, fill: "none", stroke: own.has(group) ? "var(--mark)" : "var(--soft)", "stroke-width": own.has(group) ? 2.5 : 1.5 }, svg);
      if (own.has(a) || own.has(b)) own.add(leaves.length + k);
      place.push([at, (place[a][1] + place[b][1]) / 2]);
    });
    leaves.forEach(({ name, note: words }, leaf) => {
      const y = place[leaf][1] + 5, label = draw("text", { x: right + 8, y, class: leaf ? "" : "v", style: leaf ? "" : "font-weight:700" }, svg, clip(name, names - 7.5 * words.length - 24));
      draw("title", {}, label, name);
      draw("text", { x: wide, y, "text-anchor": "end" }, svg, words);
    });
    under.forEach((line, k) => draw("text", { x: 0, y: tall + 16 + 20 * k }, svg, line));
  }

  const KINDS = { tree, versus, weights, pairs, squares, graph, bars, twins, rows, tiles };
  function all() {
    for (const box of document.querySelectorAll("[data-picture]")) {
      if (!box.clientWidth) continue;  // inside a closed fold: drawn when it opens
      const data = JSON.parse(box.querySelector('script[type="application/json"]').textContent);
      [...box.children].forEach((child) => { if (child.tagName !== "SCRIPT") child.remove(); });
      KINDS[box.dataset.picture](box, data);
    }
  }
  return { all, short, kinds: KINDS, draw, canvas, width };
})();
{
  let wide = 0;
  const again = () => { if (innerWidth !== wide) { wide = innerWidth; Pictures.all(); } };
  again();
  addEventListener("resize", again);
  for (const fold of document.querySelectorAll("details")) fold.addEventListener("toggle", () => { if (fold.open) Pictures.all(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", Pictures.all);
  document.getElementById("theme")?.addEventListener("click", () => {
    const root = document.documentElement;
    root.dataset.theme = getComputedStyle(root).colorScheme === "dark" ? "light" : "dark";
    Pictures.all();
  });
}
