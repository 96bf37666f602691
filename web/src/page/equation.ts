// The equation of a mechanism with the numbers of one step.
import type { About, Step } from "../engine/index.ts";
import type { Context } from "./app.ts";
import { computedBy } from "./code.ts";
import { h } from "./dom.ts";
import { formula } from "./formula.ts";
import { label } from "./lines.ts";
import { mechanismOf } from "./mechanisms.ts";
import { decimals, entropyOf, top } from "./numbers.ts";

const TERMS = 3; // of a sum
const LETTERS: Record<string, string> = {
  h: "s: state of the decoder, h: a word of the sentence as the encoder sees it",
  v: "s or q: state of the decoder, k and v: key and value of a word of the sentence",
  a: "h: state of the decoder, a: features of a region of the photo (6|3: row 6, column 3), β: a gate from 0 to 1",
};

/** A step of a search, and what its weights belong to. */
export interface StepFacts {
  about: About;
  /** Name of each source position. */
  names: readonly string[];
  step: Step;
  t: number;
  isGiven: boolean;
}

/** The equations of a step. */
export function equations(context: Context, name: string, { about, names, step, t, isGiven }: StepFacts): HTMLElement {
  const mechanism = mechanismOf(about);
  const chance = Math.exp(step.logProb);
  const output = formula(
    `p(y_{${t + 1}} = ${quoted(step.piece)}) = ${decimals(chance, 3)} "  ,  " ln p = ${decimals(step.logProb)}`,
  );
  if (!mechanism || !step.attention) {
    const why = "This model has no attention: each word sees one vector of the whole sentence.";
    return h("section", { class: "panel" }, h("h2", {}, `Step ${t + 1} in numbers`), h("p", {}, why), output);
  }
  const weights = step.attention;
  const places = top(weights, TERMS).filter((n) => weights[n] > 0);
  const isAll = places.reduce((total, n) => total + weights[n], 0) > 0.9995;
  const rest = isAll ? 0 : weights.length - places.length;
  const terms = places.map((n) => `${decimals(weights[n], 3)} ${mechanism.values}_{${quoted(names[n])}}`).join(" + ");
  const shares = places.map((n) => `α_{${t + 1},${quoted(names[n])}} = ${decimals(weights[n], 3)}`).join(' "  ,  " ');
  const gate = mechanism.values === "a" ? ["β ( ", " )"] : ["", ""];
  const most = Math.log(weights.length);
  return h(
    "section",
    { class: "panel" },
    h("h2", {}, `Step ${t + 1} in numbers: ${mechanism.name}`),
    h(
      "dl",
      { class: "equations" },
      row("Scores", formula(mechanism.score), !isGiven && mechanism.isSoftmax && difference(weights, names, places, t)),
      row(isGiven ? "Weights: yours, instead of" : "Weights", formula(mechanism.weights), formula(shares)),
      row(
        "Context",
        formula(mechanism.context),
        formula(`c_{${t + 1}} = ${gate[0]}${terms}${rest > 0 ? ` + … "(${rest} more)"` : ""}${gate[1]}`),
      ),
      row(
        "Entropy",
        formula(`H_{${t + 1}} = − ∑_j α_{${t + 1},j} ln α_{${t + 1},j} = ${decimals(entropyOf(weights))}`),
        formula(`"at most  " ln ${weights.length} = ${decimals(most)}`),
      ),
      row("Output", output),
    ),
    computedBy(context, name, mechanism.file, mechanism.symbol, LETTERS[mechanism.values]),
  );
}

/** What the two largest weights say of their scores. */
function difference(weights: Float32Array, names: readonly string[], places: number[], t: number): Element | null {
  const [first, second] = places;
  if (second === undefined || weights[second] < 1e-6) {
    return null;
  }
  const scores = [first, second].map((n) => `e_{${t + 1},${quoted(names[n])}}`);
  const ratio = Math.log(weights[first] / weights[second]);
  const shares = [first, second].map((n) => `{α_{${t + 1},${quoted(names[n])}}}`);
  return formula(`${scores[0]} − ${scores[1]} = ln frac${shares.join("")} = ${decimals(ratio)}`);
}

function row(name: string, ...found: (Element | null | false)[]): HTMLElement {
  return h("div", {}, h("dt", {}, name), h("dd", { class: "scrolls" }, found));
}

function quoted(token: string): string {
  return `"${label(token).replaceAll('"', "”")}"`;
}
