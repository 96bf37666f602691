// A source sentence whose words can be removed and replaced. Positions are those of the shown tokens, which include
// removed ones; the model does not see those.
import type { Translator } from "../engine/index.ts";

interface Piece {
  id: number;
  token: string;
  struck: boolean;
}

export class Sentence {
  private pieces: Piece[];
  private isChanged = false;

  /** A sentence of tokens, </s> included. */
  constructor(ids: readonly number[], tokens: readonly string[]) {
    this.pieces = ids.map((id, n) => ({ id, token: tokens[n], struck: false }));
  }

  copy(): Sentence {
    const found = new Sentence([], []);
    found.pieces = this.pieces.map((piece) => ({ ...piece }));
    found.isChanged = this.isChanged;
    return found;
  }

  get changed(): boolean {
    return this.isChanged;
  }

  get tokens(): string[] {
    return this.pieces.map(({ token }) => token);
  }

  /** What the model reads, without </s>. */
  get ids(): number[] {
    return this.pieces.slice(0, -1).flatMap(({ id, struck }) => (struck ? [] : [id]));
  }

  get struck(): Set<number> {
    return new Set(this.pieces.flatMap(({ struck }, n) => (struck ? [n] : [])));
  }

  /** First position of the word at a position, and the one after its last. */
  wordAt(position: number): [number, number] {
    let [first, end] = [position, position + 1];
    while (first > 0 && isContinued(this.pieces[first].token)) {
      first -= 1;
    }
    while (end < this.pieces.length && isContinued(this.pieces[end].token)) {
      end += 1;
    }
    return [first, end];
  }

  textOf(position: number): string {
    const [first, end] = this.wordAt(position);
    return this.pieces
      .slice(first, end)
      .map(({ token }) => token.replace(/^·/, ""))
      .join("");
  }

  isEnd(position: number): boolean {
    return position === this.pieces.length - 1;
  }

  isStruck(position: number): boolean {
    return this.pieces[position].struck;
  }

  strike(position: number): void {
    const [first, end] = this.wordAt(position);
    const struck = !this.pieces[position].struck;
    this.pieces.slice(first, end).forEach((piece) => (piece.struck = struck));
    this.isChanged = true;
  }

  replace(position: number, text: string, model: Translator): void {
    const { ids, pieces } = model.tokens(text);
    const [first, end] = this.wordAt(position);
    const found = ids.slice(0, -1).map((id, n) => ({ id, token: pieces[n], struck: false }));
    this.pieces.splice(first, end - first, ...found);
    this.isChanged = true;
  }

  /** Weights of what the model reads, at the shown positions. */
  widened(weights: Float32Array): Float32Array {
    const found = new Float32Array(this.pieces.length);
    let next = 0;
    this.pieces.forEach(({ struck }, n) => (found[n] = struck ? 0 : weights[next++]));
    return found;
  }

  /** The inverse, with sum 1. */
  narrowed(weights: Float32Array): Float32Array {
    const kept = weights.filter((_, n) => !this.pieces[n].struck);
    const total = kept.reduce((one, other) => one + other, 0);
    return kept.map((weight) => (total > 0 ? weight / total : 1 / kept.length));
  }
}

function isContinued(token: string): boolean {
  return token.startsWith("·") && token.length > 1;
}
