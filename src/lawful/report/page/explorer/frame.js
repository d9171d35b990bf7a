// What the page holds, its state, and small makers of elements.

const data = JSON.parse(document.getElementById("data").textContent);
const given = data.network, places = Engine.places(given);
const byId = (id) => document.getElementById(id);
const state = { tab: "laws", law: 0, step: -1.5, output: 0, plane: 0, neuron: "0,0", walk: 0 };

const LIMITS = { step: [-3.5, 0], walk: [0, 1] };

function node(tag, options = {}, ...children) {
  const { text, ...rest } = options;
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(rest)) name.startsWith("on") ? made.addEventListener(name.slice(2), value) : made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  made.append(...children);
  return made;
}

const chip = (strong, rest, command) => node("p", { class: "chip" }, node("b", { text: strong }), ` ${rest} `, command ? node("code", { text: command }) : "");

function slider(label, key, show, changed, [low, high] = LIMITS[key]) {
  const value = node("output", { text: show(state[key]) });
  const input = node("input", { type: "range", min: low, max: high, step: "any", value: state[key], "aria-label": label });
  input.addEventListener("input", () => { state[key] = Number(input.value); value.textContent = show(state[key]); changed(); Address.save(); });
  return node("label", {}, node("span", { text: label + " " }), value, input);
}

function choice(label, key, options, changed) {
  const list = node("select", { "aria-label": label });
  for (const [value, text] of options) list.append(node("option", { value, text }));
  list.value = String(state[key]);
  list.addEventListener("change", () => { state[key] = typeof state[key] === "number" ? Number(list.value) : list.value; changed(); Address.save(); });
  return node("label", {}, node("span", { text: label + " " }), list);
}

// Three digits that matter, 6·10⁻⁴ instead of 6.0e-4, a true minus.
function short(value, digits = 3) {
  const size = Math.abs(value), sign = value < 0 ? "−" : "";
  if (size === 0) return "0";
  if (!Number.isFinite(value)) return "none";
  if (size >= 1e-3 && size < 1e6) return sign + Number(size.toPrecision(digits)).toLocaleString("en", { maximumSignificantDigits: digits });
  const [mantissa, power] = size.toExponential(Math.max(0, digits - 2)).split("e");
  return `${sign}${mantissa.replace(/\.0+$/, "")}·10${[...String(Number(power))].map((c) => ({ "-": "⁻" })[c] ?? "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]).join("")}`;
}

async function copied(text, button) {
  try { await navigator.clipboard.writeText(text); }
  catch { const area = node("textarea"); area.value = text; document.body.append(area); area.select(); document.execCommand("copy"); area.remove(); }
  const words = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = words; }, 1200);
}
