// The equation of a mechanism with the numbers of one step.
import type { About, Step } from "../engine/index.ts";
import type { Context } from "./app.ts";
import { computedBy } from "./code.ts";
import { equationRow, h } from "./dom.ts";
import { formula } from "./formula.ts";
import { label } from "./lines.ts";
import { type Mechanism, mechanismOf } from "./mechanisms.ts";
import { decimals, entropyOf } from "./numbers.ts";
import { NO_ATTENTION } from "./parts.ts";
import { type Computed, heaviest, scoreLine, weightedSum, weightLines } from "./step_numbers.ts";

const ONE_HEAD = "These weights are a mean over heads, each with its own scores: choose one head to see them.";
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
  /** With the weights and scores that are shown: of a Transformer those of one head, or a mean without scores. */
  step: Step;
  t: number;
  isGiven: boolean;
}

/** The equations of a step. */
export function equations(context: Context, name: string, facts: StepFacts): HTMLElement {
  const { about, names, step, t, isGiven } = facts;
  const mechanism = mechanismOf(about);
  const chance = Math.exp(step.logProb);
  const output = formula(
    `p(y_{${t + 1}} = ${quoted(step.piece)}) = ${decimals(chance, 3)} "  ,  " ln p = ${decimals(step.logProb)}`,
  );
  if (!mechanism || !step.attention) {
    return h("section", { class: "panel" }, h("h2", {}, `Step ${t + 1} in numbers`), h("p", {}, NO_ATTENTION), output);
  }
  const weights = step.attention;
  const places = heaviest(weights);
  const terms = weightedSum(weights, places, (n) => `${mechanism.values}_{${quoted(names[n])}}`);
  const gate = mechanism.values === "a" ? ["β ( ", " )"] : ["", ""];
  const most = Math.log(weights.length);
  return h(
    "section",
    { class: "panel" },
    h("h2", {}, `Step ${t + 1} in numbers: ${mechanism.name}`),
    h(
      "dl",
      { class: "equations" },
      equationRow("Scores", formula(mechanism.score), ...scores(facts, weights, places)),
      equationRow(
        isGiven ? "Weights: yours, instead of" : "Weights",
        formula(mechanism.weights),
        ...shares(mechanism, facts, weights, places),
      ),
      equationRow(
        "Context",
        formula(mechanism.context),
        formula(`c_{${t + 1}} = ${gate[0]}${terms}${gate[1]}`),
      ),
      equationRow(
        "Entropy",
        formula(`H_{${t + 1}} = − ∑_j α_{${t + 1},j} ln α_{${t + 1},j} = ${decimals(entropyOf(weights))}`),
        formula(`"at most  " ln ${weights.length} = ${decimals(most)}`),
      ),
      equationRow("Output", output),
    ),
    computedBy(context, name, mechanism.file, mechanism.symbol, LETTERS[mechanism.values]),
  );
}

/** The scores of the words with the largest weights; where the weights are the user's, the model's largest scores. */
function scores(facts: StepFacts, weights: Float32Array, places: number[]): (Element | null)[] {
  const { step, isGiven } = facts;
  if (!step.scores) {
    return [step.heads ? note(ONE_HEAD) : null];
  }
  const found = computed(facts, step.scores, weights);
  if (!isGiven) {
    return [formula(scoreLine(found, places))];
  }
  return [formula(scoreLine(found, heaviest(step.scores, -Infinity))), note("The model’s own, which your weights replace.")];
}

/** How the shown weights come from the scores; only their values, where they do not. */
function shares({ rule }: Mechanism, facts: StepFacts, weights: Float32Array, places: number[]): Element[] {
  const { step, names, t, isGiven } = facts;
  if (step.scores && !isGiven) {
    return weightLines(rule, computed(facts, step.scores, weights), places).map(formula);
  }
  const values = places.map((n) => `α_{${t + 1},${quoted(names[n])}} = ${decimals(weights[n], 3)}`);
  return [formula(values.join(' "  ,  " '))];
}

function computed({ step, names, t }: StepFacts, scores: Float32Array, weights: Float32Array): Computed {
  const { alignedPosition } = step;
  return { step: t + 1, position: t, scores, weights, alignedPosition, names: names.map(quoted) };
}

function note(text: string): HTMLElement {
  return h("p", { class: "muted" }, text);
}

function quoted(token: string): string {
  return `"${label(token).replaceAll('"', "”")}"`;
}
