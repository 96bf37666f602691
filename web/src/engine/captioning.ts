// Captioner: `caption`, as zoo/verbs/captioning.py.
import { logOdds, trusted, type Warnings } from "./confidence.ts";
import type { Exported } from "./folder.ts";
import { Tensor, type Tensors } from "./graph.ts";
import { framed, type Picture, pixels, type Transform } from "./images.ts";
import { type Facts, factsOf, tokenizerOf } from "./model.ts";
import type { BeamNode, Hypothesis, SearchOptions } from "./search.ts";
import { EncoderDecoder } from "./searching.ts";
import { EOS, type Tokenizer } from "./tokenizer.ts";

const MAX_WORDS = 40; // of a caption, EOS included

export interface Caption extends Warnings {
  text: string;
  score: number;
  hypotheses: Hypothesis[];
  tree: BeamNode[];
  milliseconds: number;
}

export class Captioner {
  readonly task = "captioning";
  /** Rows and columns of the regions that attention weighs. */
  readonly grid: [number, number];
  private readonly inputs = new WeakMap<Picture, Tensors>(); // a picture is prepared and encoded once

  private constructor(
    readonly facts: Facts,
    private readonly graphs: EncoderDecoder,
    readonly tokenizer: Tokenizer,
    private readonly transform: Transform,
  ) {
    const regions = Number(facts.about.graphs["encoder.onnx"].outputs.memory_keys.split(",")[1]);
    this.grid = [Math.round(Math.sqrt(regions)), Math.round(Math.sqrt(regions))];
  }

  static async open(exported: Exported): Promise<Captioner> {
    const [facts, tokenizer] = [await factsOf(exported), await tokenizerOf(exported)];
    const transform = JSON.parse(await exported.text("preprocessing.json")) as Transform;
    return new Captioner(facts, await EncoderDecoder.open(exported), tokenizer, transform);
  }

  get name(): string {
    return this.facts.name;
  }

  get config(): Record<string, any> {
    return this.facts.about.config;
  }

  /** Whether a caption can be given attention weights. */
  get takesAttention(): boolean {
    return this.graphs.takesAttention;
  }

  /** The part of a picture that the model sees, to which the grid belongs: left, top, width and height. */
  frame(picture: { width: number; height: number }): number[] {
    return framed(picture, this.transform);
  }

  /** Describes a picture, such as the ImageData of a canvas; its bytes must not change between calls. */
  async caption(picture: Picture, options: SearchOptions = {}): Promise<Caption> {
    const start = performance.now();
    const inputs = this.inputs.get(picture) ?? this.prepared(picture);
    this.inputs.set(picture, inputs);
    const found = await this.graphs.find(inputs, this.grid[0] * this.grid[1], MAX_WORDS, options, {
      piece: (token) => this.tokenizer.token(token),
      text: (tokens) => this.tokenizer.decode(tokens),
    });
    const best = found.hypotheses[0];
    const isCut = best.steps[best.steps.length - 1].token !== EOS;
    const evidence = {
      values: { score: logOdds(best.logProb / best.steps.length) },
      notes: isCut ? ["the caption was cut at its maximum length"] : [],
    };
    return {
      text: best.text,
      score: best.score,
      ...found,
      milliseconds: performance.now() - start,
      ...trusted(this.facts.calibration, evidence),
    };
  }

  private prepared(picture: Picture): Tensors {
    const { size } = this.transform;
    return { images: new Tensor("uint8", pixels(picture, this.transform), [1, 3, size, size]) };
  }
}
