// The equation of each mechanism, and the part of the repository that computes it.

export interface Mechanism {
  name: string;
  /** The score of source position j for target position t. */
  score: string;
  /** How scores become weights. */
  weights: string;
  context: string;
  /** What the context adds up: a letter. */
  values: string;
  /** File and part of it, of those in zoo/demo/code.py. */
  file: string;
  symbol: string;
  rule: Rule;
}

/** How scores become weights. */
export interface Rule {
  positions: "global" | "local_m" | "local_p" | "local_p_full" | "local_p_star";
  normalize: "softmax" | "sparsemax";
  /** D of local attention. */
  window: number;
  /** Whether weights are divided by their sum after the Gaussian or the gate. */
  renormalize: boolean;
  /** Factor of the scores in the softmax. */
  temperature: number;
}

/** A softmax over all positions. */
export const EVERYWHERE: Rule = {
  positions: "global",
  normalize: "softmax",
  window: 0,
  renormalize: false,
  temperature: 1,
};

const SOFTMAX = "α_{tj} = frac{exp(e_{tj})}{∑_k exp(e_{tk})}";
const SPARSEMAX = "α_t = sparsemax(e_t)";
const CONTEXT = "c_t = ∑_j α_{tj} h_j";
const SCORES = "zoo/layers/scores.py";
const ATTENTION = "zoo/layers/attention.py";

const LUONG: Record<string, Pick<Mechanism, "name" | "score" | "symbol">> = {
  dot: { name: "dot", score: "e_{tj} = s_t^⊤ h_j", symbol: "DotScore" },
  scaled_dot: { name: "scaled dot", score: "e_{tj} = frac{s_t^⊤ h_j}{√ d}", symbol: "ScaledDotScore" },
  general: { name: "general", score: "e_{tj} = s_t^⊤ W_a h_j", symbol: "GeneralScore" },
  concat: { name: "concat", score: "e_{tj} = v^⊤ tanh(W [s_t ; h_j])", symbol: "ConcatScore" },
  location: { name: "location", score: "e_t = W_a s_t", symbol: "LocationScore" },
};

const GAUSS = "exp(− frac{{(j − p_t)}^2}{2 σ^2})";
const LOCAL: Record<string, Pick<Mechanism, "name" | "weights" | "symbol">> = {
  local_m: { name: "local-m", weights: "α_{tj} = softmax_{|j − t| ≤ D}(e_{tj})", symbol: "LocalMonotonicAttention" },
  local_p: {
    name: "local-p",
    weights: `α_{tj} = softmax_{|j − p_t| ≤ D}(e_{tj}) ${GAUSS} "  with  " p_t = S σ(v_p^⊤ tanh(W_p s_t))`,
    symbol: "LocalPredictiveAttention",
  },
  local_p_full: {
    name: "local-p, all positions",
    weights: `α_{tj} = softmax(e_{tj}) ${GAUSS}`,
    symbol: "LocalPredictiveFullAttention",
  },
  local_p_star: {
    name: "local-p*",
    weights: `α_{tj} = softmax_D(e_{tj}) p_j "  with  " p_j = σ(v_p^⊤ tanh(W_p h_j))`,
    symbol: "LocalPredictiveStarAttention",
  },
};

const ADDITIVE: Mechanism = {
  name: "additive",
  score: "e_{tj} = v_a^⊤ tanh(W_a QUERY + U_a h_j)",
  weights: SOFTMAX,
  context: CONTEXT,
  values: "h",
  file: SCORES,
  symbol: "additive_score",
  rule: EVERYWHERE,
};

const TUTORIAL: Mechanism = {
  name: "location",
  score: "e_t = W_a [y_{t−1} ; s_{t−1}]",
  weights: SOFTMAX,
  context: CONTEXT,
  values: "h",
  file: "zoo/models/tutorial_attention.py",
  symbol: "TutorialAttentionNMT.decoder_step",
  rule: EVERYWHERE,
};

/** The state that additive attention asks with: the last one, or one within the step. */
function query(config: Record<string, any>): string {
  return config.decoder === "conditional_gru" ? "{s̃}_t" : "s_{t−1}";
}

/** The mechanism of a translator, captioner or classifier with one query; null for one without attention. */
export function mechanismOf(about: { class: string; config: Record<string, any> }): Mechanism | null {
  const { config } = about;
  switch (about.class) {
    case "BahdanauNMT":
      return { ...ADDITIVE, score: ADDITIVE.score.replace("QUERY", query(config)) };
    case "KeyValueNMT":
      return {
        ...ADDITIVE,
        name: "key-value",
        score: `e_{tj} = v_a^⊤ tanh(W_a ${query(config)} + U_a k_j)`,
        context: "c_t = ∑_j α_{tj} v_j",
        values: "v",
        file: "zoo/models/key_value_nmt.py",
        symbol: "KeyValueNMT.split",
      };
    case "TransformerNMT":
      return {
        name: "scaled dot, in heads",
        score: "e_{tj} = frac{q_t^⊤ k_j}{√ d_k}",
        weights: SOFTMAX,
        context: "c_t = ∑_j α_{tj} v_j",
        values: "v",
        file: "zoo/layers/multi_head.py",
        symbol: "MultiHeadAttention.forward",
        rule: EVERYWHERE, // of each head
      };
    case "LuongNMT":
    case "AttentionClassifier":
      return ofScores(config);
    case "TutorialAttentionNMT":
      return config.attention === "none" ? null : TUTORIAL;
    case "ShowAttendTell":
      return {
        name: config.attention === "hard" ? "hard, decoded by its expectation" : "soft",
        score: config.score === "bilinear" ? "e_{tj} = a_j^⊤ W h_{t−1}" : "e_{tj} = v^⊤ tanh(W_a a_j + W_h h_{t−1})",
        weights: SOFTMAX,
        context: "c_t = β_t ∑_j α_{tj} a_j",
        values: "a",
        file: "zoo/models/show_attend_tell.py",
        symbol: "AttendingLSTM.attend",
        rule: { ...EVERYWHERE, temperature: config.temperature ?? 1 },
      };
    default:
      return null;
  }
}

function ofScores(config: Record<string, any>): Mechanism | null {
  const { score, attention, normalize = "softmax", window = 10, renormalize = false } = config;
  const found = LUONG[score];
  const local = LOCAL[attention];
  if (!found) {
    return null;
  }
  const rule: Rule = { ...EVERYWHERE, positions: local ? attention : "global", normalize, window, renormalize };
  const weights = normalize === "sparsemax" ? SPARSEMAX : SOFTMAX;
  const whole = { ...found, weights, context: CONTEXT, values: "h", file: SCORES, rule };
  if (!local) {
    return whole;
  }
  const own = local.weights.replace("softmax", normalize); // of the scores in the window
  return { ...whole, ...local, weights: own, name: `${local.name}, ${found.name}`, file: ATTENTION };
}
