// Named arrays as the layers of a network, by the rules of the library: what the names do not say is refused, not guessed.
const Layers = (() => {
  const { refuse } = Tensors;
  const LINEAR = /^(.*\.)?weight$/s, NUMBERED = /^(w|weights?|b|bias|biases)[_.]?(\d{1,4})$/i, UNNAMED = /^arr_(\d{1,4})$/;
  const REMEDY = "only chains of Linear layers can be read from weights alone";

  // [weight, bias] of every layer from input to output, as in y = W x + b; null if the file holds something else.
  function pairs(arrays) {
    const names = [...arrays.keys()];
    if (names.length && names.every((name) => NUMBERED.test(name))) return oriented(numbered(arrays));
    if (names.length && names.every((name) => UNNAMED.test(name))) return oriented(unnamed(arrays));
    const prefixes = names.filter((name) => LINEAR.test(name)).map((name) => name.slice(0, -6)), used = new Set(prefixes.flatMap((p) => [`${p}weight`, `${p}bias`]));
    if (!prefixes.length || names.some((name) => !used.has(name) || arrays.get(name).shape.length !== (name.endsWith("weight") ? 2 : 1))) return null;
    return order(prefixes)?.map((p) => [arrays.get(`${p}weight`), arrays.get(`${p}bias`) ?? null]) ?? null;
  }
  // The names differ in one number that counts the layers: fc1, fc2, or places in a container (0, 2, 4).
  function order(prefixes) {
    if (new Set(prefixes.map((p) => p.replace(/\d+/g, "#"))).size > 1) return null;
    const digits = new Map(prefixes.map((p) => [p, (p.match(/\d+/g) ?? []).map(Number)])), first = digits.get(prefixes[0]);
    const changing = first.flatMap((_, place) => (prefixes.some((p) => digits.get(p)[place] !== first[place]) ? [place] : []));
    if (changing.length > 1) return null;
    const [place] = changing, sorted = prefixes.toSorted((a, b) => digits.get(a)[place] - digits.get(b)[place]);
    const inContainer = sorted.every((p) => /^(.*\.)?\d+\.$/s.test(p)), counted = sorted.every((p, k) => !k || digits.get(p)[place] === digits.get(sorted[k - 1])[place] + 1);
    return place === undefined || inContainer || counted ? sorted : null;
  }
  function numbered(arrays) {
    const weights = new Map(), biases = new Map();
    for (const [name, array] of arrays) { const [, word, digits] = NUMBERED.exec(name); (/^b/i.test(word) ? biases : weights).set(Number(digits), array); }
    const numbers = [...weights.keys()].sort((a, b) => a - b);
    if (weights.size + biases.size < arrays.size || numbers.some((n, k) => k && n !== numbers[k - 1] + 1) || [...biases.keys()].some((n) => !weights.has(n))) return null;
    return numbers.map((n) => [weights.get(n), biases.get(n) ?? null]);
  }
  function unnamed(arrays) {
    const found = [];
    for (let k = 0; k < arrays.size; k++) {
      const array = arrays.get(`arr_${k}`);
      if (!array) return null;
      if (array.shape.length === 2) found.push([array, null]);
      else if (found.length && !found.at(-1)[1]) found.at(-1)[1] = array;
      else return null;
    }
    return found;
  }
  // Plain matrices are for y = W x + b or for y = x W + b: whichever fits together.
  function oriented(found) {
    if (!found?.length || found.some(([weight]) => weight.shape.length !== 2)) return null;
    const fits = (out) => found.every(([weight, bias], k) => (!k || weight.shape[1 - out] === found[k - 1][0].shape[out]) && (!bias || bias.count === weight.shape[out]));
    if (fits(0)) return found;
    if (!fits(1)) return null;
    return found.map(([weight, bias]) => [{ shape: [weight.shape[1], weight.shape[0]], count: weight.count, at: (k) => weight.at((k % weight.shape[0]) * weight.shape[1] + Math.floor(k / weight.shape[0])) }, bias]);
  }

  // The network as the explorer takes it; `slope` is that of the activation where the file names none.
  function network({ arrays, slopes }, slope, most) {
    const found = pairs(arrays);
    if (!found) return null;
    const total = found.reduce((n, [weight, bias]) => n + weight.count + (bias ? bias.count : 0), 0);
    if (total > most) return null;
    found.forEach(([weight, bias], l) => {
      if (!weight.count) refuse(`layer ${l + 1} has no weights`);
      if (l && weight.shape[1] !== found[l - 1][0].shape[0]) refuse(`layer ${l + 1} takes ${weight.shape[1]} inputs, but the layer before it gives ${found[l - 1][0].shape[0]}`);
      if (bias && bias.count !== weight.shape[0]) refuse(`layer ${l + 1} has ${weight.shape[0]} neurons and ${bias.count} biases`);
    });
    if (slopes && slopes.length !== found.length - 1) refuse(`the file states ${slopes.length} activations for ${found.length - 1} hidden layers`);
    const row = (array, i, width) => Array.from({ length: width }, (_, j) => finite(array.at(i * width + j)));
    return {
      widths: [found[0][0].shape[1], ...found.map(([weight]) => weight.shape[0])],
      weights: found.map(([weight]) => Array.from({ length: weight.shape[0] }, (_, i) => row(weight, i, weight.shape[1]))),
      biases: found.map(([, bias]) => bias && row(bias, 0, bias.count)),
      slopes: slopes ?? new Array(found.length - 1).fill(slope),
    };
  }
  const finite = (value) => (Number.isFinite(value) ? value : refuse("a weight is NaN or infinite"));

  // A JSON graph whose edges go from one layer to the next; a missing edge is a zero.
  function ofGraph(graph, slope, most) {
    if (graph === null || typeof graph !== "object" || Array.isArray(graph)) refuse("a graph is a JSON object");
    for (const key of ["inputs", "outputs", "edges"]) if (!Array.isArray(graph[key])) refuse(`a graph has the keys inputs, outputs, edges (and biases, activation, hidden); “${key}” is missing or no list`);
    const edges = graph.edges.filter(Boolean), level = new Map(graph.inputs.map((name) => [name, 0])), into = new Map();
    if (edges.length > most) refuse(`the explorer moves up to ${most.toLocaleString("en")} weights, not ${edges.length.toLocaleString("en")}`);
    for (const edge of edges) {
      if (!Array.isArray(edge) || edge.length !== 3 || typeof edge[2] !== "number") refuse("every edge is [from, to, weight]");
      if (edge[0] === graph.constant) continue;
      if (!into.has(edge[1])) into.set(edge[1], []);
      into.get(edge[1]).push(edge);
    }
    for (let moved = true, round = 0; moved && round <= into.size; round++) {
      moved = false;
      for (const [name, list] of into) if (!level.has(name) && list.every(([from]) => level.has(from))) { level.set(name, 1 + Math.max(...list.map(([from]) => level.get(from)))); moved = true; }
    }
    if ([...into.keys()].some((name) => !level.has(name))) refuse("the graph has a cycle, or a node without a way from the inputs");
    const depth = Math.max(...level.values()), layers = Array.from({ length: depth + 1 }, () => []);
    const listed = [...graph.inputs, ...(Array.isArray(graph.hidden) ? graph.hidden : []), ...level.keys(), ...graph.outputs];
    for (const name of new Set([...listed.filter((n) => !graph.outputs.includes(n)), ...graph.outputs])) if (level.has(name)) layers[level.get(name)].push(name);
    if (!depth || layers[depth].length !== graph.outputs.length || edges.some(([from, to]) => from !== graph.constant && level.get(to) !== level.get(from) + 1)) refuse("an edge skips a layer: the command line reads such graphs");
    const place = new Map(layers.flatMap((names) => names.map((name, k) => [name, k]))), weights = [], biases = [], slopes = [];
    const stated = graph.activation, offsets = new Map(Object.entries(graph.biases ?? {}));
    for (const [from, to, value] of edges) if (from === graph.constant) offsets.set(to, value);
    for (let l = 1; l <= depth; l++) {
      const matrix = layers[l].map(() => new Array(layers[l - 1].length).fill(0));
      for (const name of layers[l]) for (const [from, , value] of into.get(name)) matrix[place.get(name)][place.get(from)] = finite(value);
      weights.push(matrix);
      biases.push(layers[l].some((name) => offsets.has(name)) ? layers[l].map((name) => finite(Number(offsets.get(name) ?? 0))) : null);
      if (l === depth) continue;
      const words = new Set(layers[l].map((name) => (stated && typeof stated === "object" ? stated[name] : stated) ?? ""));
      if (words.size > 1) refuse("a hidden layer mixes activations: the command line reads such graphs");
      slopes.push(slopeOf([...words][0], slope));
    }
    return { widths: layers.map((names) => names.length), weights, biases, slopes };
  }
  function slopeOf(words, standard) {
    if (words === "") return standard;
    const leaky = /^leaky_relu\(([\d.e+-]+)\)$/.exec(words), slope = { relu: 0, linear: 1, identity: 1, leaky_relu: 0.01 }[words] ?? (leaky ? Number(leaky[1]) : NaN);
    return Number.isFinite(slope) ? slope : refuse(`the activation “${String(words).slice(0, 40)}” is not read here`);
  }

  // What a file holds, block by block, where it is no chain of layers: sizes, zeros, root mean square.
  function blocks(arrays) {
    const rows = new Map();
    for (const [name, array] of arrays) {
      const parts = name.split("."), digit = parts.findIndex((part) => /^\d+$/.test(part)), key = digit >= 0 && digit < parts.length - 1 ? parts.slice(0, digit + 1).join(".") : parts.length > 1 ? parts[0] : name;
      if (!rows.has(key)) rows.set(key, { name: key, tensors: 0, numbers: 0, zeros: 0, squares: 0, broken: 0 });
      const row = rows.get(key);
      row.tensors++; row.numbers += array.count;
      for (let k = 0; k < array.count; k++) { const v = array.at(k); if (v === 0) row.zeros++; else if (Number.isFinite(v)) row.squares += v * v; else row.broken++; }
    }
    return [...rows.values()];
  }
  return { network, ofGraph, blocks, REMEDY };
})();
