// Graphs, and the tensors that they take and give.
import type { Exported } from "./folder.ts";
import { type Opened, type Sessions, Tensor, type Tensors } from "./sessions.ts";

let sessions: Sessions;

/** What runs all graphs that are opened from now on. */
export function useSessions(found: Sessions): void {
  sessions = found;
}

/** One graph, ready to run. */
export class Graph {
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];

  private constructor(
    private readonly sessions: Sessions,
    private readonly opened: Opened,
  ) {
    this.inputs = opened.inputs;
    this.outputs = opened.outputs;
  }

  static async open(exported: Exported, name: string): Promise<Graph> {
    const shared = exported.has("shared.bin") ? await exported.bytes("shared.bin") : null;
    return new Graph(sessions, await sessions.open(await exported.bytes(name), shared));
  }

  /** Outputs by name; `values` may hold more than the graph reads. */
  async run(values: Tensors): Promise<Tensors> {
    const feeds: Tensors = {};
    for (const name of this.inputs) {
      feeds[name] = values[name];
    }
    return this.sessions.run(this.opened.id, feeds);
  }
}

export function integers(values: readonly number[] | Int32Array, shape: number[]): Tensor {
  return new Tensor("int64", BigInt64Array.from(values as number[], BigInt), shape);
}

export function floats(tensor: Tensor): Float32Array {
  return tensor.data as Float32Array;
}

/** The numbers of an output; null where a graph does not have it. */
export function floatsOrNull(tensor: Tensor | undefined): Float32Array | null {
  return tensor ? floats(tensor) : null;
}

/** Rows of ids -> (rows, longest) with 0 after the ends, and their lengths; at least one column. */
export function padded(rows: readonly (readonly number[])[]): { tokens: Tensor; lengths: Tensor } {
  const longest = Math.max(1, ...rows.map((row) => row.length));
  const flat = new Array<number>(rows.length * longest).fill(0);
  rows.forEach((row, n) => row.forEach((id, place) => (flat[n * longest + place] = id)));
  return {
    tokens: integers(flat, [rows.length, longest]),
    lengths: integers(
      rows.map((row) => row.length),
      [rows.length],
    ),
  };
}

/** The given rows of a tensor whose first two dimensions are (1, rows). */
export function chosenRows(tensor: Tensor, rows: readonly number[]): Tensor {
  const count = tensor.dims[1];
  const data = tensor.data as Float32Array | BigInt64Array | Uint8Array;
  const size = count ? data.length / count : 0;
  const out = new (data.constructor as any)(rows.length * size);
  rows.forEach((row, n) => out.set(data.subarray(row * size, (row + 1) * size), n * size));
  return new Tensor(tensor.type as any, out, [1, rows.length, ...tensor.dims.slice(2)]);
}

export { Tensor };
export type { Tensors };
