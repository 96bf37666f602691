// LanguageModel: `complete` and `score`, as zoo/verbs/language_modelling.py.
import { words as wordsOf } from "./characters.ts";
import { trusted, type Warnings } from "./confidence.ts";
import { knownShare } from "./familiar.ts";
import type { Exported } from "./folder.ts";
import { floats, floatsOrNull, Graph, integers, Tensor, type Tensors } from "./graph.ts";
import { type Facts, factsOf, tokenizerOf } from "./model.ts";
import { CONTRACTED, isNumber, treebankWords, withoutMarks } from "./penn.ts";
import { type BeamNode, type Decoder, type Hypothesis, search, type SearchOptions, type Settings } from "./search.ts";
import { EOS, type Tokenizer, UNK } from "./tokenizer.ts";

const STEPS_AT_ONCE = 64; // their log-probabilities are (steps, vocabulary)
const BEAM = 5;

/** A word of a text that was read: how probable it was, and how it looked at those 1, 2, ... steps back. */
export interface Read {
  id: number;
  word: string;
  logProb: number;
  attention: Float32Array | null;
  /** Their scores before the softmax; null without attention. */
  scores: Float32Array | null;
}

export interface Scored extends Warnings {
  words: Read[];
  perplexity: number;
  milliseconds: number;
}

export interface ScoreOptions {
  /** How many steps back the attention sees: at most as many as the model learnt with, which is the default. */
  window?: number;
}

export interface CompleteOptions extends ScoreOptions, Pick<SearchOptions, "beamSize" | "nBest" | "lengthPenalty" | "onStep"> {
  maxWords?: number;
  minWords?: number;
  allowUnk?: boolean;
  /** Draw the words at random instead of searching; 1 is the model's own distribution. */
  temperature?: number;
  topK?: number;
  seed?: number;
}

export interface Completion extends Warnings {
  text: string;
  continuation: string;
  score: number;
  tokens: string[];
  /** How many of the tokens were given. */
  given: number;
  /** Of each given token; those of the others are in the steps of the first hypothesis. */
  attention: (Float32Array | null)[];
  scores: (Float32Array | null)[];
  hypotheses: Hypothesis[];
  tree: BeamNode[];
  milliseconds: number;
}

/** What was read so far. */
interface Reading {
  state: Tensors;
  words: { logProbs: Float32Array; attention: Float32Array | null; scores: Float32Array | null }[];
}

export class LanguageModel {
  readonly task = "language_modelling";
  private kept: { ids: readonly number[]; states: Promise<Tensors[]> } | null = null;

  private constructor(
    readonly facts: Facts,
    private readonly graph: Graph,
    readonly tokenizer: Tokenizer,
  ) {}

  static async open(exported: Exported): Promise<LanguageModel> {
    const [facts, tokenizer] = [await factsOf(exported), await tokenizerOf(exported)];
    return new LanguageModel(facts, await Graph.open(exported, "step.onnx"), tokenizer);
  }

  get name(): string {
    return this.facts.name;
  }

  /** The steps back that the attention sees; 0 for a model without attention. */
  get reach(): number {
    return this.facts.about.state!.known ? this.facts.about.config.window : 0;
  }

  /** Log-probability and attention of each word and line end. */
  async score(text: string, { window }: ScoreOptions = {}): Promise<Scored> {
    const start = performance.now();
    this.check(window);
    const ids = this.encodeLines(text);
    const { words } = await this.read(before(ids), true, window);
    const found = ids.map((id, n) => ({
      id,
      word: this.tokenizer.token(id),
      logProb: words[n].logProbs[id],
      attention: words[n].attention,
      scores: words[n].scores,
    }));
    const loss = -found.reduce((sum, { logProb }) => sum + logProb, 0) / ids.length;
    return {
      words: found,
      perplexity: ids.some((id) => id !== EOS) ? Math.exp(loss) : NaN,
      milliseconds: performance.now() - start,
      ...this.trusted(ids.slice(0, -1), text),
    };
  }

  /** Completes a text up to the end of the line. */
  async complete(text = "", options: CompleteOptions = {}): Promise<Completion> {
    const start = performance.now();
    const { maxWords = 20, minWords = 1, temperature, nBest = 1, window } = options;
    if (!(minWords >= 0 && minWords <= maxWords && maxWords >= 1)) {
      throw new Error(`max_words must be at least 1, and min_words from 0 to max_words; got ${maxWords} and ${minWords}`);
    }
    this.check(window);
    const ids = this.encode(this.tokenizer.plain(text)).slice(0, -1);
    const given = [EOS, ...ids];
    const { state, words } = await this.read(given.slice(0, -1), false, window);
    const settings = this.settings(options, maxWords, minWords);
    const decoder = this.decoder(given[given.length - 1], window);
    const first = Object.fromEntries(Object.entries(state).map(([name, x]) => [name, withDimension(x)]));
    const found = { hypotheses: [] as Hypothesis[], tree: [] as BeamNode[] };
    const random = randomNumbers(options.seed ?? Math.floor(Math.random() * 2 ** 32));
    for (let sample = 0; sample < (temperature === undefined ? 1 : nBest); sample++) {
      const draw = temperature === undefined ? undefined : drawing(temperature, options.topK ?? 0, random);
      const more = await search(decoder, first, draw ? { ...settings, beamSize: 1, nBest: 1, draw } : settings);
      found.hypotheses.push(...more.hypotheses);
      found.tree.push(...more.tree);
    }
    const hypotheses = found.hypotheses.map((one) => ({ ...one, text: this.joined(text, ids, one) }));
    const best = hypotheses[0];
    const added = best.steps.map((step) => step.token);
    return {
      text: best.text,
      continuation: this.tokenizer.decode(added),
      score: best.score,
      tokens: this.tokenizer.tokens([...ids, ...added]),
      given: ids.length,
      attention: words.map(({ attention }) => attention),
      scores: words.map(({ scores }) => scores),
      hypotheses,
      tree: found.tree,
      milliseconds: performance.now() - start,
      ...this.trusted(ids, text),
    };
  }

  private settings(options: CompleteOptions, maxWords: number, minWords: number): Settings {
    const { beamSize = BEAM, nBest = 1, lengthPenalty = 1, allowUnk } = options;
    const unused = []; // rows of the output layer without a word
    for (let id = this.tokenizer.size; id < this.facts.about.config.vocab_size; id++) {
      unused.push(id);
    }
    return {
      maxLength: maxWords,
      minLength: minWords + 1, // the end of the line comes after them
      lengthPenalty,
      beamSize,
      nBest,
      forbid: allowUnk ? unused : [UNK, ...unused],
      piece: (token) => this.tokenizer.token(token),
      text: (tokens) => this.tokenizer.decode(tokens),
      options: { onStep: options.onStep },
    };
  }

  private trusted(ids: readonly number[], text: string): Warnings {
    const vocabulary = this.tokenizer;
    return trusted(this.facts.calibration, { values: {}, known: knownShare(ids, vocabulary), text, vocabulary });
  }

  private check(window: number | undefined): void {
    if (window !== undefined && !(window >= 1 && window <= this.reach)) {
      throw new Error(`window must be from 1 to ${this.reach}; got ${window}`);
    }
  }

  /** The state after words, and what the model saw at each. */
  private async read(ids: readonly number[], wantsScores: boolean, window = this.reach): Promise<Reading> {
    if (window < this.reach) {
      return this.readNarrowly(ids, wantsScores, window);
    }
    let state = this.firstState();
    const words: Reading["words"] = [];
    for (let first = 0; first < ids.length; first += STEPS_AT_ONCE) {
      const piece = ids.slice(first, first + STEPS_AT_ONCE);
      const inputs = { tokens: integers(piece, [1, piece.length]), lengths: integers([piece.length], [1]) };
      const found = await this.graph.run({ ...inputs, ...state });
      state = this.next(found);
      words.push(...seenAt(found, piece.length, wantsScores));
    }
    return { state, words };
  }

  /** With a smaller window, which holds at the first word of a run only: all words at once, each with its own state. */
  private async readNarrowly(ids: readonly number[], wantsScores: boolean, window: number): Promise<Reading> {
    const states = await this.statesOf(ids);
    const words: Reading["words"] = [];
    for (let first = 0; first < ids.length; first += STEPS_AT_ONCE) {
      const piece = ids.slice(first, first + STEPS_AT_ONCE);
      const found = await this.graph.run({
        tokens: integers(piece, [piece.length, 1]),
        lengths: integers(new Array(piece.length).fill(1), [piece.length]),
        ...narrowed(stacked(states.slice(first, first + piece.length)), window),
      });
      words.push(...seenAt(found, piece.length, wantsScores));
    }
    return { state: states[ids.length], words };
  }

  /** Does what every smaller window needs, so that the first one that is asked for answers as fast as others. */
  async prepareWindows(text: string): Promise<void> {
    if (this.reach > 1) {
      await this.statesOf(before(this.encodeLines(text)));
    }
  }

  /** The states before each word and after the last, which no window changes; those of the last text are kept. */
  private statesOf(ids: readonly number[]): Promise<Tensors[]> {
    if (!this.kept || !ids.every((id, n) => this.kept!.ids[n] === id)) {
      this.kept = { ids, states: this.oneByOne(ids) };
    }
    return this.kept.states;
  }

  private async oneByOne(ids: readonly number[]): Promise<Tensors[]> {
    const states = [this.firstState()];
    for (const id of ids) {
      const inputs = { tokens: integers([id], [1, 1]), lengths: integers([1], [1]) };
      states.push(this.next(await this.graph.run({ ...inputs, ...states[states.length - 1] })));
    }
    return states;
  }

  private firstState(): Tensors {
    const state: Tensors = {};
    for (const [name, { type, zeros }] of Object.entries(this.facts.about.first_state!)) {
      const shape = [1, ...zeros.slice(1).map(Number)];
      const size = shape.reduce((product, one) => product * one, 1);
      const values = type === "int64" ? new BigInt64Array(size) : new Float32Array(size);
      state[name] = new Tensor(type as any, values as any, shape);
    }
    return state;
  }

  private next(found: Tensors): Tensors {
    return Object.fromEntries(Object.entries(this.facts.about.state!).map(([name, after]) => [name, found[after]]));
  }

  /** A step of the search; hypotheses are a batch to the graph. */
  private decoder(lastGiven: number, window = this.reach): Decoder {
    return async (tokens, state, position) => {
      const last = position === 0 ? tokens.map(() => lastGiven) : tokens;
      const flat = Object.entries(state).map(([name, x]) => [name, x.reshape(x.dims.slice(1))]);
      const found = await this.graph.run({
        tokens: integers(last, [last.length, 1]),
        lengths: integers(new Array(last.length).fill(1), [last.length]),
        ...narrowed(Object.fromEntries(flat), window),
      });
      const after = Object.entries(this.next(found)).map(([name, x]) => [name, withDimension(x)]);
      return {
        logProbs: floats(found.log_probs),
        state: Object.fromEntries(after),
        attention: floatsOrNull(found.attention),
        scores: floatsOrNull(found.scores),
      };
    };
  }

  /** The words of a text to score, whose last line end may be missing. */
  private encodeLines(text: string): number[] {
    return this.encode(text.endsWith("\n") ? text.slice(0, -1) : text);
  }

  /** Words of all lines, each line ended by EOS. */
  private encode(text: string): number[] {
    return text.split("\n").flatMap((line) => [...this.line(line), EOS]);
  }

  private line(line: string): number[] {
    const ids = this.tokenizer.encode(line);
    if (this.tokenizer.kind !== "word" || !ids.includes(UNK)) {
      return ids;
    }
    const splits = !this.tokenizer.encode(CONTRACTED).includes(UNK);
    return wordsOf(line).flatMap((word) => this.word(word, splits));
  }

  /** An unknown word is also tried as the words of which it consists in the Penn Treebank. */
  private word(word: string, splits: boolean): number[] {
    const found = this.whole(word);
    return found.includes(UNK) && splits ? treebankWords(word).flatMap((part) => this.whole(part)) : found;
  }

  /** An unknown word is also tried in lower case, without its punctuation marks, and as N for a number. */
  private whole(word: string): number[] {
    const bare = withoutMarks(word);
    const numeral = isNumber(bare) || bare === "%"; // Mikolov's Treebank has N for the sign too
    const forms = [word, word.toLowerCase(), bare, bare.toLowerCase(), ...(numeral ? ["N"] : [])];
    return forms.map((form) => this.tokenizer.encode(form)).find((ids) => !ids.includes(UNK)) ?? [UNK];
  }

  /** The given text followed by the added words. */
  private joined(text: string, ids: readonly number[], added: Hypothesis): string {
    const given = text.replace(/ +$/, "");
    const tokens = added.steps.map((step) => step.token);
    if (this.tokenizer.kind === "word" || this.tokenizer.kind === "word_punct") {
      const more = this.tokenizer.decode(tokens);
      return more && given && !given.endsWith("\n") ? `${given} ${more}` : given + more;
    }
    const line = ids.slice(ids.lastIndexOf(EOS) + 1);
    return given + this.tokenizer.decode([...line, ...tokens]).slice(this.tokenizer.decode(line).length);
  }
}

/** The state with no more than `window` outputs known before a word: the attention sees no others. */
function narrowed(state: Tensors, window: number): Tensors {
  const { known } = state;
  if (!known) {
    return state;
  }
  const most = BigInt(window);
  const fewer = (known.data as BigInt64Array).map((count) => (count < most ? count : most));
  return { ...state, known: new Tensor("int64", fewer, known.dims) };
}

/** What is read before each word of a text. */
function before(ids: readonly number[]): number[] {
  return [EOS, ...ids.slice(0, -1)];
}

/** States of one row each as one of all rows. */
function stacked(states: readonly Tensors[]): Tensors {
  const names = Object.keys(states[0]);
  return Object.fromEntries(
    names.map((name) => {
      const { type, dims } = states[0][name];
      const parts = states.map((state) => state[name].data as Float32Array | BigInt64Array);
      const whole = new (parts[0].constructor as any)(parts.length * parts[0].length);
      parts.forEach((part, n) => whole.set(part, n * part.length));
      return [name, new Tensor(type as any, whole, [parts.length, ...dims.slice(1)])];
    }),
  );
}

/** What was seen at each of several words, which are steps of one row, or rows of one step. */
function seenAt({ log_probs: logProbs, attention, scores }: Tensors, count: number, wantsScores: boolean): Reading["words"] {
  return Array.from({ length: count }, (_, n) => ({
    logProbs: wantsScores ? row(logProbs, n) : new Float32Array(),
    attention: attention ? row(attention, n) : null,
    scores: scores ? row(scores, n) : null,
  }));
}

/** (rows, ...) -> (1, rows, ...). */
function withDimension(tensor: Tensor): Tensor {
  return tensor.reshape([1, ...tensor.dims]);
}

/** Line n of a tensor (1, lines, columns) or (lines, 1, columns). */
function row(tensor: Tensor, n: number): Float32Array {
  const width = tensor.dims[2];
  return floats(tensor).slice(n * width, (n + 1) * width);
}

/** Draws from softmax(logProbs / temperature), of the topK most probable tokens if that is not 0. */
function drawing(temperature: number, topK: number, random: () => number): (logProbs: Float32Array) => number {
  if (!(temperature > 0)) {
    throw new Error(`temperature must be greater than 0; got ${temperature}`);
  }
  return (logProbs) => {
    let tokens = Array.from(logProbs.keys());
    if (topK > 0 && topK < tokens.length) {
      tokens = tokens.sort((one, other) => logProbs[other] - logProbs[one] || one - other).slice(0, topK);
    }
    const highest = tokens.reduce((most, token) => Math.max(most, logProbs[token]), -Infinity);
    let total = 0;
    const cumulated = tokens.map((token) => (total += Math.exp((logProbs[token] - highest) / temperature)));
    const drawn = random() * total;
    return tokens[Math.max(0, cumulated.findIndex((sum) => sum > drawn))];
  };
}

/** Numbers from 0 to 1 that a seed determines: mulberry32 by Tommy Ettinger, in the public domain. */
function randomNumbers(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
