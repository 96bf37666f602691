// Files of this site, below a folder of it. They may lie there compressed, and as scripts, FILE.js.
import type { Folder } from "../engine/index.ts";
import { contentOf, type Stream, unwrapping } from "./wrapped.ts";

const RETRY_SECONDS = 1;
const MAGIC = [0x1f, 0x8b]; // the first bytes of compressed files
/** Whether this page has no server; such a page may read nothing but scripts, and start no worker. */
export const FROM_DISK = globalThis.location?.protocol === "file:";

/** What is told while files arrive. */
export interface Arrival {
  /** What `zoo demo` says while it still prepares a model. */
  waiting?(message: string): void;
  /** Bytes that arrived since the last call. */
  read?(bytes: number): void;
}

/**
 * Files below `prefix`, such as "models/NAME/"; each is fetched once.
 *
 * @param scripts whether they are; models/index.json says it of models.
 */
export function served(prefix: string, scripts: boolean, arrival: Arrival = {}): Folder {
  const found = new Map<string, Promise<Uint8Array<ArrayBuffer>>>();
  const bytes = (path: string) => {
    const content = found.get(path) ?? opened(`${prefix}${path}`, scripts, arrival).then(whole);
    found.set(path, content);
    return content;
  };
  return { bytes, text: async (path) => new TextDecoder().decode(await bytes(path)) };
}

/** A program of this site, which is compiled while it arrives. */
export async function program(name: string): Promise<WebAssembly.Module> {
  const content = await opened(name, true, {});
  return WebAssembly.compileStreaming(new Response(content, { headers: { "Content-Type": "application/wasm" } }));
}

async function opened(path: string, scripts: boolean, arrival: Arrival): Promise<Stream> {
  const body = FROM_DISK ? await fromDisk(path) : await fetched(scripts ? `${path}.js` : path, arrival);
  const counted = arrival.read ? body.pipeThrough(counting(arrival.read)) : body;
  return scripts ? unpacked(FROM_DISK ? counted : counted.pipeThrough(unwrapping())) : counted;
}

async function fetched(path: string, arrival: Arrival): Promise<Stream> {
  for (;;) {
    const response = await fetch(path).catch((error: Error) => {
      throw new Error(`${path} cannot be fetched (${error.message}); is the server of this page still running?`);
    });
    if (response.ok && response.body) {
      return response.body;
    }
    const message = await response.text();
    if (response.status !== 503) {
      throw new Error(response.status === 500 ? message : `${path}: ${response.status} ${response.statusText}`);
    }
    arrival.waiting?.(message);
    const seconds = Number(response.headers.get("Retry-After")) || RETRY_SECONDS;
    await new Promise((resume) => setTimeout(resume, seconds * 1000));
  }
}

type Taker = (slashes: number[], holder: () => void) => void;

const takers = new Map<string, Taker>(); // by path, of the scripts that are wanted

/** Runs FILE.js, which calls `zooFile` with a function that has the content as a comment. */
async function fromDisk(path: string): Promise<Stream> {
  (globalThis as any).zooFile ??= (name: string, ...found: Parameters<Taker>) => takers.get(name)?.(...found);
  const script = document.createElement("script");
  const content = await new Promise<Uint8Array<ArrayBuffer>>((resolve, reject) => {
    takers.set(path, (slashes, holder) => resolve(contentOf(String(holder), slashes)));
    script.onerror = () => reject(new Error(`${path}.js is not in this folder; write it with: zoo demo --export FOLDER`));
    script.charset = "x-user-defined"; // which makes each byte a character
    script.src = `${path}.js`;
    document.head.append(script);
  });
  script.remove();
  return new Blob([content]).stream();
}

async function whole(stream: Stream): Promise<Uint8Array<ArrayBuffer>> {
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function counting(read: (bytes: number) => void): TransformStream<Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>> {
  return new TransformStream({
    transform: (chunk, next) => {
      read(chunk.length);
      next.enqueue(chunk);
    },
  });
}

/** A file as it was before its compression, which some web servers let the browser undo. */
async function unpacked(stream: Stream): Promise<Stream> {
  const reader = stream.getReader();
  const first = await reader.read();
  const again: Stream = new ReadableStream({
    start: (controller) => (first.done ? controller.close() : controller.enqueue(first.value)),
    pull: async (controller) => {
      const { done, value } = await reader.read();
      done ? controller.close() : controller.enqueue(value);
    },
  });
  const isPacked = MAGIC.every((byte, place) => first.value?.[place] === byte);
  return isPacked ? again.pipeThrough(new DecompressionStream("gzip")) : again;
}
