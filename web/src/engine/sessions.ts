// onnxruntime-web, compiled to WebAssembly: one thread with SIMD, so that a page needs no special headers.
import { env, InferenceSession, Tensor } from "onnxruntime-web/wasm";

export type Tensors = Record<string, Tensor>;
type Bytes = Uint8Array<ArrayBuffer>;

/** A graph that was opened: its number, and the names of what it takes and gives. */
export interface Opened {
  id: number;
  inputs: readonly string[];
  outputs: readonly string[];
}

/** What runs graphs: this thread, or a worker. */
export interface Sessions {
  /** @param shared shared.bin, if the graph has weights there. */
  open(graph: Bytes, shared: Bytes | null): Promise<Opened>;
  run(id: number, values: Tensors): Promise<Tensors>;
}

const SMALLEST = "CAk6NwoQCgF4EgF5IghJZGVudGl0eRIBZ1oPCgF4EgoKCAgBEgQKAggBYg8KAXkSCgoICAESBAoCCAFCBAoAEBI="; // a graph that copies a number

/** Runs graphs in this thread, with the program engine.wasm, which starts at once. */
export class OwnSessions implements Sessions {
  private readonly all: InferenceSession[] = [];
  readonly ready: Promise<void>;
  private opening: Promise<unknown> = Promise.resolve();

  constructor(program: Promise<WebAssembly.Module>) {
    this.ready = program.then(begin);
  }

  /** One after the other: the engine forgets the shared weights of all graphs when it has opened one. */
  open(graph: Bytes, shared: Bytes | null): Promise<Opened> {
    const opened = this.opening.then(() => this.ready).then(() => this.create(graph, shared));
    this.opening = opened.catch(() => {}); // who wanted this one is told
    return opened;
  }

  private async create(graph: Bytes, shared: Bytes | null): Promise<Opened> {
    const session = await InferenceSession.create(graph, {
      executionProviders: ["wasm"],
      graphOptimizationLevel: "basic", // "all" takes longer to begin, and its fusions gain nothing here
      logSeverityLevel: 3,
      ...(shared && { externalData: [{ path: "shared.bin", data: shared }] }),
    });
    this.all.push(session);
    return { id: this.all.length - 1, inputs: session.inputNames, outputs: session.outputNames };
  }

  async run(id: number, values: Tensors): Promise<Tensors> {
    return (await this.all[id].run(values)) as Tensors;
  }
}

async function begin(program: WebAssembly.Module): Promise<void> {
  env.wasm.wasmBinary = new Uint8Array(1); // it takes bytes only, which `handingOver` replaces by what is compiled
  env.wasm.numThreads = 1;
  env.wasm.proxy = false;
  env.logLevel = "error";
  const graph = Uint8Array.from(atob(SMALLEST), (character) => character.charCodeAt(0));
  const session = await handingOver(program, () => InferenceSession.create(graph, { executionProviders: ["wasm"] }));
  await session.release();
}

/** Does some work that instantiates a program from bytes, and gives it one that was compiled while it arrived. */
async function handingOver<T>(module: WebAssembly.Module, work: () => Promise<T>): Promise<T> {
  const { instantiate } = WebAssembly;
  const instead = async (_: unknown, imports?: WebAssembly.Imports) => {
    return { module, instance: await instantiate(module, imports) };
  };
  WebAssembly.instantiate = instead as typeof instantiate;
  try {
    return await work();
  } finally {
    WebAssembly.instantiate = instantiate;
  }
}

export { Tensor };
