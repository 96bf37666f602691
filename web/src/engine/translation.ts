// Translator: `translate`, as zoo/verbs/translation.py and zoo/verbs/sentences.py.
import { inCapitals, readCapitals } from "./casing.ts";
import { hasAlphanumeric, stripped } from "./characters.ts";
import { logOdds, NO_WORDS, trusted, type Warnings } from "./confidence.ts";
import { knownShare } from "./familiar.ts";
import type { Exported } from "./folder.ts";
import { padded } from "./graph.ts";
import { type Facts, factsOf, tokenizerOf } from "./model.ts";
import type { BeamNode, Hypothesis, SearchOptions, Step } from "./search.ts";
import { EncoderDecoder } from "./searching.ts";
import { splitSentences, withWords } from "./sentences.ts";
import { EOS, type Tokenizer } from "./tokenizer.ts";

export interface TranslateOptions extends SearchOptions {
  allowUnk?: boolean;
  /** Translate the sentences of a text one by one (the default), or read it as one. */
  splitSentences?: boolean;
}

export interface Translation extends Warnings {
  text: string;
  score: number;
  /** Labels of the source tokens, and their ids, with </s>. */
  source: string[];
  ids: number[];
  hypotheses: Hypothesis[];
  tree?: BeamNode[];
  /** Sentences of a text of several: each with its own search. */
  sentences?: Translation[];
  milliseconds: number;
}

/** What a model reads at once. */
interface Sentence {
  /** As the user gave it, which tells its language; of a model of characters as the model reads it. */
  given: string;
  ids: number[];
  note: string | null;
}

export class Translator {
  readonly task = "translation";

  private constructor(
    readonly facts: Facts,
    private readonly graphs: EncoderDecoder,
    readonly sourceTokenizer: Tokenizer,
    readonly targetTokenizer: Tokenizer,
  ) {}

  static async open(exported: Exported): Promise<Translator> {
    const shared = exported.has("tokenizer.json");
    const source = await tokenizerOf(exported, shared ? "tokenizer.json" : "tokenizer.src.json");
    const target = shared ? source : await tokenizerOf(exported, "tokenizer.tgt.json");
    return new Translator(await factsOf(exported), await EncoderDecoder.open(exported), source, target);
  }

  get name(): string {
    return this.facts.name;
  }

  private get language(): string {
    return this.facts.calibration?.language || "en";
  }

  get config(): Record<string, any> {
    return this.facts.about.config;
  }

  /** Whether a translation can be given attention weights. */
  get takesAttention(): boolean {
    return this.graphs.takesAttention;
  }

  /** Tokens of a text as the model reads it, </s> included. */
  tokens(text: string): { ids: number[]; pieces: string[] } {
    const ids = [...this.read(text).ids, EOS];
    return { ids, pieces: this.sourceTokenizer.tokens(ids) };
  }

  /** Translates raw text. With several sentences `prefix`, `given` and `onStep` need `splitSentences: false`. */
  async translate(text: string, options: TranslateOptions = {}): Promise<Translation> {
    const parts = this.sentences(text, options.splitSentences ?? true);
    const found: Translation[] = [];
    for (const sentence of parts) {
      found.push(await this.translateSentence(sentence, options));
    }
    return found.length === 1 ? found[0] : joined(found, options.nBest ?? 1);
  }

  /** Translates tokens, without </s>; a text for the warnings is made of them. */
  async translateIds(ids: number[], options: TranslateOptions = {}): Promise<Translation> {
    return this.translateSentence({ given: this.sourceTokenizer.decode(ids), ids, note: null }, options);
  }

  private sentences(text: string, split: boolean): Sentence[] {
    const isSplit = split && this.sourceTokenizer.kind !== "char";
    const parts = isSplit ? withWords(text, splitSentences(text, this.language)) : [];
    if (parts.length < 2) {
      return [this.read(text)];
    }
    const found = parts.map((part) => this.read(part));
    const kept = found.filter((sentence) => sentence.ids.length);
    return kept.length ? kept : found.slice(0, 1);
  }

  private read(text: string): Sentence {
    const plain = this.sourceTokenizer.plain(text);
    const given = this.sourceTokenizer.kind === "char" ? plain : text;
    if (stripped(text) && !hasAlphanumeric(plain)) {
      return { given, ids: this.sourceTokenizer.encode(plain), note: NO_WORDS };
    }
    const quiet = readCapitals(plain, this.sourceTokenizer, this.language);
    if (quiet === null) {
      return { given, ids: this.sourceTokenizer.encode(plain), note: null };
    }
    const which = inCapitals(plain) ? "the text is in capitals and was" : "some capitals were";
    return { given, ids: this.sourceTokenizer.encode(quiet), note: `${which} read in lower case` };
  }

  private async translateSentence(sentence: Sentence, options: TranslateOptions): Promise<Translation> {
    const start = performance.now();
    const ids = [...sentence.ids, EOS];
    if (!sentence.ids.length) {
      const nothing = { text: "", score: 0, source: [], ids: [], hypotheses: [], milliseconds: 0 };
      return { ...nothing, confidence: null, warnings: sentence.note ? [sentence.note] : [] };
    }
    const most = this.facts.about.search!.max_source_tokens!;
    if (sentence.ids.length > most) {
      throw new Error(`a sentence has ${sentence.ids.length} tokens; at most ${most} are allowed. Split it into sentences`);
    }
    const nBest = options.nBest ?? 1;
    // Several hypotheses may be the same text in different tokens.
    const wanted = nBest > 1 ? Math.max(nBest, options.beamSize ?? this.config.beam_size) : 1;
    const maxLength = Math.floor((ids.length * 3) / 2) + 10;
    const found = await this.graphs.find(padded([ids]), ids.length, maxLength, { ...options, nBest: wanted }, {
      piece: (token) => this.targetTokenizer.token(token),
      text: (tokens) => this.targetTokenizer.decode(tokens),
    });
    const best = found.hypotheses[0];
    return {
      text: best.text,
      score: best.score,
      source: this.sourceTokenizer.tokens(ids),
      ids,
      hypotheses: differentTexts(found.hypotheses).slice(0, nBest),
      tree: found.tree,
      milliseconds: performance.now() - start,
      ...this.trusted(best, sentence),
    };
  }

  private trusted(best: Hypothesis, sentence: Sentence): Warnings {
    const notes = sentence.note ? [sentence.note] : [];
    if (best.steps[best.steps.length - 1].token !== EOS) {
      notes.push("the answer was cut at its maximum length");
    }
    const known = knownShare(sentence.ids, this.sourceTokenizer);
    const values = { score: logOdds(best.logProb / best.steps.length), known };
    const vocabulary = this.sourceTokenizer;
    return trusted(this.facts.calibration, { values, known, text: sentence.given, answer: best.text, notes, vocabulary });
  }
}

function differentTexts(hypotheses: readonly Hypothesis[]): Hypothesis[] {
  return hypotheses.filter(({ text }, n) => hypotheses.findIndex((other) => other.text === text) === n);
}

/** The translation of a text from those of its sentences; attention is zero between different sentences. */
function joined(sentences: Translation[], nBest: number): Translation {
  const weights = sentences.map(({ hypotheses }) => Math.max(1, hypotheses[0]?.steps.length ?? 0));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const shares = weights.map((weight) => weight / total);
  const widths = sentences.map(({ ids }) => ids.length);
  const width = widths.reduce((sum, one) => sum + one, 0);
  let combined: Hypothesis[] = [{ steps: [], text: "", score: 0, logProb: 0 }];
  sentences.forEach(({ hypotheses }, n) => {
    const before = widths.slice(0, n).reduce((sum, one) => sum + one, 0);
    const more = hypotheses.map((one) => ({ ...one, score: shares[n] * one.score, steps: moved(one.steps, before, width) }));
    combined = combined.flatMap((one) => more.map((other) => appended(one, other)));
    combined = combined.sort((one, other) => other.score - one.score).slice(0, nBest);
  });
  const sure = sentences.every(({ confidence }) => confidence !== null);
  return {
    text: combined[0].text,
    score: combined[0].score,
    source: sentences.flatMap(({ source }) => source),
    ids: sentences.flatMap(({ ids }) => ids),
    hypotheses: combined,
    sentences,
    confidence: sure ? sentences.reduce((sum, { confidence }, n) => sum + confidence! * shares[n], 0) : null,
    warnings: commonFirst(sentences.map(({ warnings }) => warnings)),
    milliseconds: sentences.reduce((sum, { milliseconds }) => sum + milliseconds, 0),
  };
}

/** Steps whose attention stands at its place in a longer source; they have no scores, which belong to one sentence. */
function moved(steps: readonly Step[], before: number, width: number): Step[] {
  const wide = (weights: Float32Array) => {
    const found = new Float32Array(width);
    found.set(weights, before);
    return found;
  };
  return steps.map(({ token, piece, logProb, alternatives, attention, heads }) => {
    const moved = { attention: attention && wide(attention), heads: heads?.map(wide) };
    return { token, piece, logProb, alternatives, ...moved };
  });
}

function appended(one: Hypothesis, other: Hypothesis): Hypothesis {
  return {
    steps: [...one.steps, ...other.steps],
    text: `${one.text} ${other.text}`.trim(),
    score: one.score + other.score,
    logProb: one.logProb + other.logProb,
  };
}

/** Warnings of all sentences once, then those of some with the number of the sentence. */
function commonFirst(found: readonly string[][]): string[] {
  const common = found[0].filter((warning) => found.every((others) => others.includes(warning)));
  const own = found.flatMap((warnings, n) =>
    warnings.filter((warning) => !common.includes(warning)).map((warning) => `sentence ${n + 1}: ${warning}`),
  );
  return [...common, ...own];
}
