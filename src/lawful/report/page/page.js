// Sort a table by a column: numbers by value, everything else as text.
function cellValue(row, column) {
  const cell = row.cells[column];
  return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
}
for (const table of document.querySelectorAll(".table table")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    heads.forEach((other) => other.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = [...table.tBodies[0].rows].sort((a, b) => {
      const x = cellValue(a, column), y = cellValue(b, column);
      const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
      return up ? order : -order;
    });
    table.tBodies[0].append(...rows);
  }));
}
// Long tables begin with their first rows.
const FIRST = 24;
for (const table of document.querySelectorAll(".table table")) {
  if (table.tBodies[0].rows.length <= FIRST + 8) continue;
  const holder = table.closest(".table"), button = document.createElement("button");
  holder.classList.add("short");
  button.type = "button";
  button.textContent = `show all ${table.tBodies[0].rows.length} rows`;
  button.addEventListener("click", () => { holder.classList.remove("short"); button.remove(); });
  holder.querySelector(".get").prepend(button, " ");
}
// Save a table's own data as CSV or JSON.
function csv(rows) {
  // A text that a spreadsheet would compute gets an apostrophe before it.
  const formula = (value) => typeof value === "string" && /^ *[=+\-@\t\r\n|%]/.test(value) && Number.isNaN(Number(value));
  const quote = (value) => `"${(formula(value) ? "'" : "") + String(value ?? "").replaceAll('"', '""')}"`;
  const names = Object.keys(rows[0] ?? {});
  return [names, ...rows.map((row) => names.map((name) => row[name]))].map((row) => row.map(quote).join(",")).join("\n");
}
for (const button of document.querySelectorAll("[data-get]")) {
  button.addEventListener("click", () => {
    const rows = JSON.parse(button.closest(".table").querySelector('script[type="application/json"]').textContent);
    const kind = button.dataset.get;
    const text = kind === "csv" ? csv(rows) : JSON.stringify(rows, null, 1);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: kind === "csv" ? "text/csv" : "application/json" }));
    link.download = `table.${kind}`;
    link.click();
    URL.revokeObjectURL(link.href);
  });
}
// Notes about neurons: shown below the picture when pointed at or focused.
for (const node of document.querySelectorAll("[data-note]")) {
  const output = node.closest("figure").querySelector("output");
  const tell = () => { output.textContent = node.dataset.note; };
  node.addEventListener("mouseenter", tell);
  node.addEventListener("focus", tell);
}
// Curves: pointing at one (or moving a slider) reads the values there, in every panel of the page with the same axis.
const SVG = "http://www.w3.org/2000/svg";
const plots = [...document.querySelectorAll("svg[data-plot]")].map((svg) => ({ svg, ...JSON.parse(svg.dataset.plot) }));
const short = (value) => Number.isFinite(value) ? Pictures.short(value) : "";
function shareOf([low, high, log], value) {
  return log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
}
function point(value, name, from) {
  for (const plot of plots) {
    if (plot.name !== name || (!name && plot.svg !== from)) continue;
    const share = shareOf(plot.x, value), [left, right, top, bottom] = plot.box;
    let line = plot.svg.querySelector("[data-cursor]");
    if (!line) { line = plot.svg.appendChild(document.createElementNS(SVG, "line")); line.dataset.cursor = ""; }
    const x = left + (right - left) * Math.min(1, Math.max(0, share));
    for (const [key, number] of Object.entries({ x1: x, x2: x, y1: top, y2: bottom })) line.setAttribute(key, number);
    const reads = plot.curves.slice(0, 4).map(({ label, x: xs, y: ys }) => {
      let best = 0;
      xs.forEach((each, place) => { if (Math.abs(each - value) < Math.abs(xs[best] - value)) best = place; });
      return `${label || plot.y || "value"} ${short(ys[best])}`;
    });
    plot.read = `${name || "at"} ${short(value)}: ${reads.join(", ")}${plot.curves.length > 4 ? ", ..." : ""}`;
  }
  for (const figure of document.querySelectorAll("figure.plot")) {
    const mine = plots.filter((plot) => plot.read && figure.contains(plot.svg)).map((plot) => plot.read);
    if (mine.length) figure.querySelector("output").textContent = mine.join("; ");
  }
}
for (const plot of plots) {
  plot.svg.addEventListener("pointermove", (event) => {
    const box = plot.svg.getBoundingClientRect(), wide = plot.svg.viewBox.baseVal.width;
    const [left, right] = plot.box, share = ((event.clientX - box.left) / box.width * wide - left) / (right - left);
    if (share < 0 || share > 1) return;
    const [low, high, log] = plot.x;
    point(log ? low * (high / low) ** share : low + (high - low) * share, plot.name, plot.svg);
  });
}
// A run: the slider chooses a snapshot, and the drawn weights follow.
for (const film of document.querySelectorAll("[data-film]")) {
  const { labels, weights, largest, times } = JSON.parse(film.querySelector('script[type="application/json"]').textContent);
  const lines = [...film.querySelectorAll("svg line")], slider = film.querySelector("input"), output = film.querySelector("output");
  const show = () => {
    const frame = Number(slider.value);
    weights[frame].forEach((weight, edge) => {
      lines[edge].setAttribute("stroke", weight < 0 ? "var(--minus)" : "var(--plus)");
      lines[edge].setAttribute("stroke-width", 0.3 + 2.7 * Math.abs(weight) / largest);
    });
    output.textContent = labels[frame];
    if (times) point(times[frame], "time", null);
  };
  slider.addEventListener("input", show);
  show();
  // The columns of neurons spread over the width of the box; circles and names keep their size.
  const drawing = film.querySelector("svg"), { width: drawn, height } = drawing.viewBox.baseVal, edge = 40;
  const ends = [...drawing.querySelectorAll("line, circle, text")].flatMap((each) => ["x", "x1", "x2", "cx"].filter((name) => each.hasAttribute(name)).map((name) => [each, name, Number(each.getAttribute(name))]));
  const spread = () => {
    const wide = film.clientWidth;
    if (wide < 100 || drawn <= 2 * edge) return;
    drawing.setAttribute("viewBox", `0 0 ${wide} ${height}`); drawing.setAttribute("width", wide);
    for (const [each, name, at] of ends) each.setAttribute(name, edge + (at - edge) * (wide - 2 * edge) / (drawn - 2 * edge));
  };
  spread();
  addEventListener("resize", spread);
}
// Commands to copy.
document.addEventListener("click", async (event) => {
  const button = event.target.closest(".cmd button");
  if (!button) return;
  const command = button.previousElementSibling;
  try { await navigator.clipboard.writeText(command.textContent); }
  catch { getSelection().selectAllChildren(command); document.execCommand("copy"); }  // a page opened as a file
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1200);
});
