// Builds zoo/demo/site: the page, the programs of the engine, and their licences.
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const require = createRequire(import.meta.url);
const site = process.argv[2] ?? join(here, "..", "zoo", "demo", "site");
const packageFolder = (name) => join(here, "node_modules", name);

/** A file as a script, as zoo/demo/wrapped.py writes those of models. */
function write(path, content) {
  const text = content.toString("latin1");
  const slashes = Array.from(text.matchAll(/\*\//g), ({ index }) => index + 1);
  const head = `zooFile(${JSON.stringify(path)},${JSON.stringify(slashes)},function(){/*`;
  writeFileSync(join(site, `${path}.js`), Buffer.from(`${head}${text.replaceAll("*/", "*+")}*/})\n`, "latin1"));
}

mkdirSync(site, { recursive: true });
await build({
  entryPoints: [join(here, "src", "page", "main.ts")],
  outfile: join(site, "page.js"),
  bundle: true,
  format: "iife", // a page from a disk may run no modules
  globalName: "AttentionZoo",
  define: { "import.meta.url": "HERE" }, // the engine asks for its address, and takes that of a file for node's
  banner: { js: 'var HERE=typeof document=="undefined"?"file:///page.js":"https://page.invalid/page.js";' },
  target: "es2022",
  minify: true,
  legalComments: "none", // licences.txt has them
  charset: "utf8",
  logLevel: "warning",
});
for (const name of ["index.html", "style.css"]) {
  writeFileSync(join(site, name), readFileSync(join(here, "src", "page", name)));
}
// The sample photos, and their licence.
mkdirSync(join(site, "photos"), { recursive: true });
const photos = join(here, "..", "docs", "photos");
for (const name of readdirSync(photos)) {
  const content = readFileSync(join(photos, name));
  if (name.endsWith(".jpg")) {
    write(`photos/${name}`, content);
  } else {
    writeFileSync(join(site, "photos", name), content);
  }
}
const programs = {
  "engine.wasm": require.resolve("onnxruntime-web/ort-wasm-simd-threaded.wasm"),
  "sentences.wasm": join(packageFolder("sentencex-wasm"), "sentencex_wasm_bg.wasm"),
};
for (const [name, path] of Object.entries(programs)) {
  write(name, gzipSync(readFileSync(path), { level: 9 }));
}

const version = (name) => JSON.parse(readFileSync(join(packageFolder(name), "package.json"), "utf8")).version;
const licences = [
  [`onnxruntime-web ${version("onnxruntime-web")} (page.js, engine.wasm)`, join(here, "licences", "onnxruntime.txt")],
  ["what onnxruntime contains (engine.wasm)", join(here, "licences", "parts_of_onnxruntime.txt")],
  [
    `sentencex-wasm ${version("sentencex-wasm")} (page.js, sentences.wasm)`,
    join(packageFolder("sentencex-wasm"), "LICENSE"),
  ],
];
const line = "=".repeat(80);
writeFileSync(
  join(site, "licences.txt"),
  licences.map(([title, path]) => `${line}\n${title}\n${line}\n\n${readFileSync(path, "utf8").trim()}\n`).join("\n"),
);
