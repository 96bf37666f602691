// Classifier: `classify`, of texts, pairs of texts and documents, as zoo/verbs/classification.py.
import { hasAlphanumeric } from "./characters.ts";
import { NO_WORDS, trusted, type Warnings } from "./confidence.ts";
import { knownShare } from "./familiar.ts";
import type { Exported } from "./folder.ts";
import { floats, Graph, padded, type Tensors } from "./graph.ts";
import { type Facts, factsOf, tokenizerOf } from "./model.ts";
import { encodeDocument } from "./sentences.ts";
import type { Tokenizer } from "./tokenizer.ts";

const RELATEDNESS = [1, 5]; // of a pair: lowest and highest

/** A sentence of a document, or a whole text: of a pair there are two. */
export interface Weighed {
  ids: number[];
  words: string[];
  /** Weights of the words; a document has one hop. */
  hops: Float32Array[];
  /** Scores of the words before the softmax, of each hop; missing in graphs of earlier versions. */
  scores?: Float32Array[];
  /** Weight of the sentence in its document, null for texts, and its score. */
  weight: number | null;
  score?: number;
  /** p_t of local-p, counted from 0. */
  alignedPosition?: number;
}

export interface Classification extends Warnings {
  /** The most probable label; null if the labels are not exclusive and none is above 0.5. */
  label: string | null;
  labels: string[];
  probabilities: { label: string; probability: number }[];
  logits: Float32Array;
  parts: Weighed[];
  relatedness: number | null;
  milliseconds: number;
}

/** What a model reads: token ids and words of each sentence, or of each text. */
export interface Encoded {
  ids: number[][];
  words: string[][];
}

const HALF = "one of the texts has no words"; // of a pair

export class Classifier {
  readonly task = "classification";
  /** Whether it reads documents as sentences, and weighs these too. */
  readonly ofDocuments: boolean;
  readonly ofPairs: boolean;

  private constructor(
    readonly facts: Facts,
    private readonly graph: Graph,
    readonly tokenizer: Tokenizer,
    readonly labels: string[],
  ) {
    this.ofDocuments = graph.outputs.includes("sentence_attention");
    this.ofPairs = Boolean(facts.about.config.pair);
  }

  static async open(exported: Exported): Promise<Classifier> {
    const [facts, tokenizer] = [await factsOf(exported), await tokenizerOf(exported)];
    const labels = JSON.parse(await exported.text("labels.json")) as string[];
    return new Classifier(facts, await Graph.open(exported, "classifier.onnx"), tokenizer, labels);
  }

  get name(): string {
    return this.facts.name;
  }

  /** Classifies raw text; a model of pairs needs the second one. */
  async classify(text: string, second?: string): Promise<Classification> {
    if (this.ofPairs !== (second !== undefined)) {
      throw new Error(this.ofPairs ? "this model reads pairs of texts" : "this model reads one text");
    }
    const texts = second === undefined ? [text] : [text, second];
    return this.classifyEncoded(this.encode(text, second), texts.join(" "));
  }

  encode(text: string, second?: string): Encoded {
    if (this.ofDocuments) {
      return encodeDocument(this.tokenizer.plain(text), this.tokenizer);
    }
    const texts = (second === undefined ? [text] : [text, second]).map((one) => this.tokenizer.plain(one));
    return {
      ids: texts.map((one) => this.tokenizer.encode(one)),
      words: texts.map((one) => this.tokenizer.words(one)),
    };
  }

  /** Classifies words, such as those of `encode` without some; `text` is for the warnings. */
  async classifyEncoded(encoded: Encoded, text?: string): Promise<Classification> {
    const start = performance.now();
    const found = await this.graph.run(this.inputs([encoded]));
    const logits = floats(found.logits);
    if (!logits.every(Number.isFinite)) {
      throw new Error("the model computes NaN or infinite scores");
    }
    const exclusive = !this.facts.about.config.multi_label;
    const probabilities = this.probabilities(logits);
    const order = probabilities.map((_, n) => n).sort((one, other) => probabilities[other] - probabilities[one]);
    const chosen = exclusive ? order.slice(0, 1) : order.filter((n) => probabilities[n] > 0.5);
    const labels = chosen.map((n) => this.labels[n]);
    const words = encoded.ids.flat();
    const wordy = encoded.words.map((one) => one.some(hasAlphanumeric));
    const notes = !wordy.includes(true) ? [NO_WORDS] : this.ofPairs && wordy.includes(false) ? [HALF] : [];
    const evidence = {
      values: { score: exclusive ? sureness(logits) : surenessOfAll(logits) },
      known: knownShare(words, this.tokenizer),
      vocabulary: this.tokenizer,
      text: text ?? encoded.words.map((one) => one.join(" ")).join(" "),
      notes,
    };
    return {
      label: labels[0] ?? null,
      labels,
      probabilities: probabilities.map((probability, n) => ({ label: this.labels[n], probability })),
      logits,
      parts: this.ofDocuments ? weighedSentences(encoded, found) : weighedTexts(encoded, found),
      relatedness: found.relatedness
        ? Math.min(Math.max(floats(found.relatedness)[0], RELATEDNESS[0]), RELATEDNESS[1])
        : null,
      milliseconds: performance.now() - start,
      ...trusted(this.facts.calibration, evidence),
    };
  }

  /** The probabilities of all labels for each of several texts, at once. */
  async probabilitiesOf(many: readonly Encoded[]): Promise<number[][]> {
    if (!many.length) {
      return [];
    }
    const logits = floats((await this.graph.run(this.inputs(many))).logits);
    const size = logits.length / many.length;
    return many.map((_, n) => this.probabilities(logits.subarray(n * size, (n + 1) * size)));
  }

  private probabilities(logits: Float32Array): number[] {
    return this.facts.about.config.multi_label ? Array.from(logits, sigmoid) : softmax(logits);
  }

  private inputs(many: readonly Encoded[]): Tensors {
    const rows = many.map(({ ids }) => ids);
    return this.ofDocuments ? documentInputs(rows) : textInputs(rows);
  }
}

/** Inputs for texts or pairs of texts. */
function textInputs(many: readonly number[][][]): Tensors {
  const inputs: Tensors = {};
  many[0].forEach((_, n) => {
    const { tokens, lengths } = padded(many.map((texts) => texts[n]));
    const suffix = n ? "2" : "";
    inputs[`tokens${suffix}`] = tokens;
    inputs[`lengths${suffix}`] = lengths;
  });
  return inputs;
}

/** Inputs for documents: sentences are padded to the longest, and documents to the one with most sentences. */
function documentInputs(many: readonly number[][][]): Tensors {
  const sentences = Math.max(1, ...many.map((document) => document.length));
  const rows = many.flatMap((document) => Array.from({ length: sentences }, (_, n) => document[n] ?? []));
  const { tokens, lengths } = padded(rows);
  const width = tokens.dims[1];
  return { tokens: tokens.reshape([many.length, sentences, width]), lengths: lengths.reshape([many.length, sentences]) };
}

function weighedTexts({ ids, words }: Encoded, found: Tensors): Weighed[] {
  return ids.map((row, n) => {
    const suffix = n ? "2" : "";
    const { aligned_position: position } = found;
    const [weights, scores] = [found[`attention${suffix}`], found[`scores${suffix}`]];
    return {
      ids: row,
      words: words[n],
      hops: weights ? ofHops(weights, row.length) : [],
      weight: null,
      ...(scores && { scores: ofHops(scores, row.length) }),
      ...(position && { alignedPosition: floats(position)[0] }),
    };
  });
}

/** (1, hops, words) -> the first words of each hop. */
function ofHops(tensor: Tensors[string], words: number): Float32Array[] {
  const [, hops, width] = tensor.dims;
  return Array.from({ length: hops }, (_, hop) => floats(tensor).slice(hop * width, hop * width + words));
}

function weighedSentences({ ids, words }: Encoded, found: Tensors): Weighed[] {
  const { word_attention: ofWords, sentence_attention: ofSentences, word_scores: wordScores } = found;
  const line = (tensor: Tensors[string], n: number) => {
    const width = tensor.dims[2];
    return [floats(tensor).slice(n * width, n * width + ids[n].length)];
  };
  return ids.map((row, n) => ({
    ids: row,
    words: words[n],
    hops: line(ofWords, n),
    weight: floats(ofSentences)[n],
    ...(wordScores && { scores: line(wordScores, n), score: floats(found.sentence_scores)[n] }),
  }));
}

function softmax(logits: Float32Array): number[] {
  const highest = Math.max(...logits);
  const powers = Array.from(logits, (logit) => Math.exp(logit - highest));
  const total = powers.reduce((sum, power) => sum + power, 0);
  return powers.map((power) => power / total);
}

function sigmoid(logit: number): number {
  const power = Math.exp(-Math.abs(logit));
  return (logit >= 0 ? 1 : power) / (1 + power);
}

/** The log-odds of the most probable of exclusive labels. */
function sureness(logits: Float32Array): number {
  const [best, ...others] = Array.from(logits).sort((one, other) => other - one);
  const highest = Math.max(...others);
  return best - highest - Math.log(others.reduce((sum, logit) => sum + Math.exp(logit - highest), 0));
}

/** The log-odds that all of the labels that are not exclusive are right. */
function surenessOfAll(logits: Float32Array): number {
  const logP = -Array.from(logits).reduce((sum, logit) => sum + Math.log1p(Math.exp(-Math.abs(logit))), 0);
  return logP - Math.log(-Math.expm1(Math.min(logP, -1e-12)));
}
