// The choice of a Transformer's head whose weights are shown.
import type { Step } from "../engine/index.ts";
import { field, fill, h } from "./dom.ts";
import type { Rows } from "./numbers.ts";

/** What the graph's own map is: of one head, or without `head` the mean of a layer's. */
interface Own {
  layer: number;
  head: number | null;
}

export class HeadChoice {
  readonly element: HTMLElement;
  private readonly select: HTMLSelectElement;
  private perLayer = 1;
  private own: Own = { layer: 0, head: null };

  constructor(change: () => void) {
    this.select = h("select", { onchange: change });
    this.element = h("div", { class: "row" }, field("Weights of", this.select));
    this.element.hidden = true;
  }

  /** Offers the heads of a model; hidden for a model without heads. The choice stays. */
  offer(config: Record<string, any>, steps: readonly Step[]): void {
    const count = steps[0]?.heads?.length ?? 0;
    this.element.hidden = !count;
    if (!count || this.select.options.length === count + 1) {
      return;
    }
    this.perLayer = config.num_heads;
    const layers = count / this.perLayer;
    this.own = { layer: (config.shown_layer + layers) % layers, head: config.shown_head };
    const names = Array.from({ length: count }, (_, n) => this.name(n));
    fill(
      this.select,
      [this.ownName(layers), ...names].map((one, n) => h("option", { value: n }, one)),
    );
  }

  /** A step with the weights and scores of the chosen head; a mean has no scores. */
  of(step: Step): Step {
    const { heads, headScores, ...rest } = step;
    if (!heads) {
      return step;
    }
    const chosen = Number(this.select.value) - 1;
    if (chosen >= 0) {
      return { ...rest, attention: heads[chosen], scores: headScores?.[chosen] };
    }
    const { layer, head } = this.own;
    return head === null ? step : { ...rest, scores: headScores?.[layer * this.perLayer + head] };
  }

  rows(steps: readonly Step[]): Rows {
    return steps.map((step) => this.of(step).attention);
  }

  private ownName(layers: number): string {
    const { layer, head } = this.own;
    if (head !== null) {
      return `the head that translate shows (${this.name(layer * this.perLayer + head)})`;
    }
    return `the mean of ${layer === layers - 1 ? "the last layer’s" : `layer ${layer + 1}’s`} heads`;
  }

  private name(n: number): string {
    return `layer ${Math.floor(n / this.perLayer) + 1}, head ${(n % this.perLayer) + 1}`;
  }
}
