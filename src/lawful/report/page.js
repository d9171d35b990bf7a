"use strict";
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
// Save a table's own data as CSV or JSON.
function csv(rows) {
  const quote = (value) => `"${String(value ?? "").replaceAll('"', '""')}"`;
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
// A run: the slider chooses a snapshot, and the drawn weights follow.
for (const film of document.querySelectorAll("[data-film]")) {
  const { labels, weights, largest } = JSON.parse(film.querySelector('script[type="application/json"]').textContent);
  const lines = [...film.querySelectorAll("svg line")], slider = film.querySelector("input"), output = film.querySelector("output");
  const show = () => {
    const frame = Number(slider.value);
    weights[frame].forEach((weight, edge) => {
      lines[edge].setAttribute("stroke", weight < 0 ? "#c8553d" : "#2a6f97");
      lines[edge].setAttribute("stroke-width", 0.3 + 2.7 * Math.abs(weight) / largest);
    });
    output.textContent = labels[frame];
  };
  slider.addEventListener("input", show);
  show();
}
