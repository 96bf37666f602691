// Search for the best output of one input, with the scores, rules and order of zoo/runtime/search.py.
//
// Numbers are rounded to float32 where NumPy has float32, so that equal log-probabilities give equal scores.
import { chosenRows, type Tensors } from "./graph.ts";
import { BOS, EOS } from "./tokenizer.ts";

/** What a step of the decoder gives: log-probabilities (hypotheses, vocabulary), the next state, attention. */
export interface Outputs {
  logProbs: Float32Array;
  state: Tensors;
  attention: Float32Array | null;
  /** Of a Transformer: attention of each layer and head (hypotheses, heads, source). */
  heads?: Float32Array | null;
  /** What the attention computed before its weights, if the graph gives it out: as `attention` and as `heads`. */
  scores?: Float32Array | null;
  headScores?: Float32Array | null;
  /** Of local-p: the source position around which it looks (hypotheses). */
  alignedPosition?: Float32Array | null;
}

/** Runs the decoder for the last token of each hypothesis. */
export type Decoder = (tokens: number[], state: Tensors, step: number, given: Float32Array | null) => Promise<Outputs>;

export interface Alternative {
  token: number;
  piece: string;
  logProb: number;
}

/** One token of an output: its log-probability, its attention weights, and what else was probable there. */
export interface Step extends Alternative {
  attention: Float32Array | null;
  /** Of a Transformer whose graph has them: weights of each head, those of the first layer first. */
  heads?: Float32Array[];
  /** Scores before the softmax, and before the mask of a window, and those of each head. */
  scores?: Float32Array;
  headScores?: Float32Array[];
  /** Of local-p: p_t, counted from 0. */
  alignedPosition?: number;
  alternatives: Alternative[];
}

export interface Hypothesis {
  steps: Step[];
  text: string;
  score: number;
  logProb: number;
}

/** A candidate of beam search; `parent` is an index into the same list, null for the first tokens. */
export interface BeamNode {
  step: number;
  parent: number | null;
  token: number;
  piece: string;
  logProb: number;
  total: number;
  state: "kept" | "dropped" | "ended";
}

export interface SearchOptions {
  beamSize?: number;
  nBest?: number;
  lengthPenalty?: number;
  maxLength?: number;
  /** Target tokens that are fixed. */
  prefix?: number[];
  /** Attention weights (sum 1 over the source) that a target position uses instead of the model's own. */
  given?: Map<number, Float32Array>;
  onStep?: (step: Step, position: number) => void;
}

/** What a model adds to the options of its user. */
export interface Settings {
  maxLength: number;
  minLength?: number;
  lengthPenalty: number;
  beamSize: number;
  nBest?: number;
  forbid: readonly number[];
  /** Draws a token from log-probabilities, instead of taking the most probable one; for a beam of 1. */
  draw?: (logProbs: Float32Array) => number;
  piece: (token: number) => string;
  text: (tokens: readonly number[]) => string;
  options: SearchOptions;
}

export interface Found {
  hypotheses: Hypothesis[];
  tree: BeamNode[];
}

const ALTERNATIVES = 5;
const NOT_A_NUMBER = "the model computes NaN or infinite scores: its weights are too large, or its training diverged";

/** A path through the steps: a node of a linked list, from the newest token to the first. */
interface Path {
  before: Path | null;
  token: number;
  logProb: number;
  position: number;
  slot: number; // of the parent among the live hypotheses of its step
  node: number; // in the tree
}

interface Live {
  path: Path | null;
  total: number;
}

interface Ended {
  path: Path;
  score: number;
  total: number;
}

/** What each step saw: log-probabilities (slots, vocabulary), and what its attention computed. */
type Seen = Omit<Outputs, "state"> & { slots: number };

function lengthNorm(length: number, alpha: number): number {
  return Math.fround(((5 + length) / 6) ** alpha);
}

/** Greedy search for one hypothesis with a beam of 1, else beam search. */
export async function search(decode: Decoder, state: Tensors, settings: Settings): Promise<Found> {
  const { beamSize, nBest = 1, lengthPenalty, maxLength } = settings;
  if (!(beamSize >= 1) || !(nBest >= 1 && nBest <= beamSize)) {
    throw new Error(`beam_size must be at least 1, and n_best from 1 to beam_size; got ${beamSize} and ${nBest}`);
  }
  const greedy = beamSize === 1;
  const seen: Seen[] = [];
  const tree: BeamNode[] = [];
  let pool: Ended[] = [];
  let live: Live[] = [{ path: null, total: 0 }];
  const limitNorm = lengthNorm(maxLength, lengthPenalty);

  for (let position = 0; position < maxLength; position++) {
    const given = settings.options.given?.get(position) ?? null;
    const last = live.map(({ path }) => path?.token ?? BOS);
    const found = await decode(last, state, position, given);
    const fixed = onlyFixed(found.logProbs, live.length, position, settings);
    const logProbs = withoutForbidden(found.logProbs, live.length, position, settings);
    const { state: after, ...outputs } = found;
    seen.push({ ...outputs, logProbs, slots: live.length });

    const wanted = greedy ? 1 : Math.min(2 * beamSize, logProbs.length);
    const candidates = settings.draw
      ? [drawn(logProbs, live[0], settings.draw(logProbs), position)]
      : largest(fixed ?? logProbs, live, wanted, position);
    const isLast = position + 1 >= maxLength;
    const ended = candidates.filter(({ path, total }) => (path.token === EOS || isLast) && total > -Infinity);
    const norm = lengthNorm(position + 1, lengthPenalty);
    const finished = ended.map(({ path, total }) => ({ path, total, score: Math.fround(total / norm) }));
    pool = merged(pool, finished, nBest);

    const most = greedy ? 1 : Math.min(beamSize, wanted - live.length);
    const kept = candidates.filter(({ path, total }) => path.token !== EOS && total > -Infinity).slice(0, most);
    candidates.forEach((candidate) => addNode(tree, candidate, ended, isLast ? [] : kept, settings));
    report(candidates[0].path, seen, settings);
    if (isLast || !kept.length || (greedy && ended.length)) {
      break;
    }
    const norms = Math.max(limitNorm, lengthNorm(position + 2, lengthPenalty));
    const worst = pool.length === nBest ? pool[nBest - 1].score : -Infinity;
    if (!greedy && Math.fround(kept[0].total / norms) <= worst) {
      break;
    }
    const slots = kept.map(({ path }) => path.slot);
    state = Object.fromEntries(Object.entries(after).map(([name, x]) => [name, chosenRows(x, slots)]));
    live = kept;
  }
  return { hypotheses: pool.map((ending) => hypothesis(ending, seen, settings)), tree };
}

/** The log-probabilities with -Infinity for all but a fixed token; null where none is. */
function onlyFixed(logProbs: Float32Array, slots: number, position: number, settings: Settings): Float32Array | null {
  const token = settings.options.prefix?.[position];
  if (token === undefined) {
    return null;
  }
  const only = new Float32Array(logProbs.length).fill(-Infinity);
  for (let place = token; place < logProbs.length; place += logProbs.length / slots) {
    only[place] = logProbs[place];
  }
  return only;
}

/** The log-probabilities, with -Infinity for forbidden tokens. */
function withoutForbidden(logProbs: Float32Array, slots: number, position: number, settings: Settings): Float32Array {
  const size = logProbs.length / slots;
  const never = [BOS, 0, ...settings.forbid, ...(position + 1 < (settings.minLength ?? 0) ? [EOS] : [])];
  for (let slot = 0; slot < slots; slot++) {
    never.forEach((token) => (logProbs[slot * size + token] = -Infinity));
  }
  return logProbs;
}

/** The best extensions, best first; of equals that of the better hypothesis, then the smaller token. */
function largest(logProbs: Float32Array, live: Live[], wanted: number, position: number): { path: Path; total: number }[] {
  const size = logProbs.length / live.length;
  const totals: number[] = [];
  const indices: number[] = [];
  for (let slot = 0; slot < live.length; slot++) {
    const before = live[slot].total;
    for (let index = slot * size; index < (slot + 1) * size; index++) {
      const total = Math.fround(before + logProbs[index]);
      if (Number.isNaN(total)) {
        throw new Error(NOT_A_NUMBER);
      }
      if (totals.length < wanted || total > totals[totals.length - 1]) {
        insert(totals, indices, total, index, wanted);
      }
    }
  }
  return totals.map((total, n) => {
    const slot = Math.floor(indices[n] / size);
    const logProb = logProbs[indices[n]];
    return { total, path: { before: live[slot].path, token: indices[n] % size, logProb, position, slot, node: -1 } };
  });
}

function drawn(logProbs: Float32Array, { path, total }: Live, token: number, position: number): { path: Path; total: number } {
  const logProb = logProbs[token];
  return { total: Math.fround(total + logProb), path: { before: path, token, logProb, position, slot: 0, node: -1 } };
}

/** Puts a number into a descending list of at most `most` numbers, after its equals. */
function insert(totals: number[], indices: number[], total: number, index: number, most: number): void {
  let place = totals.length;
  while (place > 0 && totals[place - 1] < total) {
    place -= 1;
  }
  totals.splice(place, 0, total);
  indices.splice(place, 0, index);
  if (totals.length > most) {
    totals.pop();
    indices.pop();
  }
}

/** The best of two lists of endings; ties in the order of arrival. */
function merged(pool: Ended[], more: Ended[], most: number): Ended[] {
  return more.length ? [...pool, ...more].sort((one, other) => other.score - one.score).slice(0, most) : pool;
}

function addNode(
  tree: BeamNode[],
  candidate: { path: Path; total: number },
  ended: readonly { path: Path }[],
  kept: readonly { path: Path }[],
  settings: Settings,
): void {
  const { path, total } = candidate;
  if (total === -Infinity) {
    return;
  }
  path.node = tree.length;
  tree.push({
    step: path.position,
    parent: path.before ? path.before.node : null,
    token: path.token,
    piece: settings.piece(path.token),
    logProb: path.logProb,
    total,
    state: ended.some((other) => other.path === path)
      ? "ended"
      : kept.some((other) => other.path === path)
        ? "kept"
        : "dropped",
  });
}

function report(path: Path, seen: Seen[], settings: Settings): void {
  settings.options.onStep?.(stepOf(path, seen, settings), path.position);
}

function stepOf(path: Path, seen: Seen[], settings: Settings): Step {
  const { attention, heads, scores, headScores, alignedPosition, logProbs, slots } = seen[path.position];
  const width = attention ? attention.length / slots : 0;
  const row = (values: Float32Array) => values.slice(path.slot * width, (path.slot + 1) * width);
  const size = logProbs.length / slots;
  const own = logProbs.subarray(path.slot * size, (path.slot + 1) * size);
  return {
    token: path.token,
    piece: settings.piece(path.token),
    logProb: path.logProb,
    attention: attention && row(attention),
    ...(heads && { heads: rowsOf(heads, path.slot, slots, width) }),
    ...(scores && { scores: row(scores) }),
    ...(headScores && { headScores: rowsOf(headScores, path.slot, slots, width) }),
    ...(alignedPosition && { alignedPosition: alignedPosition[path.slot] }),
    alternatives: mostProbable(own, settings),
  };
}

/** The rows of one hypothesis, (rows, width). */
function rowsOf(values: Float32Array, slot: number, slots: number, width: number): Float32Array[] {
  const size = values.length / slots;
  return Array.from({ length: size / width }, (_, n) => values.slice(slot * size + n * width, slot * size + (n + 1) * width));
}

function mostProbable(logProbs: Float32Array, settings: Settings): Alternative[] {
  const totals: number[] = [];
  const tokens: number[] = [];
  logProbs.forEach((value, token) => {
    if (value > -Infinity && (totals.length < ALTERNATIVES || value > totals[totals.length - 1])) {
      insert(totals, tokens, value, token, ALTERNATIVES);
    }
  });
  return tokens.map((token, n) => ({ token, piece: settings.piece(token), logProb: totals[n] }));
}

function hypothesis(ending: Ended, seen: Seen[], settings: Settings): Hypothesis {
  const steps: Step[] = [];
  for (let path: Path | null = ending.path; path; path = path.before) {
    steps.unshift(stepOf(path, seen, settings));
  }
  return {
    steps,
    text: settings.text(steps.map((step) => step.token)),
    score: ending.score,
    logProb: ending.total,
  };
}
