// The engine in a thread of its own, so that it starts while the page is drawn and its files arrive.
import { program } from "./served.ts";
import { type Opened, OwnSessions, type Sessions, Tensor, type Tensors } from "../engine/sessions.ts";

/** A tensor as a message carries it. */
type Plain = Pick<Tensor, "type" | "data" | "dims">;

interface Asked {
  call: number;
  method: keyof Sessions;
  values: unknown[];
}

interface Answered {
  call: number;
  found?: unknown;
  error?: string;
}

/** Asks the worker, which runs the same script as the page. */
export class WorkerSessions implements Sessions {
  private readonly worker = new Worker("page.js");
  private readonly waiting = new Map<number, [(found: any) => void, (error: Error) => void]>();
  private calls = 0;

  constructor() {
    this.worker.onmessage = ({ data }: MessageEvent<Answered>) => {
      const [resolve, reject] = this.waiting.get(data.call)!;
      this.waiting.delete(data.call);
      data.error === undefined ? resolve(data.found) : reject(new Error(data.error));
    };
    this.worker.onerror = () => {
      this.waiting.forEach(([, reject]) => reject(new Error("the engine stopped; reload the page")));
      this.waiting.clear();
    };
  }

  open(graph: Uint8Array<ArrayBuffer>, shared: Uint8Array<ArrayBuffer> | null): Promise<Opened> {
    return this.ask("open", graph, shared);
  }

  async run(id: number, values: Tensors): Promise<Tensors> {
    return tensors(await this.ask("run", id, plain(values)));
  }

  private ask<T>(method: keyof Sessions, ...values: unknown[]): Promise<T> {
    const asked: Asked = { call: (this.calls += 1), method, values };
    return new Promise((resolve, reject) => {
      this.waiting.set(asked.call, [resolve, reject]);
      this.worker.postMessage(asked);
    });
  }
}

/** What the script does where it is the worker: it fetches the engine itself, while the page reads the model. */
export function serveSessions(): void {
  const own = new OwnSessions(program("engine.wasm"));
  own.ready.catch(() => {}); // each call says it
  const answer = async ({ method, values }: Asked): Promise<unknown> => {
    if (method === "open") {
      return own.open(...(values as Parameters<Sessions["open"]>));
    }
    const [id, given] = values as [number, Record<string, Plain>];
    return plain(await own.run(id, tensors(given)));
  };
  onmessage = async ({ data }: MessageEvent<Asked>) => {
    try {
      postMessage({ call: data.call, found: await answer(data) } satisfies Answered);
    } catch (error) {
      postMessage({ call: data.call, error: error instanceof Error ? error.message : String(error) } satisfies Answered);
    }
  };
}

function plain(values: Tensors): Record<string, Plain> {
  return mapped(values, ({ type, data, dims }) => ({ type, data, dims }));
}

function tensors(values: Record<string, Plain>): Tensors {
  return mapped(values, ({ type, data, dims }) => new Tensor(type as any, data as any, dims));
}

function mapped<A, B>(values: Record<string, A>, change: (value: A) => B): Record<string, B> {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, change(value)]));
}
