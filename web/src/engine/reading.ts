// Reader: `answer`, as zoo/verbs/reading.py and zoo/runtime/reading.py.
import { trusted, type Warnings } from "./confidence.ts";
import { knownShare } from "./familiar.ts";
import type { Exported } from "./folder.ts";
import { floats, Graph, integers, Tensor } from "./graph.ts";
import { type Facts, factsOf, tokenizerOf } from "./model.ts";
import { type Tokenizer, UNK } from "./tokenizer.ts";
import { BLANK, splitWords, wordId } from "./words.ts";

const MOST_ABSENT = 10; // candidates that a warning lists

export interface Reading extends Warnings {
  answer: string;
  /** In the order of the candidates; without candidates the words of the document, most probable first. */
  probabilities: { word: string; probability: number }[];
  document: string[];
  /** Weight of each word of the document: the answer has the largest sum. */
  weights: Float32Array;
  query: string[];
  queryWeights: Float32Array | null;
  /** Attention of both directions, a row for each word of the document: over the document, and over the query. */
  overDocument: Float32Array | null;
  overQuery: Float32Array | null;
  milliseconds: number;
}

export interface ReRanking {
  context_share: number;
  expectation_weight: number;
  unknown_weight: number;
}

export class Reader {
  readonly task = "reading";

  private constructor(
    readonly facts: Facts,
    private readonly graph: Graph,
    readonly tokenizer: Tokenizer,
  ) {}

  static async open(exported: Exported): Promise<Reader> {
    const [facts, tokenizer] = [await factsOf(exported), await tokenizerOf(exported)];
    return new Reader(facts, await Graph.open(exported, "reader.onnx"), tokenizer);
  }

  get name(): string {
    return this.facts.name;
  }

  /** How much the contexts of words count, if they do. */
  get reRanking(): ReRanking | null {
    const { config } = this.facts.about;
    return config.context_size ? (config as ReRanking) : null;
  }

  /** Finds the missing word of a query, XXXXX, in a document; null candidates: any word of the document. */
  async answer(document: string, query: string, candidates: readonly string[] | null = null): Promise<Reading> {
    const start = performance.now();
    const question = this.question(document, query, candidates);
    const { weights, ...others } = await this.weigh(question.words, question.asked);
    const sums = new Map<string, number>();
    question.words.forEach((word, n) => sums.set(word, Math.fround((sums.get(word) ?? 0) + weights[n])));
    const chosen = question.given.length ? question.given : [...sums.keys()];
    const found = chosen.map((word) => sums.get(word) ?? 0);
    const probabilities = new Map(chosen.map((word, n) => [word, found[n]]));
    if (!question.given.length && probabilities.size > 1) {
      probabilities.delete(BLANK); // the document may contain the mark too
    }
    const listed = [...probabilities].map(([word, probability]) => ({ word, probability }));
    const sorted = [...listed].sort((one, other) => other.probability - one.probability);
    const ids = question.words.map((word) => wordId(word, this.tokenizer));
    const absent = question.given.filter((word) => !sums.has(word));
    const score = question.given.length - absent.length > 1 ? logOddsOfBest(found) : NaN; // measured for choices among candidates
    const evidence = {
      values: { score },
      known: knownShare(ids, this.tokenizer),
      text: question.words.join(" "),
      notes: notesOf(absent),
      vocabulary: this.tokenizer,
    };
    return {
      answer: sorted[0].word,
      probabilities: question.given.length ? listed : sorted,
      document: question.words,
      weights,
      query: question.asked,
      ...others,
      milliseconds: performance.now() - start,
      ...trusted(this.facts.calibration, evidence),
    };
  }

  /** Words of document and query, and candidates. */
  private question(
    document: string,
    query: string,
    candidates: readonly string[] | null,
  ): { words: string[]; asked: string[]; given: string[] } {
    const given = [...new Set((candidates ?? []).map((word) => word.normalize("NFC")))];
    const keep = new Set([BLANK, ...given]);
    const words = splitWords(document, this.tokenizer, keep);
    const asked = splitWords(query, this.tokenizer, keep);
    if (!words.length || !asked.length) {
      throw new Error(`the ${words.length ? "query" : "document"} has no words; give a text`);
    }
    if (!asked.includes(BLANK)) {
      throw new Error(`the query must have ${BLANK} in place of the missing word`);
    }
    if (candidates && !given.some((word) => words.includes(word))) {
      throw new Error("none of the candidates is in the document (upper and lower case differ)");
    }
    const free = words.filter((word) => !asked.includes(word));
    const possible = new Set(free.length ? free : words);
    if (candidates && this.facts.about.config.exclude_query_words && !given.some((word) => possible.has(word))) {
      throw new Error("this model never answers with a word of the query, and the candidates are such words");
    }
    return { words, asked, given };
  }

  private async weigh(
    words: readonly string[],
    asked: readonly string[],
  ): Promise<Pick<Reading, "weights" | "queryWeights" | "overDocument" | "overQuery">> {
    const rows = this.rows(words, asked);
    const inQuery = new Set(asked);
    const found = await this.graph.run({
      document: integers(words.map((word) => rows.get(word)!), [1, words.length]),
      document_lengths: integers([words.length], [1]),
      query: integers(asked.map((word) => rows.get(word)!), [1, asked.length]),
      query_lengths: integers([asked.length], [1]),
      not_in_query: new Tensor("bool", words.map((word) => !inQuery.has(word)), [1, words.length]),
    });
    const optional = (name: string) => (found[name] ? floats(found[name]) : null);
    return {
      weights: floats(found.weights),
      queryWeights: optional("query_weights"),
      overDocument: optional("over_document"),
      overQuery: optional("over_query"),
    };
  }

  /** Row of the embedding for each word; unknown words are numbered in the order in which they occur. */
  private rows(words: readonly string[], asked: readonly string[]): Map<string, number> {
    const { first_id, count } = this.facts.about.unknown_words!;
    const rows = new Map<string, number>();
    let seen = 0;
    for (const word of [...words, ...asked]) {
      if (!rows.has(word)) {
        const id = wordId(word, this.tokenizer);
        rows.set(word, id === UNK && count ? first_id + (seen++ % count) : id);
      }
    }
    return rows;
  }
}

/** The warning of candidates that are not in the document, whose probability is 0. */
function notesOf(absent: readonly string[]): string[] {
  const more = absent.length > MOST_ABSENT ? ", ..." : "";
  return absent.length ? [`not in the document, so never the answer: ${absent.slice(0, MOST_ABSENT).join(", ")}${more}`] : [];
}

/** Log-odds of the best candidate, whose probabilities may sum to less than 1. */
function logOddsOfBest(probabilities: readonly number[]): number {
  const found = probabilities.map((probability) => Math.max(probability, 1e-9));
  const best = Math.max(...found) / found.reduce((sum, probability) => sum + probability, 0);
  return Math.log(best) - Math.log(Math.max(1 - best, 1e-9));
}
