// Runs the engine of a built page in node, for tests/demo and benchmarks/demo.py.
//
//   node run.mjs SITE
//
// Each line of the input is a request {"do": NAME, ...}, and each line of the output its answer. A request for a model
// names the folder of its exported graphs, "model".
import { mkdtempSync, readFileSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { gunzipSync } from "node:zlib";

const site = process.argv[2];

async function engineOf(site) {
  const folder = mkdtempSync(join(tmpdir(), "page-")); // node takes the file for a module by its suffix
  try {
    const copy = join(folder, "page.mjs");
    writeFileSync(copy, `${readFileSync(join(site, "page.js"), "utf8")}\nexport default AttentionZoo;`);
    return (await import(pathToFileURL(copy).href)).default;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const engine = await engineOf(site);
const program = async (name) => {
  return WebAssembly.compile(gunzipSync(await engine.unwrapped(readFileSync(join(site, `${name}.js`)))));
};
await engine.start(new engine.OwnSessions(program("engine.wasm")), program("sentences.wasm"));

function once(make) {
  const made = new Map();
  return (key) => {
    if (!made.has(key)) {
      made.set(key, make(key));
    }
    return made.get(key);
  };
}

const tokenizerOf = once((json) => new engine.Tokenizer(json));
const modelOf = once((place) =>
  engine.loadModel({
    bytes: async (path) => new Uint8Array(readFileSync(join(place, path))),
    text: async (path) => readFileSync(join(place, path), "utf8"),
  }),
);
const picture = ({ path, width, height }) => ({ data: new Uint8Array(readFileSync(path)), width, height });

/** Options as JSON has them: what a position is given is a list of pairs. */
function optionsOf({ given, ...options } = {}) {
  const weights = given?.map(([position, row]) => [position, Float32Array.from(row)]);
  return weights ? { ...options, given: new Map(weights) } : options;
}

/** A search whose log-probabilities depend on the last token and the position: `table` is (steps, tokens, tokens). */
function searchTable({ table, settings }) {
  const state = { none: new engine.Tensor("float32", new Float32Array(1), [1, 1, 1]) };
  const decode = async (tokens, found, position) => ({
    logProbs: Float32Array.from(tokens.flatMap((token) => table[position][token])),
    state: found,
    attention: null,
  });
  const names = { piece: String, text: (tokens) => tokens.join(" ") };
  return engine.search(decode, state, { ...names, options: {}, ...settings });
}

const verbs = {
  translate: async ({ model, text, options }) => (await modelOf(model)).translate(text, optionsOf(options)),
  caption: async ({ model, options, ...image }) => (await modelOf(model)).caption(picture(image), optionsOf(options)),
  classify: async ({ model, text, second }) => (await modelOf(model)).classify(text, second),
  complete: async ({ model, text, options }) => (await modelOf(model)).complete(text, options),
  score: async ({ model, text, options }) => (await modelOf(model)).score(text, options),
  answer: async ({ model, document, query, candidates }) => (await modelOf(model)).answer(document, query, candidates),
  pixels: ({ transform, ...image }) => engine.pixels(picture(image), transform),
  sentences: ({ text, language }) => engine.splitSentences(text, language),
  unwrap: ({ script, size }) => engine.unwrapped(Uint8Array.from(script), size),
  tells: ({ text, date }) => engine.tells(text, ...date),
  language: ({ text, expected }) => engine.otherLanguage(text, expected),
  languages: ({ tokenizer }) => engine.languagesOf(tokenizerOf(tokenizer)),
  capitals: ({ tokenizer, text, language }) => engine.readCapitals(text, tokenizerOf(tokenizer), language),
  plain: ({ tokenizer, text }) => tokenizerOf(tokenizer).plain(text),
  search: searchTable,
  encode: ({ tokenizer, text }) => {
    const used = tokenizerOf(tokenizer);
    const ids = used.encode(text);
    return { ids, words: used.words(text), tokens: used.tokens(ids), decoded: used.decode(ids) };
  },
};

// JSON has no NaN and no typed arrays.
function plain(_, value) {
  if (ArrayBuffer.isView(value)) {
    return Array.from(value);
  }
  return typeof value === "number" && !Number.isFinite(value) ? String(value) : value;
}

async function answerTo(request) {
  const start = performance.now();
  try {
    const whole = await verbs[request.do](request);
    const milliseconds = performance.now() - start;
    const { only } = request; // names of the fields that are wanted
    const answer = only ? Object.fromEntries(only.filter((name) => name in whole).map((name) => [name, whole[name]])) : whole;
    return { answer, milliseconds };
  } catch (error) {
    return { error: String(error.message ?? error) };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const output = Buffer.from(`${JSON.stringify(await answerTo(JSON.parse(line)), plain)}\n`);
  for (let written = 0; written < output.length; ) {
    written += writeSync(1, output, written); // whole, also into a pipe
  }
}
process.exit(0); // the program of the engine would keep the process
