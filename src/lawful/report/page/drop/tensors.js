"use strict";
// Named arrays of a dropped file: .safetensors, .npz, or a JSON graph. The file is not trusted: every length that it claims is
// held against the bytes that are there before anything is allocated, nothing in it is run, and names stay text.
const Tensors = (() => {
  const MOST_BYTES = 256 * 2 ** 20, MOST_HEADER = 4 * 2 ** 20, MOST_TENSORS = 10_000, MOST_JSON = 16 * 2 ** 20;
  class Refused extends Error {}
  const refuse = (words) => { throw new Refused(words); };
  const text = (bytes) => new TextDecoder("utf-8", { fatal: true }).decode(bytes);

  // How each stored type is read; a bfloat16 is the upper half of a float32.
  const half = (bits) => {
    const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
  };
  const scratch = new DataView(new ArrayBuffer(4));
  const upper = (bits) => { scratch.setUint32(0, bits << 16); return scratch.getFloat32(0); };
  const READ = {
    __proto__: null,
    f8: [8, (v, at, l) => v.getFloat64(at, l)], f4: [4, (v, at, l) => v.getFloat32(at, l)], f2: [2, (v, at, l) => half(v.getUint16(at, l))],
    bf: [2, (v, at, l) => upper(v.getUint16(at, l))], i8: [8, (v, at, l) => Number(v.getBigInt64(at, l))], i4: [4, (v, at, l) => v.getInt32(at, l)],
    i2: [2, (v, at, l) => v.getInt16(at, l)], i1: [1, (v, at) => v.getInt8(at)], u8: [8, (v, at, l) => Number(v.getBigUint64(at, l))],
    u4: [4, (v, at, l) => v.getUint32(at, l)], u2: [2, (v, at, l) => v.getUint16(at, l)], u1: [1, (v, at) => v.getUint8(at)],
  };
  const SAFETENSORS = { __proto__: null, F64: "f8", F32: "f4", F16: "f2", BF16: "bf", I64: "i8", I32: "i4", I16: "i2", I8: "i1", U64: "u8", U32: "u4", U16: "u2", U8: "u1", BOOL: "u1" };

  // One array that is read when it is asked for: `shape`, `count`, `at(k)`, and numbers() as float64.
  function tensor(bytes, begin, type, shape, little = true, columns = false) {
    const [size, read] = READ[type] ?? refuse(`numbers of type ${type} are not read here`);
    const view = new DataView(bytes.buffer, bytes.byteOffset), count = shape.reduce((n, side) => n * side, 1);
    // Fortran's order: the first index runs fastest. Only matrices need turning.
    const place = columns && shape.length === 2 ? (k) => (k % shape[1]) * shape[0] + Math.floor(k / shape[1]) : (k) => k;
    const at = (k) => read(view, begin + size * place(k), little);
    return { shape, count, size, at, numbers: () => Float64Array.from({ length: count }, (_, k) => at(k)) };
  }
  const product = (shape, name) => {
    if (!Array.isArray(shape) || shape.length > 16 || !shape.every((side) => Number.isSafeInteger(side) && side >= 0)) refuse(`“${name}” has no proper shape`);
    const count = shape.reduce((n, side) => n * side, 1);
    return count <= MOST_BYTES ? count : refuse(`“${name}” claims ${count.toLocaleString("en")} numbers, more than the file can hold`);
  };

  function safetensors(bytes) {
    if (bytes.length < 8) refuse("the file is too short to be .safetensors");
    const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
    if (length > bytes.length - 8 || length > MOST_HEADER) refuse(`its header claims ${length.toLocaleString("en")} bytes, and the file has ${bytes.length.toLocaleString("en")}`);
    const header = parse(text(bytes.subarray(8, 8 + length))), arrays = new Map();
    if (header === null || typeof header !== "object" || Array.isArray(header)) refuse("its header is no JSON object");
    const names = Object.keys(header).filter((name) => name !== "__metadata__");
    if (names.length > MOST_TENSORS) refuse(`it names ${names.length.toLocaleString("en")} tensors; up to ${MOST_TENSORS.toLocaleString("en")} are read`);
    for (const name of names) {
      const entry = header[name] ?? {}, type = SAFETENSORS[entry.dtype] ?? refuse(`“${name}” has numbers of type ${entry.dtype}, which are not read here`);
      const count = product(entry.shape, name), [begin, end] = Array.isArray(entry.data_offsets) ? entry.data_offsets : [];
      if (!(Number.isSafeInteger(begin) && begin >= 0 && end - begin === count * READ[type][0] && 8 + length + end <= bytes.length)) refuse(`“${name}” claims bytes that do not fit its shape or the file`);
      arrays.set(name, tensor(bytes, 8 + length + begin, type, entry.shape));
    }
    return { arrays, slopes: slopesOf(header.__metadata__?.["lawful.slopes"]) };
  }
  function slopesOf(words) {
    if (typeof words !== "string") return null;
    const slopes = parse(words);
    return Array.isArray(slopes) && slopes.every(Number.isFinite) ? slopes : refuse("“lawful.slopes” is no list of numbers");
  }
  function parse(words) {
    try { return JSON.parse(words); } catch { return refuse("it is not JSON, or nested too deeply"); }
  }

  // .npz is a zip of .npy files. Sizes are those of the zip's directory, and a member that unpacks to more is cut off.
  async function npz(bytes) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    let end = bytes.length - 22;
    for (const stop = Math.max(0, end - 65_535); end >= stop && view.getUint32(end, true) !== 0x06054b50; end--);
    if (end < 0 || view.getUint32(end, true) !== 0x06054b50) refuse("the zip archive is broken: it has no directory");
    const members = view.getUint16(end + 10, true), arrays = new Map();
    let at = view.getUint32(end + 16, true), total = 0, slopes = null;
    if (members > MOST_TENSORS) refuse(`it names ${members.toLocaleString("en")} arrays; up to ${MOST_TENSORS.toLocaleString("en")} are read`);
    for (let k = 0; k < members; k++) {
      if (at + 46 > end || view.getUint32(at, true) !== 0x02014b50) refuse("the zip archive is broken: its directory ends early");
      const [method, packed, size, letters, extra, comment, local] = [view.getUint16(at + 10, true), view.getUint32(at + 20, true), view.getUint32(at + 24, true), view.getUint16(at + 28, true), view.getUint16(at + 30, true), view.getUint16(at + 32, true), view.getUint32(at + 42, true)];
      const name = text(bytes.subarray(at + 46, at + 46 + letters)).replace(/\.npy$/, "");
      at += 46 + letters + extra + comment;
      if ((total += size) > MOST_BYTES) refuse(`it unpacks to more than ${MOST_BYTES / 2 ** 20} MB`);
      if (local + 30 > bytes.length || view.getUint32(local, true) !== 0x04034b50) refuse(`“${name}” is not where the archive says`);
      const start = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
      if (start + packed > bytes.length) refuse(`“${name}” is cut off`);
      const content = method === 0 ? bytes.subarray(start, start + packed) : method === 8 ? await inflate(bytes.subarray(start, start + packed), size, name) : refuse(`“${name}” is packed by method ${method}`);
      if (content.length !== size) refuse(`“${name}” has ${content.length.toLocaleString("en")} bytes and claims ${size.toLocaleString("en")}`);
      if (arrays.has(name)) refuse(`“${name}” is there twice`);
      const array = npy(content, name);
      if (name === "lawful.slopes") slopes = Array.from(array.numbers()); else arrays.set(name, array);
    }
    return { arrays, slopes };
  }
  async function inflate(packed, size, name) {
    const out = new Uint8Array(size), reader = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
    let length = 0;
    try {
      for (let part; !(part = await reader.read()).done; length += part.value.length) {
        if (length + part.value.length > size) { await reader.cancel(); refuse(`“${name}” unpacks to more than it claims`); }
        out.set(part.value, length);
      }
    } catch (error) { if (error instanceof Refused) throw error; refuse(`“${name}” cannot be unpacked`); }
    return out.subarray(0, length);
  }
  function npy(bytes, name) {
    const broken = () => refuse(`“${name}” is no .npy array`);
    if (bytes.length < 12 || bytes[0] !== 0x93 || text(bytes.subarray(1, 6)) !== "NUMPY") broken();
    const view = new DataView(bytes.buffer, bytes.byteOffset), wide = bytes[6] > 1, begin = wide ? 12 : 10, length = wide ? view.getUint32(8, true) : view.getUint16(8, true);
    if (begin + length > bytes.length || length > 65_536) broken();
    const head = text(bytes.subarray(begin, begin + length)), type = /'descr':\s*'([<>|=])([fiub])(\d)'/.exec(head), order = /'fortran_order':\s*(True|False)/.exec(head), sides = /'shape':\s*\(([\d,\s]*)\)/.exec(head);
    if (!type || !order || !sides) refuse(`“${name}” holds something other than plain numbers`);
    const kind = type[2] === "b" ? "u1" : type[2] + type[3], shape = sides[1].split(",").map((side) => side.trim()).filter(Boolean).map(Number), count = product(shape, name);
    if (!READ[kind] || kind === "bf" || bytes.length - begin - length !== count * READ[kind][0]) refuse(`“${name}” claims numbers that are not there`);
    return tensor(bytes, begin + length, kind, shape, type[1] !== ">", order[1] === "True");
  }

  // By content first, by ending where content does not say.
  async function read(name, bytes) {
    if (!bytes.length) refuse("the file is empty");
    if (bytes.length > MOST_BYTES) refuse(`files of up to ${MOST_BYTES / 2 ** 20} MB are read in the browser; this one has ${Math.round(bytes.length / 2 ** 20)} MB`);
    if (bytes[0] === 0x50 && bytes[1] === 0x4b && !/\.(pt|pth|ckpt|bin)$/i.test(name)) return { kind: "npz", ...(await npz(bytes)) };
    if (/\.(pt|pth|ckpt|bin|onnx|gguf|h5|keras|pb|tflite|nnet)$/i.test(name)) refuse("this kind of file is read by the command line, not in the browser");
    if (bytes[8] === 0x7b && !/\.json$/i.test(name)) return { kind: "safetensors", ...safetensors(bytes) };
    if (bytes.length > MOST_JSON) refuse("JSON of up to 16 MB is read here");
    let words;
    try { words = text(bytes); } catch { refuse("it is no .safetensors, .npz or JSON file"); }
    return { kind: "json", graph: parse(words) };
  }
  return { read, Refused, refuse };
})();
