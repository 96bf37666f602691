// The weight of words and sentences beside what their removal changes.
import type { Classification, Encoded } from "../engine/index.ts";
import { button, h, panel, scrolling, styled } from "./dom.ts";
import { percent, top } from "./numbers.ts";
import type { Text } from "./text.ts";

const MOST_WORDS = 12;
const MOST_SENTENCES = 6;

/** A word, or without `n` a sentence, that could be removed. */
export interface Removal {
  s: number;
  n: number | null;
  name: string;
  weight: number;
  without: Encoded;
}

/** The most weighted words and sentences, of those that are not struck. */
export function removalsOf(
  text: Text,
  now: Classification,
  row: (hops: readonly Float32Array[]) => Float32Array,
): Removal[] {
  const words: Removal[] = [];
  const sentences: Removal[] = [];
  text.parts.forEach((part, s) => {
    const place = text.keptPart(s);
    const found = place === null ? null : now.parts[place];
    if (!found) {
      return;
    }
    const weights = row(found.hops);
    const of = found.weight ?? 1;
    part.forEach((name, n) => {
      const at = text.keptWord(s, n);
      if (at !== null) {
        const without = text.without((part, word) => part === s && word === n);
        words.push({ s, n, name, weight: (weights[at] ?? 0) * of, without });
      }
    });
    if (found.weight !== null) {
      const name = `Sentence ${s + 1}: ${part.slice(0, 5).join(" ")}${part.length > 5 ? " …" : ""}`;
      sentences.push({ s, n: null, name, weight: found.weight, without: text.without((part) => part === s) });
    }
  });
  const best = (list: Removal[], count: number) =>
    top(
      list.map(({ weight }) => weight),
      count,
    ).map((n) => list[n]);
  const many = sentences.length > 1 ? best(sentences, MOST_SENTENCES) : [];
  return words.length > 1 ? [...many, ...best(words, MOST_WORDS)] : [];
}

/** A table; `found` are the probabilities of all labels after each removal. */
export function effectsTable(
  removals: readonly Removal[],
  now: Classification,
  found: readonly number[][],
  milliseconds: number,
  strike: (removal: Removal) => void,
): HTMLElement {
  const shares = now.probabilities.map(({ probability }) => probability);
  const [watched] = top(shares, 1);
  const { label } = now.probabilities[watched];
  const changes = found.map((probabilities) => probabilities[watched] - shares[watched]);
  const highest = Math.max(0.02, ...changes.map(Math.abs));
  const heaviest = Math.max(...removals.map(({ weight }) => weight));
  const rows = removals.map((removal, n) =>
    h(
      "tr",
      {},
      h(
        "th",
        { scope: "row" },
        button(removal.name, () => strike(removal), { class: "small", title: "Strike out" }),
      ),
      h("td", {}, bar(removal.weight / heaviest, "weight"), h("span", { class: "share" }, percent(removal.weight))),
      h(
        "td",
        {},
        bar(Math.abs(changes[n]) / highest, changes[n] < 0 ? "less" : "more"),
        h("span", { class: "share" }, points(changes[n])),
      ),
    ),
  );
  return panel(
    "Is the weight an explanation?",
    h(
      "p",
      { class: "muted" },
      `The weight of words and sentences, and how the probability of “${label}” changes without each of them `,
      `(${removals.length} texts at once, ${Math.round(milliseconds)} ms).`,
    ),
    h(
      "div",
      scrolling("Weights and effects"),
      h(
        "table",
        { class: "effects" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["Without", "Weight", `Change of “${label}”`].map((head) => h("th", { scope: "col" }, head)),
          ),
        ),
        h("tbody", {}, rows),
      ),
    ),
  );
}

function bar(share: number, kind: string): HTMLElement {
  return styled(h("span", { class: `bar ${kind}`, "aria-hidden": "true" }), { "--share": share });
}

function points(change: number): string {
  const value = Math.abs(change * 100).toFixed(1);
  return value === "0.0" ? value : `${change > 0 ? "+" : "−"}${value}`;
}
