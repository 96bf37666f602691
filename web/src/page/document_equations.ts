// The equations of a classifier with the numbers of the text that is shown.
import type { Classification, Classifier } from "../engine/index.ts";
import type { Context } from "./app.ts";
import { computedBy } from "./code.ts";
import { equationRow, h, panel } from "./dom.ts";
import { formula } from "./formula.ts";
import { EVERYWHERE, mechanismOf, type Rule } from "./mechanisms.ts";
import { decimals } from "./numbers.ts";
import { type Computed, heaviest, scoreLine, weightedSum, weightLines } from "./step_numbers.ts";

interface Line {
  name: string;
  formulas: string[];
}

/** `row` gives the shown weights of a text of several hops. */
export function documentEquations(
  model: Classifier,
  context: Context,
  now: Classification,
  row: (hops: readonly Float32Array[]) => Float32Array,
): HTMLElement {
  const [lines, file, symbol] = ofModel(model, now, row);
  return panel(
    "In numbers",
    h(
      "dl",
      { class: "equations" },
      lines.map(({ name, formulas }) =>
        equationRow(name, formulas.map(formula)),
      ),
    ),
    computedBy(context, model.name, file, symbol),
  );
}

function ofModel(
  model: Classifier,
  now: Classification,
  row: (hops: readonly Float32Array[]) => Float32Array,
): [Line[], string, string] {
  const { about } = model.facts;
  if (model.ofDocuments) {
    return [ofSentences(now, about.config.multi_label), "zoo/models/han.py", "ContextAttention"];
  }
  const mechanism = mechanismOf(about);
  const [first] = now.parts;
  const weights = now.parts.map((part, n) =>
    weighted("m", "h", row(part.hops), part.words, now.parts.length > 1 ? n + 1 : 0),
  );
  if (mechanism) {
    const { scores, hops, words, alignedPosition } = first;
    const found = numbers(scores?.[0], hops[0], words, { rule: mechanism.rule, alignedPosition });
    const lines = [
      { name: "Scores", formulas: [withoutSteps(mechanism.score), ...(found?.scores ?? [])] },
      { name: "Weights", formulas: [withoutSteps(mechanism.weights), ...(found?.weights ?? [])] },
      { name: "Context", formulas: weights.map((one) => one.replace("m", "c")) },
    ];
    return [lines, mechanism.file, mechanism.symbol];
  }
  const lines = [
    {
      name: "Weights",
      formulas: [
        "A = softmax(W_2 tanh(W_1 H^⊤))",
        `"a row for each of ${first?.hops.length ?? 0} hops"`,
        ...now.parts.flatMap(({ hops, scores, words }) => {
          const hop = hops.indexOf(row(hops)); // -1 for a mean of hops, which is of no scores
          return together(numbers(scores?.[hop], row(hops), words));
        }),
      ],
    },
    { name: "Text", formulas: ["M = A H", ...weights] },
  ];
  return [lines, "zoo/models/structured_self_attention.py", "HopAttention"];
}

/** HAN: the heaviest sentence as a sum of its words, and the document as a sum of its sentences. */
function ofSentences(now: Classification, multiLabel: boolean): Line[] {
  const shares = Float32Array.from(now.parts, ({ weight }) => weight ?? 0);
  const found = now.parts.flatMap(({ score }) => score ?? []); // none with graphs of an earlier version
  const scores = found.length === shares.length ? Float32Array.from(found) : undefined;
  const [first] = heaviest(shares);
  const part = now.parts[first];
  if (!part) {
    return [];
  }
  const names = now.parts.map((_, n) => String(n + 1));
  return [
    {
      name: "Words",
      formulas: [
        "α_{it} = softmax_t(e_{it}) \"  with  \" e_{it} = u_w^⊤ tanh(W_w h_{it} + b_w)",
        ...together(numbers(part.scores?.[0], part.hops[0], part.words, { step: first + 1 })),
        weighted("s", "h", part.hops[0], part.words, first + 1),
      ],
    },
    {
      name: "Sentences",
      formulas: [
        'α_i = softmax_i(e_i) "  with  " e_i = u_s^⊤ tanh(W_s h_i + b_s)',
        ...together(numbers(scores, shares, names)),
        weighted("v", "h", shares, names, 0),
      ],
    },
    { name: "Label", formulas: [multiLabel ? "p = σ(W_c v + b_c)" : "p = softmax(W_c v + b_c)", ...label(now)] },
  ];
}

/** Scores of the heaviest items, and how they become weights; null where the graphs, of an earlier version, give none. */
function numbers(
  scores: Float32Array | undefined,
  weights: Float32Array,
  names: readonly string[],
  { step = null, rule = EVERYWHERE, alignedPosition }: Partial<Computed & { rule: Rule }> = {},
): { scores: string[]; weights: string[] } | null {
  if (!scores?.length) {
    return null;
  }
  const position = names.length - 1; // the query stands at the end
  const computed = { step, position, scores, weights, alignedPosition, names: names.map(quoted) };
  const places = heaviest(weights);
  return { scores: [scoreLine(computed, places)], weights: weightLines(rule, computed, places) };
}

function together(found: ReturnType<typeof numbers>): string[] {
  return found ? [...found.scores, ...found.weights] : [];
}

/** An equation of a step, of which a text has only one. */
function withoutSteps(equation: string): string {
  return equation.replaceAll("_{tj}", "_j").replaceAll("_{tk}", "_k").replaceAll("_t", "");
}

function quoted(word: string): string {
  return `"${word.replaceAll('"', "”")}"`;
}

function label({ labels, probabilities }: Classification): string[] {
  const found = probabilities.find((one) => one.label === labels[0]);
  return found ? [`p("${found.label}") = ${decimals(found.probability, 3)}`] : [];
}

/** A weighted sum with its largest terms; `n` numbers it, 0 for none. */
function weighted(name: string, values: string, weights: Float32Array, words: readonly string[], n: number): string {
  const found = weightedSum(weights, heaviest(weights), (place) => `${values}_{${quoted(words[place])}}`);
  return `${name}${n ? `_${n}` : ""} = ${found}`;
}
