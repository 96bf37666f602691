// A folder of exported graphs: onnx.json and the files whose hashes it lists.

/** Where files come from: the network in a browser, the disk in node. */
export interface Folder {
  text(path: string): Promise<string>;
  bytes(path: string): Promise<Uint8Array<ArrayBuffer>>;
}

/** The content of onnx.json, as far as the engine reads it. */
export interface About {
  format: number;
  source: string;
  class: string;
  weights: string;
  parameters: number;
  config: Record<string, any>;
  task: string;
  search?: { never: number[]; max_source_tokens?: number };
  state?: Record<string, string>;
  first_state?: Record<string, { type: string; zeros: (number | string)[] }>;
  unknown_words?: { first_id: number; count: number };
  graphs: Record<string, { inputs: Record<string, string>; outputs: Record<string, string> }>;
  sha256: Record<string, string>;
}

const FORMATS = [1, 2]; // of exports; in the second one a step may take attention weights

/** What `zoo export --format onnx` wrote, opened. */
export class Exported {
  private readonly read = new Map<string, Promise<Uint8Array<ArrayBuffer>>>();

  private constructor(
    private readonly folder: Folder,
    readonly about: About,
  ) {}

  static async open(folder: Folder): Promise<Exported> {
    const about = JSON.parse(await folder.text("onnx.json")) as About;
    if (!FORMATS.includes(about.format)) {
      throw new Error("the graphs were exported by another version of attention-zoo; export them again");
    }
    return new Exported(folder, about);
  }

  /** Reads all files, at the same time. */
  async fetched(): Promise<void> {
    await Promise.all(Object.keys(this.about.sha256).map((name) => this.bytes(name)));
  }

  /** Frees what was read; the graphs have their own copies. */
  close(): void {
    this.read.clear();
  }

  has(name: string): boolean {
    return name in this.about.sha256;
  }

  /** A file that is as it was exported; read once, because graphs share one. */
  bytes(name: string): Promise<Uint8Array<ArrayBuffer>> {
    const found = this.read.get(name) ?? this.verified(name);
    this.read.set(name, found);
    return found;
  }

  private async verified(name: string): Promise<Uint8Array<ArrayBuffer>> {
    const content = await this.folder.bytes(name);
    // Browsers hash only for pages from this machine or over https; elsewhere the page itself could be altered too.
    if (globalThis.crypto?.subtle) {
      const found = hexadecimal(new Uint8Array(await crypto.subtle.digest("SHA-256", content)));
      if (found !== this.about.sha256[name]) {
        throw new Error(`${name} is damaged: it is not what was exported; export the model again`);
      }
    }
    return content;
  }

  async text(name: string): Promise<string> {
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(await this.bytes(name));
  }
}

function hexadecimal(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
