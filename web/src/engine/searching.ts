// Models that search with an encoder, run once per input, and one decoder step: translators and captioners.
import type { Exported } from "./folder.ts";
import { floats, floatsOrNull, Graph, integers, Tensor, type Tensors } from "./graph.ts";
import { type Decoder, type Found, search, type SearchOptions, type Settings } from "./search.ts";
import { BOS, UNK } from "./tokenizer.ts";

/** encoder.onnx and step.onnx. */
export class EncoderDecoder {
  private readonly encoded = new WeakMap<Tensors, ReturnType<EncoderDecoder["encode"]>>();

  private constructor(
    private readonly encoder: Graph,
    private readonly step: Graph,
    private readonly after: Record<string, string>, // name of each part of the state -> of the next one
    private readonly never: readonly number[],
    private readonly config: Record<string, any>,
  ) {}

  static async open(exported: Exported): Promise<EncoderDecoder> {
    const { state, search: rules, config } = exported.about;
    const [encoder, step] = await Promise.all([
      Graph.open(exported, "encoder.onnx"),
      Graph.open(exported, "step.onnx"),
    ]);
    return new EncoderDecoder(encoder, step, state!, rules!.never, config);
  }

  /** Whether a step takes attention weights instead of its own. */
  get takesAttention(): boolean {
    return this.step.inputs.includes("given_attention");
  }

  /** Memory, and the state of one hypothesis. */
  async encode(inputs: Tensors): Promise<{ memory: Tensors; state: Tensors }> {
    const memory = await this.encoder.run(inputs);
    const state: Tensors = {};
    for (const name of Object.keys(this.after)) {
      state[name] = memory[name];
      delete memory[name];
    }
    return { memory, state };
  }

  /** Searches; `positions` is the number of source positions. The same object of inputs is encoded once. */
  async find(
    inputs: Tensors,
    positions: number,
    maxLength: number,
    options: SearchOptions & { allowUnk?: boolean },
    words: Pick<Settings, "piece" | "text">,
  ): Promise<Found> {
    if (options.given?.size && !this.takesAttention) {
      throw new Error("the graphs of this model take no attention weights; export the model again");
    }
    const encoded = this.encoded.get(inputs) ?? this.encode(inputs);
    this.encoded.set(inputs, encoded);
    const { memory, state } = await encoded;
    return search(this.decoder(memory, positions), state, {
      maxLength: options.maxLength ?? maxLength,
      lengthPenalty: options.lengthPenalty ?? this.config.length_penalty,
      beamSize: options.beamSize ?? this.config.beam_size,
      nBest: options.nBest,
      forbid: this.never.filter((token) => token !== BOS && !(options.allowUnk && token === UNK)),
      options,
      ...words,
    });
  }

  private decoder(memory: Tensors, positions: number): Decoder {
    return async (tokens, state, position, given) => {
      const inputs: Tensors = { tokens: integers(tokens, [1, tokens.length]), ...memory, ...state };
      inputs.position = integers([position], []);
      if (this.takesAttention) {
        inputs.given_attention = givenAttention(tokens.length, positions, given);
      }
      const found = await this.step.run(inputs);
      return {
        logProbs: floats(found.log_probs),
        state: Object.fromEntries(Object.entries(this.after).map(([name, next]) => [name, found[next]])),
        attention: floatsOrNull(found.attention),
        heads: floatsOrNull(found.heads),
        scores: floatsOrNull(found.scores),
        headScores: floatsOrNull(found.head_scores),
        alignedPosition: floatsOrNull(found.aligned_position),
      };
    };
  }
}

/** The same weights for each hypothesis; rows of zeros are computed by the model. */
function givenAttention(hypotheses: number, positions: number, given: Float32Array | null): Tensor {
  const rows = new Float32Array(hypotheses * positions);
  if (given && given.length !== positions) {
    throw new Error(`attention weights must be one per source position: ${positions}; got ${given.length}`);
  }
  for (let row = 0; given && row < hypotheses; row++) {
    rows.set(given, row * positions);
  }
  return new Tensor("float32", rows, [1, hypotheses, positions]);
}
