// What was proved, and of which weights. Any edit voids what is about the file's weights, at once; exactly those bring it back.
const Evidence = (() => {
  const edited = "edited.safetensors", made = [];
  let was = null;
  const file = () => (Live.same() ? data.asked : `${edited} ${data.editedOptions}`.trim());
  const write = (place, words) => { if (place.textContent !== words) place.textContent = words; };
  const upper = (words) => words[0].toUpperCase() + words.slice(1);
  const proved = data.claims.some((claim) => claim.scope !== "any" && !claim.here && !claim.open);
  for (const claim of data.claims) {
    const what = node("span", { class: "what", text: claim.what }), state = node("span", { class: "st" }), more = node("span", { class: "more" }), code = node("code"), copy = node("button", { type: "button", text: "Copy", onclick: () => copied(code.textContent, copy) });
    const chip = node("details", { class: "chip" }, node("summary", {}, what, state), node("div", {}, more, node("div", { class: "cmd" }, code, copy)));
    byId("chips").append(chip);
    made.push({ ...claim, what, chip, state, more, code });
  }
  const here = {
    locks: () => { const n = Model.locked(Live.th).size; return `${n} neuron${n === 1 ? "" : "s"} with a locked weight`; },
    function: () => { if (Live.same()) return "these are the file's weights"; const d = Engine.apart(Engine.shaped(given, Live.th), given, data.inputs); return `outputs at ${data.inputs.length} inputs differ from the file's by ${short(d)} at most`; },
    pruned: () => "nothing: pruning is not decided in the browser",
  };
  function show(all = true) {
    const same = Live.same();
    if (!all && same === was) return;
    for (const claim of made) {
      // What the browser computes is computed again for edited weights; it was never certified, so nothing becomes void.
      const holds = claim.scope === "any" || same || claim.here, words = holds ? claim.holds : "no longer certified: weights were edited";
      claim.chip.classList.toggle("void", !holds); claim.chip.classList.toggle("open", holds && claim.open); claim.chip.classList.toggle("here", Boolean(claim.here));
      if (claim.here && claim.scope !== "any") write(claim.what, upper(here[claim.kind]()) + ".");
      write(claim.state, words);
      const more = holds ? claim.more : `Computed here, in floating point: ${here[claim.kind]()}. To certify the edited weights, save them and run:`;
      write(claim.more, more);
      const command = claim.command.replaceAll("{file}", file()).replaceAll("{edited}", same ? data.file : edited);
      write(claim.code, command);
    }
    const moved = Live.th.reduce((n, v, k) => n + (v !== Model.file[k]), 0), size = Model.size.toLocaleString("en");
    const pieces = Plane.single ? Curve.count() : Pieces.regions(Live.th, Plane.choices[state.plane][1], Stage.list), noun = `${pieces.toLocaleString("en")} piece${pieces === 1 ? "" : "s"} in view`;
    byId("head").textContent = same ? data.title || `${size} weights, ${noun}, one function` : Training.playing ? `Training: ${noun}` : Live.kept ? `${moved.toLocaleString("en")} of ${size} weights moved, the same function` : `${moved.toLocaleString("en")} of ${size} weights edited, ${noun}`;
    if (same === was) return;
    was = same;
    if (!proved) return unproved(same);
    const about = made.filter((claim) => claim.scope !== "any").length;
    byId("evs").textContent = same ? "what holds for the file's weights" : "weights were edited";
    byId("save").hidden = same; byId("reset").disabled = same;
    byId("pill").className = same ? "" : "void";
    byId("pill").textContent = same ? `✓ ${made.length} claims, each with its evidence` : `⊘ ${about} of ${made.length} claims no longer certified: weights were edited`;
    byId("live").textContent = same ? "evidence holds" : `${about} claims are no longer certified: weights were edited`;
    for (const claim of made) if (claim.scope !== "any") claim.chip.open = !same && innerWidth > 1079;
  }
  // A page that was made in the browser has proved nothing, and has nothing to lose.
  function unproved(same) {
    byId("evs").textContent = same ? "what the browser computed, and the commands that certify it" : "weights were edited";
    byId("save").hidden = same; byId("reset").disabled = same;
    byId("pill").className = "here";
    byId("pill").textContent = `≈ computed here; ${made.length} commands certify it`;
  }
  // The weights as a .safetensors file of float64, under the names that the library writes.
  function bytes() {
    const head = {};
    for (let l = 0; l < Model.depth; l++) {
      head[`${2 * l}.weight`] = { dtype: "F64", shape: [given.widths[l + 1], given.widths[l]], data_offsets: [8 * Model.starts[l], 8 * (Model.starts[l] + given.widths[l + 1] * given.widths[l])] };
      if (Model.offsets[l] >= 0) head[`${2 * l}.bias`] = { dtype: "F64", shape: [given.widths[l + 1]], data_offsets: [8 * Model.offsets[l], 8 * (Model.offsets[l] + given.widths[l + 1])] };
    }
    let text = JSON.stringify(head);
    text = text.padEnd(8 * Math.ceil(text.length / 8));
    const out = new Uint8Array(8 + text.length + 8 * Model.size), view = new DataView(out.buffer);
    view.setBigUint64(0, BigInt(text.length), true);
    out.set(new TextEncoder().encode(text), 8);
    Live.th.forEach((v, k) => view.setFloat64(8 + text.length + 8 * k, v, true));
    return out;
  }
  byId("save").addEventListener("click", () => { const link = node("a", { href: URL.createObjectURL(new Blob([bytes()])), download: edited }); link.click(); URL.revokeObjectURL(link.href); });
  byId("pill").addEventListener("click", (event) => { event.preventDefault(); byId("evidence").scrollIntoView({ block: "start" }); byId("chips").querySelector("summary")?.focus({ preventScroll: true }); });
  return { show, bytes };
})();
