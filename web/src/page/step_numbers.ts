// The numbers of a step between its scores and its weights, as formulas.
import type { Rule } from "./mechanisms.ts";
import { decimals, top } from "./numbers.ts";

const TERMS = 3; // of a sum

/** What the attention of a step computed. */
export interface Computed {
  /** Number of the step, from 1; null for the only query of a text. */
  step: number | null;
  /** Target position, from 0, which local-m looks around. */
  position: number;
  scores: Float32Array;
  weights: Float32Array;
  /** p_t of local-p, from 0. */
  alignedPosition?: number;
  /** Names of the source positions, quoted for a formula. */
  names: readonly string[];
}

/** The places of the largest numbers above `least`, as many as a sum shows. */
export function heaviest(values: Float32Array, least = 0): number[] {
  return top(values, TERMS).filter((n) => values[n] > least);
}

/** A weighted sum with its largest terms: 0.612 h_"dog" + 0.301 h_"a" + … "(7 more)". */
export function weightedSum(weights: Float32Array, places: readonly number[], value: (n: number) => string): string {
  const terms = places.map((n) => `${decimals(weights[n], 3)} ${value(n)}`);
  const isAll = places.reduce((total, n) => total + weights[n], 0) > 0.9995;
  const rest = isAll ? 0 : weights.length - places.length;
  return `${terms.join(" + ") || "0"}${rest > 0 ? ` + … "(${rest} more)"` : ""}`;
}

/** Scores of some source positions: e_{3,"dog"} = 4.21. */
export function scoreLine(computed: Computed, places: readonly number[]): string {
  const { scores, names } = computed;
  return places.map((n) => `e_${at(computed, names[n])} = ${decimals(scores[n], 3)}`).join(' "  ,  " ');
}

/** How the scores of a step become the weights of some positions, a formula a line. */
export function weightLines(rule: Rule, computed: Computed, places: readonly number[]): string[] {
  const { scores, weights, names } = computed;
  const seen = seenPlaces(rule, computed);
  const lines = whereItLooks(rule, computed, seen);
  const alpha = (n: number) => `α_${at(computed, names[n])}`;
  if (rule.normalize === "sparsemax") {
    const [first] = places;
    const isPlain = rule.positions === "global" || rule.positions === "local_m";
    const threshold = scores[first] - weights[first];
    const shares = places.map((n) => {
      return `${alpha(n)} = max(0, ${decimals(scores[n], 3)} − ${decimals(threshold, 3)}) = ${decimals(weights[n], 3)}`;
    });
    return isPlain ? [...lines, ...shares] : lines;
  }
  const total = logSum(seen.map((n) => rule.temperature * scores[n]));
  const factor = rule.temperature === 1 ? "" : `${decimals(rule.temperature)} `;
  lines.push(`ln ∑_k exp(${factor}e_${at(computed, "k")}) = ${decimals(total, 3)}`);
  for (const n of places) {
    const share = `exp(${factor}${decimals(scores[n], 3)} − ${decimals(total, 3)})`;
    lines.push(`${alpha(n)} = ${share}${afterSoftmax(rule, computed, n)} = ${decimals(weights[n], 3)}`);
  }
  return lines;
}

/** The source positions whose scores the softmax sees. */
export function seenPlaces({ positions, window }: Rule, computed: Computed): number[] {
  const { position, weights, alignedPosition } = computed;
  const all = Array.from(weights, (_, n) => n);
  switch (positions) {
    case "local_m":
      return all.filter((n) => Math.abs(n - Math.min(position, weights.length - 1)) <= window);
    case "local_p":
      return all.filter((n) => Math.abs(n - Math.floor(alignedPosition ?? 0)) <= window);
    case "local_p_star":
      return all.filter((n) => weights[n] > 0);
    default:
      return all;
  }
}

/** The centre and the window of local attention. */
function whereItLooks({ positions, window }: Rule, computed: Computed, seen: readonly number[]): string[] {
  const { step, position, weights, alignedPosition, names } = computed;
  const reach = `"from  " ${names[seen[0]]} "  to  " ${names[seen[seen.length - 1]]} "  (D = ${window})"`;
  switch (positions) {
    case "local_m":
      return [`"window  " ${reach} "  around  " ${names[Math.min(position, weights.length - 1)]}`];
    case "local_p":
    case "local_p_full": {
      const centre = `p${step === null ? "" : `_{${step}}`} = ${decimals(alignedPosition ?? 0)}`;
      const near = names[Math.min(Math.floor(alignedPosition ?? 0), weights.length - 1)];
      const looks = positions === "local_p" ? ` "  ,  window  " ${reach}` : "";
      return [`${centre} "  (0 is the first word): in  " ${near}${looks}`];
    }
    case "local_p_star":
      return [`"the  ${seen.length}  words with the largest  " p_j`];
    default:
      return [];
  }
}

/** What local attention does to a weight after the softmax. */
function afterSoftmax({ positions, window, renormalize }: Rule, { alignedPosition = 0 }: Computed, n: number): string {
  const sum = renormalize ? ' "/ sum"' : "";
  switch (positions) {
    case "local_p":
    case "local_p_full":
      return ` exp(− frac{{(${n} − ${decimals(alignedPosition)})}^2}{2 · {${decimals(window / 2, 1)}}^2})${sum}`;
    case "local_p_star":
      return ` p_j${sum}`;
    default:
      return "";
  }
}

/** The subscript of a position. */
function at({ step }: Pick<Computed, "step">, name: string): string {
  return `{${step === null ? "" : `${step},`}${name}}`;
}

function logSum(values: readonly number[]): number {
  const highest = Math.max(...values);
  return highest + Math.log(values.reduce((sum, value) => sum + Math.exp(value - highest), 0));
}
