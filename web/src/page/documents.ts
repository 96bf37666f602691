// Documents: where a classifier looked, and what striking words and sentences out really changes.
import type { Classification, Classifier, Encoded } from "../engine/index.ts";
import type { Context } from "./app.ts";
import { documentEquations } from "./document_equations.ts";
import { button, field, fill, h, panel, styled } from "./dom.ts";
import { DOCUMENTS, SECONDS } from "./examples.ts";
import { decimals, percent, top } from "./numbers.ts";
import { Latest } from "./latest.ts";
import { ownLine, sentenceForm } from "./parts.ts";
import { effectsTable, type Removal, removalsOf } from "./removals.ts";
import { Text } from "./text.ts";
import { trust } from "./trust.ts";

const MOST_LABELS = 6;

export function documentsView(model: Classifier, context: Context): HTMLElement {
  const desk = new Desk(model, context);
  void desk.classify();
  return desk.element;
}

class Desk {
  readonly element = h("div", { class: "view documents" });
  private readonly input = h("textarea", { rows: 3, maxlength: 20000, spellcheck: "false" });
  private readonly second = h("textarea", {
    rows: 2,
    maxlength: 5000,
    spellcheck: "false",
    "aria-label": "Second text",
  });
  private readonly hop = h("select", {});
  private readonly verdict = h("section", { class: "panel" });
  private readonly words = h("div", { class: "document" });
  private readonly tools = h("div", { class: "row" });
  private readonly effects = h("div", {});
  private readonly numbers = h("div", {});

  private text!: Text;
  private own!: Classification; // of the whole text
  private now!: Classification; // without what is struck
  private turn = 0;
  private readonly texts: Latest;
  private readonly strikes: Latest;

  constructor(
    private readonly model: Classifier,
    private readonly context: Context,
  ) {
    const kind = Object.keys(DOCUMENTS).find((name) => model.name.includes(`.${name}`)) ?? "imdb";
    const examples = DOCUMENTS[kind];
    this.input.value = examples[0];
    this.second.value = SECONDS[0];
    this.hop.addEventListener("change", () => {
      this.draw();
      void context.attempt(() => this.measure());
    });
    this.texts = new Latest(context.attempt);
    this.strikes = new Latest(context.attempt);
    const form = sentenceForm(
      this.input,
      model.ofPairs ? "Two texts" : "Text",
      "Classify",
      examples,
      () => void this.classify(),
    );
    if (model.ofPairs) {
      this.input.after(this.second);
    }
    const about = h("p", { class: "muted" }, this.about());
    fill(
      this.element,
      form,
      this.verdict,
      panel("Where it looked", about, this.tools, this.words),
      this.effects,
      this.numbers,
    );
  }

  private about(): string {
    const click = "Click a word to strike it out, and again to put it back.";
    return this.model.ofDocuments
      ? `Each bar is the weight of a sentence; a word is shaded by its weight times the root of its sentence's. ` +
          `${click} A bar strikes out the sentence.`
      : `A word is shaded by its weight. ${click}`;
  }

  async classify(): Promise<void> {
    const text = this.input.value;
    const second = this.model.ofPairs ? this.second.value : undefined;
    const find = () => this.model.classify(text, second);
    await this.texts.run(find, async (found) => {
      this.own = found;
      this.now = found;
      this.text = new Text(this.model.encode(text, second), this.model.ofDocuments);
      this.fillHops();
      fill(this.effects); // those of the text before
      await this.changed();
    });
  }

  /** Classifies what is not struck, and shows it. */
  private async again(): Promise<void> {
    const { text, own } = this;
    const find = async () => (text.isWhole ? own : await this.model.classifyEncoded(text.kept));
    await this.strikes.run(find, async (found) => {
      if (text === this.text) {
        this.now = found;
        await this.changed();
      }
    });
  }

  private async changed(): Promise<void> {
    this.draw();
    this.context.announce(`Verdict: ${verdictOf(this.now)}`);
    await this.measure();
  }

  private fillHops(): void {
    const hops = this.own.parts[0]?.hops.length ?? 0;
    const names = ["mean of all hops", ...Array.from({ length: hops }, (_, n) => `hop ${n + 1} of ${hops}`)];
    fill(
      this.hop,
      names.map((name, n) => h("option", { value: n }, name)),
    );
    fill(this.tools, hops > 1 && field("Weights", this.hop));
    this.tools.hidden = hops < 2;
  }

  // ---- drawing ----

  private draw(): void {
    const isOwn = this.now === this.own;
    fill(
      this.verdict,
      h("p", { class: "text" }, verdictOf(this.now)),
      trust(this.now),
      ownLine(!isOwn && ["The whole text: ", verdictOf(this.own)], () => this.reset()),
      this.now.relatedness !== null && h("p", {}, `relatedness ${decimals(this.now.relatedness)} (1 to 5)`),
      this.bars(),
      h("p", { class: "muted time" }, `${Math.round(this.now.milliseconds)} ms`),
    );
    fill(
      this.numbers,
      documentEquations(this.model, this.context, this.now, (hops) => this.row(hops)),
    );
    fill(
      this.words,
      this.text.parts.map((part, s) => this.sentence(s, part)),
    );
  }

  private bars(): HTMLElement {
    const shares = this.now.probabilities.map(({ probability }) => probability);
    const order = top(shares, MOST_LABELS);
    return h(
      "ul",
      { class: "bars labels" },
      order.map((n) => {
        const { label, probability } = this.now.probabilities[n];
        const before = this.own.probabilities[n].probability;
        const moved = Math.round((probability - before) * 100);
        return h(
          "li",
          { class: this.now.labels.includes(label) ? "chosen" : "" },
          h("span", { class: "name" }, label),
          h("meter", { min: 0, max: 1, value: probability, "aria-label": label }),
          h(
            "span",
            { class: "share" },
            percent(probability),
            moved !== 0 && ` (${moved > 0 ? "+" : "−"}${Math.abs(moved)})`,
          ),
        );
      }),
    );
  }

  private sentence(s: number, words: readonly string[]): HTMLElement {
    const place = this.text.keptPart(s);
    const found = place === null ? null : this.now.parts[place];
    const weight = found?.weight ?? null;
    const shades = found ? this.shades(found.hops, weight) : [];
    const isStruck = words.every((_, n) => this.text.isStruck(s, n));
    const bar =
      this.model.ofDocuments &&
      styled(
        button(weight === null ? "–" : percent(weight), () => this.strikeSentence(s), {
          class: `sentence${isStruck ? " struck" : ""}`,
          "aria-label": `Sentence ${s + 1}, weight ${percent(weight ?? 0)}: ${isStruck ? "put back" : "strike out"}`,
          "aria-pressed": isStruck ? "true" : "false",
        }),
        { "--weight": weight ?? 0 },
      );
    return h(
      "div",
      { class: "part" },
      bar,
      h(
        "p",
        {},
        words.map((word, n) => this.word(word, s, n, shades)),
      ),
    );
  }

  private word(word: string, s: number, n: number, shades: readonly number[]): (HTMLElement | string)[] {
    const place = this.text.keptWord(s, n);
    const isStruck = place === null;
    const weight = isStruck ? 0 : (shades[place] ?? 0);
    const element = button(word, () => this.strikeWord(s, n), {
      class: `shaded${isStruck ? " struck" : ""}`,
      title: isStruck ? "struck out" : percent(this.weightOf(s, place)),
      "aria-pressed": isStruck ? "true" : "false",
    });
    return [styled(element, { "--weight": weight.toFixed(3) }), " "];
  }

  private weightOf(s: number, place: number): number {
    return this.row(this.now.parts[this.text.keptPart(s)!].hops)[place] ?? 0;
  }

  /** Of the chosen hop, or the mean of all. */
  private row(hops: readonly Float32Array[]): Float32Array {
    const chosen = Number(this.hop.value) || 0;
    if (chosen > 0 && hops[chosen - 1]) {
      return hops[chosen - 1];
    }
    return (hops[0] ?? new Float32Array()).map((_, n) => hops.reduce((sum, hop) => sum + hop[n], 0) / hops.length);
  }

  /** From 0 to 1, relative to the largest in the text. */
  private shades(hops: readonly Float32Array[], weight: number | null): number[] {
    const scale = (row: Float32Array, of: number | null) => Array.from(row, (x) => x * Math.sqrt(of ?? 1));
    const highest = Math.max(1e-9, ...this.now.parts.flatMap((part) => scale(this.row(part.hops), part.weight)));
    return scale(this.row(hops), weight).map((shade) => shade / highest);
  }

  // ---- striking ----

  private strikeWord(s: number, n: number): void {
    this.text.strike(s, n);
    void this.again();
  }

  private strikeSentence(s: number): void {
    this.text.strikePart(s);
    void this.again();
  }

  private reset(): void {
    this.text.putBack();
    void this.again();
  }

  /** What the removal of each of the most weighted words and sentences changes. */
  private async measure(): Promise<void> {
    const turn = (this.turn += 1);
    const { text, now } = this;
    const names: Removal[] = removalsOf(text, now, (hops) => this.row(hops));
    if (!names.length) {
      fill(this.effects);
      return;
    }
    const start = performance.now();
    const rows: Encoded[] = names.map(({ without }) => without);
    const found = await this.model.probabilitiesOf(rows);
    const milliseconds = performance.now() - start;
    if (turn === this.turn) {
      fill(
        this.effects,
        effectsTable(names, now, found, milliseconds, (removal) => this.strike(removal)),
      );
    }
  }

  private strike({ s, n }: Removal): void {
    n === null ? this.strikeSentence(s) : this.strikeWord(s, n);
  }
}

function verdictOf({ labels, probabilities }: Classification): string {
  const share = (label: string) => probabilities.find((one) => one.label === label)!.probability;
  return labels.map((label) => `${label} ${decimals(share(label))}`).join(", ") || "no label";
}
