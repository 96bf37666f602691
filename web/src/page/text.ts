// A text of parts (sentences of a document, or the texts of a pair) from which words can be struck.
import type { Encoded } from "../engine/index.ts";

export class Text {
  private readonly struck: boolean[][];

  constructor(
    private readonly whole: Encoded,
    private readonly dropsEmptyParts: boolean,
  ) {
    this.struck = whole.words.map((words) => words.map(() => false));
  }

  get parts(): string[][] {
    return this.whole.words;
  }

  get isWhole(): boolean {
    return !this.struck.flat().includes(true);
  }

  isStruck(s: number, n: number): boolean {
    return this.struck[s][n];
  }

  strike(s: number, n: number): void {
    this.struck[s][n] = !this.struck[s][n];
  }

  /** Strikes a part, or puts it back if all of it is struck. */
  strikePart(s: number): void {
    const isStruck = this.struck[s].every(Boolean);
    this.struck[s].fill(!isStruck);
  }

  putBack(): void {
    this.struck.forEach((part) => part.fill(false));
  }

  /** What the model reads. */
  get kept(): Encoded {
    return this.without(() => false);
  }

  /** What the model would read without further words. */
  without(isGone: (s: number, n: number) => boolean): Encoded {
    const stays = (s: number) => (_: unknown, n: number) => !this.struck[s][n] && !isGone(s, n);
    const ids = this.whole.ids.map((row, s) => row.filter(stays(s)));
    const words = this.whole.words.map((row, s) => row.filter(stays(s)));
    const places = ids.map((_, s) => s).filter((s) => !this.dropsEmptyParts || ids[s].length);
    return { ids: places.map((s) => ids[s]), words: places.map((s) => words[s]) };
  }

  /** Where a part is in what the model reads; null if all of it is struck. */
  keptPart(s: number): number | null {
    const isThere = (part: number) => !this.dropsEmptyParts || this.struck[part].includes(false);
    return isThere(s) ? this.struck.slice(0, s).filter((_, part) => isThere(part)).length : null;
  }

  keptWord(s: number, n: number): number | null {
    return this.struck[s][n] ? null : this.struck[s].slice(0, n).filter((struck) => !struck).length;
  }
}
