// The weights of one step as bars that can be dragged or moved with the arrow keys.
import { button, fill, h, styled } from "./dom.ts";
import { label } from "./lines.ts";
import { only, percent, uniform, withWeight } from "./numbers.ts";

const STEPS = 100; // of a bar

/** Bars of the weights on each source token; `change` gets what the user made of them, null for the model's own. */
export class Editor {
  readonly element = h("div", { class: "editor" });
  private weights: Float32Array = new Float32Array();
  private bars: HTMLInputElement[] = [];
  private shares: HTMLElement[] = [];
  private key = "";

  constructor(private readonly change: (weights: Float32Array | null) => void) {}

  show(source: readonly string[], weights: Float32Array, isGiven: boolean, movable: boolean): void {
    const key = `${source.join(" ")} ${movable}`;
    if (key !== this.key) {
      this.key = key;
      this.build(source, movable);
    }
    this.weights = weights;
    this.element.classList.toggle("amber", isGiven);
    weights.forEach((weight, n) => {
      this.bars[n].value = String(Math.round(weight * STEPS));
      styled(this.bars[n], { "--share": `${(weight * 100).toFixed(1)}%` });
      this.shares[n].textContent = percent(weight);
    });
  }

  private build(source: readonly string[], movable: boolean): void {
    this.shares = source.map(() => h("span", { class: "share" }));
    this.bars = source.map((token, n) =>
      h("input", {
        type: "range",
        min: 0,
        max: STEPS,
        disabled: !movable,
        "aria-label": `Attention on ${label(token)}`,
        oninput: () => this.change(withWeight(this.weights, n, Number(this.bars[n].value) / STEPS)),
      }),
    );
    const rows = source.map((token, n) =>
      h(
        "li",
        {},
        h("span", { class: "word" }, label(token)),
        this.bars[n],
        this.shares[n],
        movable &&
          button("only", () => this.change(only(source.length, n)), {
            class: "small",
            "aria-label": `Only ${label(token)}`,
          }),
      ),
    );
    const presets = h(
      "p",
      { class: "buttons" },
      button("Uniform", () => this.change(uniform(source.length))),
      button("The model’s own", () => this.change(null)),
    );
    fill(this.element, h("ol", {}, rows), movable && presets);
  }
}
