// Confidence and warnings: how far an answer can be trusted, as zoo/verbs/confidence.py says.
import { stripped, words as wordsOf } from "./characters.ts";
import { NO_DATE, tells } from "./dates.ts";
import { languagesOf, NAMES, otherLanguage } from "./familiar.ts";
import type { Tokenizer } from "./tokenizer.ts";

/** The content of calibration.json. */
export interface Calibration {
  event: string;
  bias: number;
  weights: Record<string, number>;
  low_confidence: number;
  least_known: number;
  language: string | null;
  answers: "text" | "date";
  exact: boolean;
}

/** What is known of an answer without its reference. */
export interface Evidence {
  values: Record<string, number>;
  known?: number;
  text?: string;
  answer?: string;
  notes?: string[];
  vocabulary?: Tokenizer;
}

/** How far an answer can be trusted: a probability (null without a calibration), and reasons to doubt. */
export interface Warnings {
  confidence: number | null;
  warnings: string[];
}

export const NO_WORDS = "the text has no words";
const STUTTER = /(\S{1,12}?)\1{19}/u;
const LEAST_KNOWN = 0.6; // share of known words, without a calibration: two words of which none is known have 0.5

export function trusted(calibration: Calibration | null, evidence: Evidence): Warnings {
  const confidence = calibration && confidenceOf(calibration, evidence);
  return { confidence, warnings: warningsOf(calibration, evidence, confidence) };
}

function confidenceOf(calibration: Calibration, evidence: Evidence): number | null {
  if (calibration.answers === "date" && faultOfDate(evidence)) {
    return 0;
  }
  let total = calibration.bias;
  for (const [name, weight] of Object.entries(calibration.weights)) {
    total += weight * (evidence.values[name] ?? NaN);
  }
  return Number.isNaN(total) ? null : total > -30 ? 1 / (1 + Math.exp(-total)) : Math.exp(Math.max(total, -700));
}

function warningsOf(calibration: Calibration | null, evidence: Evidence, confidence: number | null): string[] {
  const found = [...(evidence.notes ?? [])];
  if (evidence.answer === "" && stripped(evidence.text ?? "")) {
    found.push("the answer is empty");
  }
  if (evidence.answer && repeats(evidence.answer)) {
    found.push("the answer repeats itself");
  }
  const least = calibration ? calibration.least_known : LEAST_KNOWN;
  if (evidence.known !== undefined && evidence.known < least) {
    found.push("the model knows few of the words");
  }
  const foreign = evidence.text && faultOfLanguage(calibration, evidence.text, evidence.vocabulary);
  if (foreign) {
    found.push(foreign);
  }
  if (!calibration) {
    return found;
  }
  const fault = calibration.answers === "date" ? faultOfDate(evidence) : null;
  if (fault) {
    found.push(fault);
  } else if (confidence !== null && confidence < calibration.low_confidence) {
    found.push(`low confidence (${confidence.toFixed(2)})`);
  }
  return found;
}

/** Why a text is not in the language that a model reads: that of its calibration, else one of its vocabulary. */
function faultOfLanguage(calibration: Calibration | null, text: string, vocabulary?: Tokenizer): string | null {
  const ofVocabulary = () => (vocabulary ? languagesOf(vocabulary) : []);
  const read = calibration ? (calibration.language ? [calibration.language] : []) : ofVocabulary();
  const found = read.map((language) => otherLanguage(text, language));
  if (!read.length || found.includes(null)) {
    return null;
  }
  return `the text looks ${found[0]}; the model reads ${read.map((language) => NAMES[language]).join(" and ")}`;
}

/** Whether some four words stand in a text four times or more. */
function repeats(answer: string): boolean {
  if (STUTTER.test(answer)) {
    return true;
  }
  const words = wordsOf(answer);
  const counts = new Map<string, number>();
  for (let n = 0; n + 4 <= words.length; n++) {
    const four = words.slice(n, n + 4).join(" ");
    counts.set(four, (counts.get(four) ?? 0) + 1);
  }
  return Math.max(0, ...counts.values()) >= 4;
}

/** log p / (1 - p), bounded. */
export function logOdds(logProbability: number): number {
  const bounded = Math.min(logProbability, -1e-7);
  return bounded - Math.log(-Math.expm1(bounded));
}

/** Why an answer cannot be the date in a text; null if it can. */
function faultOfDate(evidence: Evidence): string | null {
  if (evidence.answer === NO_DATE) {
    return "the model sees no clear date in the text";
  }
  const found = /^(\d{4})-(\d{2})-(\d{2})$/.exec(evidence.answer ?? "");
  const [year, month, day] = (found ?? []).slice(1).map(Number);
  if (!found || !isDate(year, month, day)) {
    return "the answer is not a date";
  }
  return tells(evidence.text ?? "", year, month, day) ? null : "the answer is a date that is not in the text";
}

function isDate(year: number, month: number, day: number): boolean {
  const leap = year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);
  const days = [31, leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
  return year >= 1 && month >= 1 && month <= 12 && day >= 1 && day <= days[month - 1];
}
