// MathML from a short notation: α_{tj} = frac{exp(e_{tj})}{∑_k exp(e_{tk})}.
//
// A letter is a variable, "..." is text, _ and ^ take a character or a group in braces, and frac takes two groups.
import { math } from "./dom.ts";

const TOKEN = /"([^"]*)"|(\d+(?:\.\d+)?)|(exp|tanh|cos|softmax|sparsemax|ln|frac)|(\p{L}\p{M}*)|(\s+)|([\s\S])/gu;

export function formula(text: string): Element {
  return math("math", { display: "block" }, new Parser(text).sequence());
}

class Parser {
  private readonly tokens: { kind: string; text: string }[];
  private at = 0;

  constructor(text: string) {
    const kinds = ["mtext", "mn", "name", "mi", "space", "mo"];
    this.tokens = [...text.matchAll(TOKEN)]
      .map((found) => {
        const n = found.slice(1).findIndex((group) => group !== undefined);
        return { kind: kinds[n], text: found[n + 1] };
      })
      .filter(({ kind }) => kind !== "space");
  }

  sequence(): Element {
    const items: Element[] = [];
    while (this.at < this.tokens.length && this.tokens[this.at].text !== "}") {
      items.push(this.item());
    }
    return items.length === 1 ? items[0] : math("mrow", {}, items);
  }

  private item(): Element {
    const base = this.atom();
    const below = this.takes("_") ? this.atom() : null;
    const above = this.takes("^") ? this.atom() : null;
    if (below && above) {
      return math("msubsup", {}, base, below, above);
    }
    return below ? math("msub", {}, base, below) : above ? math("msup", {}, base, above) : base;
  }

  private atom(): Element {
    const { kind, text } = this.tokens[this.at++];
    if (kind === "mo" && text === "{") {
      const found = this.sequence();
      this.at += 1; // the closing brace
      return found;
    }
    if (kind === "name" && text === "frac") {
      return math("mfrac", {}, this.atom(), this.atom());
    }
    return math(kind === "name" ? "mi" : kind, {}, text);
  }

  private takes(mark: string): boolean {
    const found = this.tokens[this.at];
    const isThere = found?.kind === "mo" && found.text === mark;
    this.at += isThere ? 1 : 0;
    return isThere;
  }
}
