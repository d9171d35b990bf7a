// The page that waits for a file: it reads it here, in the browser, and becomes its explorer.
(() => {
  const MOST_WEIGHTS = 20_000, MOST_LAWS = 400, byId = (id) => document.getElementById(id), blank = document.documentElement.outerHTML;
  const number = (value) => value.toLocaleString("en"), plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
  const quote = (name) => (/^[\w@%+=:,./-]+$/.test(name) ? name : `'${name.replaceAll("'", `'"'"'`)}'`);
  const ACTIVATIONS = { relu: 0, "leaky_relu(0.01)": 0.01, linear: 1 };
  let started = false;

  // Random inputs, and the outputs of a smooth random function to learn: the file brings no data.
  function samples(inputs, outputs) {
    let seed = 7;
    const gauss = () => { let sum = -6; for (let k = 0; k < 12; k++) { seed = (seed * 16807) % 2147483647; sum += seed / 2147483647; } return sum; };
    const x = Array.from({ length: 32 }, () => Array.from({ length: inputs }, gauss)), map = Array.from({ length: outputs }, () => Array.from({ length: inputs }, gauss));
    return [x, x.map((row) => map.map((w) => Math.tanh(w.reduce((sum, v, j) => sum + v * row[j], 0))))];
  }
  // What one knows of any chain of layers without counting: each neuron's balance, incoming minus outgoing squares.
  function balances({ widths, biases }) {
    const starts = [], laws = [];
    let size = 0;
    for (let l = 0; l + 1 < widths.length; l++) { starts.push(size); size += widths[l + 1] * (widths[l] + (biases[l] ? 1 : 0)); }
    for (let l = 0; l + 2 < widths.length; l++) for (let i = 0; i < widths[l + 1]; i++) {
      if (laws.length === MOST_LAWS) return laws;
      const terms = [], add = (k, sign) => terms.push([[k, k], sign]);  // a square, by the number of its weight
      for (let j = 0; j < widths[l]; j++) add(starts[l] + i * widths[l] + j, 1);
      if (biases[l]) add(starts[l] + widths[l + 1] * widths[l] + i, 1);
      for (let j = 0; j < widths[l + 2]; j++) add(starts[l + 1] + j * widths[l + 1] + i, -1);
      laws.push({ name: `balance of h${l + 1}.${i}`, terms });
    }
    return laws;
  }
  // Nothing is proved here: a chip says what the browser computed, and the command that would certify it.
  function claims(net, file, options) {
    const hidden = net.widths.slice(1, -1).reduce((sum, n) => sum + n, 0), certify = "Nothing was proved in the browser. To have it certified, and checked by an independent checker:";
    const one = (kind, scope, what, command) => ({ kind, scope, what, command, open: false, here: true, holds: "computed here, in floating point", more: certify });
    return [
      { ...one("laws", "any", hidden ? `${plural(hidden, "balance")}, one for each hidden neuron, ${hidden === 1 ? "is" : "are"} conserved by gradient flow; others were not looked for.` : "It has no hidden neuron and so no balance.", `lawful laws ${file}${options} --certificate laws.json && lawful verify laws.json`), here: false, open: true, holds: "at least; that there are no others was not counted" },
      one("locks", "weights", "", "lawful components {file} --certificate components.json && lawful verify components.json {file}"),
      { ...one("pruned", "weights", "Which neurons can be removed was not asked.", "lawful prune {file} --out pruned.safetensors --certificate pruned.json && lawful verify pruned.json"), here: false, open: true, holds: "not decided in the browser" },
      one("function", "weights", "", `lawful same ${file} {edited}${options}`),
    ];
  }
  function explorerData(name, net, options, lead) {
    const [inputs, targets] = samples(net.widths[0], net.widths.at(-1)), activation = { 0: "relu", 1: "linear" }[net.slopes[0] ?? 1] ?? `leaky_relu(${net.slopes[0]})`;
    return {
      source: name, asked: quote(name) + options, file: quote(name), editedOptions: `--activation '${activation}'`, middle: targets[0].map((_, k) => targets.reduce((sum, row) => sum + row[k], 0) / targets.length),
      claims: claims(net, quote(name), options), otherCommand: "", network: net, other: null, inputs, targets, madeUp: true, laws: balances(net), count: null,
      locked: null, hidden: null, path: null, pruned: null, verdict: null, title: "", lead,
    };
  }

  function start(data) {
    started = true;
    byId("data").textContent = JSON.stringify(data).replaceAll("<", "\\u003c");
    document.title = `${data.source} - explorer`;
    document.body.classList.remove("waiting");
    byId("name").textContent = data.source;
    const program = document.createElement("script");
    program.textContent = JSON.parse(byId("program").textContent);
    document.body.append(program);
    const button = (text, press) => { const made = document.createElement("button"); made.type = "button"; made.textContent = text; made.addEventListener("click", press); document.querySelector(".tools").append(made); };
    button("Another file", () => location.assign(location.href.split("#")[0]));
    button("Save this page", () => save(new Blob([pageOf(data)], { type: "text/html" }), `${data.source}.html`));
  }
  // The same page with its network inside: it opens as an explorer, from a disk as well.
  const pageOf = (data) => `<!doctype html>\n${blank.replace(/(<script type="application\/json" id="data">)[^<]*/, (_, tag) => tag + JSON.stringify(data).replaceAll("<", "\\u003c"))}`;
  function save(blob, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob); link.download = name; link.click();
    URL.revokeObjectURL(link.href);
  }

  function showBlocks(name, rows) {
    const total = rows.reduce((sum, row) => sum + row.numbers, 0), most = Math.max(1, ...rows.map((row) => row.numbers)), box = byId("blocks");
    const cell = (tag, text, kind) => { const made = document.createElement(tag); made.textContent = text; if (kind) made.className = kind; return made; };
    const table = document.createElement("table"), head = document.createElement("tr");
    for (const words of ["block", "tensors", "numbers", "zeros", "root mean square"]) head.append(cell("th", words));
    table.append(head);
    for (const row of rows.slice(0, 200)) {
      const line = document.createElement("tr"), bar = cell("td", number(row.numbers), "bar");
      bar.style.setProperty("--share", `${(100 * row.numbers) / most}%`);
      const rms = Math.sqrt(row.squares / Math.max(1, row.numbers - row.zeros - row.broken));
      line.append(cell("td", row.name), cell("td", number(row.tensors)), bar, cell("td", row.zeros ? `${number(row.zeros)} (${Math.round((100 * row.zeros) / row.numbers)}%)` : "0"), cell("td", row.broken ? `${plural(row.broken, "number")} NaN or infinite` : String(Number(rms.toPrecision(3)))));
      table.append(line);
    }
    byId("drop-head").textContent = `${plural(total, "number")} in ${plural(rows.length, "block")}`;
    const words = cell("p", `${name} is no chain of at most ${number(MOST_WEIGHTS)} weights, so it cannot be moved here. This is what it holds, computed here in floating point; zeros are exact. With the class that it belongs to, the command line says what can be removed and what training conserves:`);
    const command = cell("code", `lawful audit ${quote(name)} --model mynets.py:make_model --input 3,32,32 --html audit.html`);
    box.replaceChildren(words, command, table, ...(rows.length > 200 ? [cell("p", `and ${number(rows.length - 200)} more blocks`)] : []));
    byId("zone").hidden = true;
  }

  async function take(file) {
    const say = byId("refusal"), name = file.name || "network", chosen = byId("activation").value;
    say.textContent = "";
    try {
      const held = await Tensors.read(name, new Uint8Array(await file.arrayBuffer())), isGraph = held.kind === "json";
      const net = isGraph ? Layers.ofGraph(held.graph, ACTIVATIONS[chosen], MOST_WEIGHTS) : Layers.network(held, ACTIVATIONS[chosen], MOST_WEIGHTS);
      if (!net) { if (started) location.assign(URL.createObjectURL(new Blob([pageOf(null)], { type: "text/html" }))); return showBlocks(name, Layers.blocks(held.arrays)); }
      const stated = isGraph ? held.graph.activation !== undefined : held.slopes !== null, words = { relu: "ReLU", linear: "no activation" }[chosen] ?? "leaky ReLU";
      const shape = net.widths.join("-"), lead = `${name}: ${shape}${stated || net.widths.length < 3 ? "" : `, with ${words} assumed between the layers, as the file does not say`}. Nothing left this page, and nothing is proved until you run a command below.`;
      const data = explorerData(name, net, stated || net.widths.length < 3 ? "" : ` --activation '${chosen}'`, lead);
      if (started) location.assign(URL.createObjectURL(new Blob([pageOf(data)], { type: "text/html" }))); else start(data);
    } catch (error) {
      const words = error instanceof Tensors.Refused ? error.message : "it cannot be read";
      say.textContent = `${name}: ${words}. What lawful reads beyond this page: lawful explore ${quote(name)} --html page.html`;
      if (started) byId("say").textContent = say.textContent;
    }
  }
  byId("file").addEventListener("change", (event) => { if (event.target.files[0]) take(event.target.files[0]); });
  for (const kind of ["dragover", "dragenter"]) addEventListener(kind, (event) => { if (event.dataTransfer?.types.includes("Files")) { event.preventDefault(); byId("zone").classList.add("over"); } });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) byId("zone").classList.remove("over"); });
  addEventListener("drop", (event) => { event.preventDefault(); byId("zone").classList.remove("over"); if (event.dataTransfer?.files[0]) take(event.dataTransfer.files[0]); });
  for (const button of document.querySelectorAll("[data-example]")) {
    button.addEventListener("click", () => take(new File([Uint8Array.from(atob(button.dataset.example), (c) => c.charCodeAt(0))], button.dataset.name)));
  }
  const held = JSON.parse(byId("data").textContent);
  if (held) start(held);
})();
