// Measures of attention weights, and how numbers are written.

/** Measures of one map, as `attention_measures` of zoo/comparison/measures.py. */
export interface Measures {
  /** Mean of -sum a log a over the rows, in nats. */
  entropy: number;
  /** The same divided by log S: 0 is one token, 1 is uniform. */
  relativeEntropy: number;
  /** Share of the weight near the diagonal. */
  diagonal: number;
  /** The same for uniform weights. */
  uniformDiagonal: number;
}

const BAND = 0.1; // of the source's length, on either side of the diagonal

export type Rows = readonly (Float32Array | null)[];

export function entropyOf(weights: ArrayLike<number>): number {
  const total = sum(weights);
  let found = 0;
  for (let n = 0; n < weights.length; n++) {
    const share = weights[n] / total;
    found -= share > 0 ? share * Math.log(share) : 0;
  }
  return total > 0 ? Math.abs(found) : 0;
}

/** Share of the weight of row `t` of `steps` (from 0) that is near the diagonal. */
export function diagonalShare(weights: ArrayLike<number>, t: number, steps: number): number {
  const length = weights.length;
  const total = sum(weights);
  const reach = Math.max(1, BAND * length) + 1e-9;
  let near = 0;
  for (let s = 0; s < length; s++) {
    near += Math.abs(((t + 1) * length) / steps - (s + 1)) <= reach ? weights[s] : 0;
  }
  return total > 0 ? near / total : 0;
}

/** Means over the rows that have weight; null if there are none. */
export function measuresOf(rows: Rows): Measures | null {
  const kept = rows.flatMap((row, t) => (row && sum(row) > 0 ? [{ row, t }] : []));
  if (!kept.length) {
    return null;
  }
  const mean = (of: (row: Float32Array, t: number) => number) =>
    kept.reduce((total, { row, t }) => total + of(row, t), 0) / kept.length;
  const entropy = mean(entropyOf);
  const length = kept[0].row.length;
  return {
    entropy,
    relativeEntropy: length > 1 ? entropy / Math.log(length) : 0,
    diagonal: mean((row, t) => diagonalShare(row, t, rows.length)),
    uniformDiagonal: mean((row, t) => diagonalShare(new Float32Array(row.length).fill(1), t, rows.length)),
  };
}

export function sum(values: ArrayLike<number>): number {
  let total = 0;
  for (let n = 0; n < values.length; n++) {
    total += values[n];
  }
  return total;
}

export function largest(values: ArrayLike<number>): number {
  let best = 0;
  for (let n = 1; n < values.length; n++) {
    best = values[n] > values[best] ? n : best;
  }
  return best;
}

/** The places of the largest weights, largest first. */
export function top(values: ArrayLike<number>, count: number): number[] {
  const places = Array.from({ length: values.length }, (_, n) => n);
  return places.sort((one, other) => values[other] - values[one] || one - other).slice(0, count);
}

export function uniform(length: number): Float32Array {
  return new Float32Array(length).fill(1 / length);
}

export function only(length: number, place: number): Float32Array {
  const weights = new Float32Array(length);
  weights[place] = 1;
  return weights;
}

/** Weights where one has a new value and the others share the rest as before. */
export function withWeight(weights: Float32Array, place: number, value: number): Float32Array {
  const rest = sum(weights) - weights[place];
  return weights.map((weight, n) => {
    if (n === place) {
      return value;
    }
    return rest > 1e-9 ? (weight / rest) * (1 - value) : (1 - value) / (weights.length - 1);
  });
}

export function percent(share: number): string {
  return share > 0 && share < 0.005 ? "<1 %" : `${Math.round(share * 100)} %`;
}

export function decimals(value: number, digits = 2): string {
  return value.toFixed(digits).replace("-", "−");
}

/** Bytes as megabytes, such as "4.3 MB". */
export function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

/** Places of `after` that are not in the longest common subsequence with `before`. */
export function changes<T>(before: readonly T[], after: readonly T[]): Set<number> {
  const width = after.length + 1;
  const lengths = new Uint16Array((before.length + 1) * width);
  for (let n = before.length - 1; n >= 0; n--) {
    for (let m = after.length - 1; m >= 0; m--) {
      lengths[n * width + m] =
        before[n] === after[m]
          ? lengths[(n + 1) * width + m + 1] + 1
          : Math.max(lengths[(n + 1) * width + m], lengths[n * width + m + 1]);
    }
  }
  const found = new Set<number>();
  let n = 0;
  for (let m = 0; m < after.length;) {
    if (n < before.length && before[n] === after[m]) {
      n += 1;
      m += 1;
    } else if (n < before.length && lengths[(n + 1) * width + m] >= lengths[n * width + m + 1]) {
      n += 1;
    } else {
      found.add(m);
      m += 1;
    }
  }
  return found;
}
