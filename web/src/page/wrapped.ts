// Files as scripts, FILE.js, as zoo/demo/wrapped.py makes them: the content is in a comment, byte by byte.
const HEAD = 'zooFile("';
const START = "/*";
const END = "*/})\n".length;
const SLASH = 0x2f;

type Bytes = Uint8Array<ArrayBuffer>;
export type Stream = ReadableStream<Bytes>;

/** Takes the content of a script out of it; another file stays as it is. */
export function unwrapping(): TransformStream<Bytes, Bytes> {
  let kept: Bytes = new Uint8Array();
  let isScript: boolean | null = null; // null: more bytes are needed to tell
  let slashes: number[] = []; // places of the content that have lost their slash
  let given = 0;
  const give = (count: number, next: TransformStreamDefaultController<Bytes>) => {
    const part = kept.slice(0, Math.max(0, count));
    for (; slashes.length && slashes[0] < given + part.length; slashes.shift()) {
      part[slashes[0] - given] = SLASH;
    }
    given += part.length;
    kept = kept.subarray(part.length);
    if (part.length) {
      next.enqueue(part);
    }
  };
  return new TransformStream({
    transform: (chunk, next) => {
      kept = kept.length ? joined(kept, chunk) : chunk;
      if (isScript === null) {
        const first = text(kept.subarray(0, HEAD.length));
        const start = first === HEAD ? text(kept).indexOf(START) : -1;
        if (!HEAD.startsWith(first)) {
          isScript = false;
        } else if (start >= 0) {
          slashes = listIn(text(kept.subarray(0, start)));
          kept = kept.subarray(start + START.length);
          isScript = true;
        }
      }
      if (isScript !== null) {
        give(isScript ? kept.length - END : kept.length, next);
      }
    },
    flush: (next) => {
      if (!isScript) {
        give(kept.length, next);
      }
    },
  });
}

/** The content of a script that was run: of the function that it gave. */
export function contentOf(source: string, slashes: readonly number[]): Bytes {
  const start = source.indexOf(START) + START.length;
  const content = new Uint8Array(source.length - start - "*/}".length);
  for (let place = 0; place < content.length; place++) {
    content[place] = source.charCodeAt(start + place); // its last 8 bits are those of the byte
  }
  slashes.forEach((place) => (content[place] = SLASH));
  return content;
}

/** The content of a script that arrives in pieces of some size. */
export async function unwrapped(script: Bytes, size = script.length): Promise<Bytes> {
  const pieces: Stream = new ReadableStream({
    start: (controller) => {
      for (let place = 0; place < script.length; place += size) {
        controller.enqueue(script.subarray(place, place + size));
      }
      controller.close();
    },
  });
  return new Uint8Array(await new Response(pieces.pipeThrough(unwrapping())).arrayBuffer());
}

/** The second argument of `zooFile`. */
function listIn(head: string): number[] {
  return JSON.parse(head.slice(head.indexOf(",[") + 1, head.lastIndexOf("],") + 1)) as number[];
}

function text(bytes: Bytes): string {
  return new TextDecoder("latin1").decode(bytes);
}

function joined(one: Bytes, other: Bytes): Bytes {
  const both = new Uint8Array(one.length + other.length);
  both.set(one);
  both.set(other, one.length);
  return both;
}
