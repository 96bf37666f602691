// Translation: the sentence, its words of attention, and everything a hand can change about them.
import type { Hypothesis, Translation, Translator } from "../engine/index.ts";
import type { Context } from "./app.ts";
import { comparison } from "./compare.ts";
import { button, field, fill, h, panel, tableOf } from "./dom.ts";
import { Editor } from "./editor.ts";
import { equations } from "./equation.ts";
import { textsFor } from "./examples.ts";
import { HeadChoice } from "./heads.ts";
import { Latest } from "./latest.ts";
import { label, Lines } from "./lines.ts";
import { changes, decimals, only } from "./numbers.ts";
import { measuresLine, ownLine, sentenceForm, wordsBefore } from "./parts.ts";
import { Sentence } from "./sentence.ts";
import { searchTree } from "./tree.ts";
import { alternatives, fillWordTools, hint, hypothesisList, whyNotBest } from "./translation_parts.ts";
import { trust } from "./trust.ts";

export function translationView(model: Translator, context: Context): HTMLElement {
  const desk = new Desk(model, context);
  void desk.translate();
  return desk.element;
}

/** What the user has fixed of the output. */
interface Interventions {
  given: Map<number, Float32Array>; // weights at the shown source positions
  prefix: number[];
}

const NONE = (): Interventions => ({ given: new Map(), prefix: [] });

class Desk {
  readonly element = h("div", { class: "view translation" });
  private readonly text = h("textarea", { rows: 2, spellcheck: "false", maxlength: 2000 });
  private readonly beam = h(
    "select",
    {},
    [1, 3, 5, 10].map((size) => h("option", { value: size }, size)),
  );
  private readonly heads = new HeadChoice(() => this.draw());
  private readonly answer = h("div", { class: "answer" });
  private readonly parts = h("div", { class: "buttons" });
  private readonly wordTools = h("div", { class: "word-tools", hidden: true });
  private readonly measures = h("div", {});
  private readonly below = h("div", {});
  private readonly stepPanel = h("div", {});
  private readonly tables = h("div", {});
  private readonly lines: Lines;
  private readonly editor = new Editor((kept) => this.give(this.chosen!, kept && this.sentence.widened(kept)));
  private readonly others: ReturnType<typeof comparison>;
  private readonly latest: Latest; // of the translations of a text

  private source = ""; // the translated text
  private coming: { source: string } | null = null; // the newest one, while it is being translated
  private sentences: Translation[] = []; // of the text
  private part = 0; // the chosen one of them
  private own!: Translation; // of the chosen sentence, as the model translates it
  private now!: Translation; // the same with the interventions
  private picked: Hypothesis | null = null; // from the search tree
  private sentence!: Sentence;
  private fixed = NONE();
  private chosen: number | null = null;
  private isBusy = false;
  private isWanted = false;

  constructor(
    private readonly model: Translator,
    private readonly context: Context,
  ) {
    this.lines = new Lines({
      onTarget: (position) => this.choose(position === this.chosen ? null : position),
      onSource: (position) => this.openWord(position),
      onMove: (position, source) => this.give(position, only(this.sentence.tokens.length, source)),
    });
    this.beam.value = "1"; // the fastest, and the one that follows each intervention
    this.beam.addEventListener("change", () => void this.search());
    this.others = comparison(context);
    this.latest = new Latest(context.attempt);
    const [language] = context.entry.languages;
    const examples = textsFor(model.name, language);
    this.text.value = examples[0];
    fill(
      this.element,
      sentenceForm(this.text, "Sentence", "Translate", examples, () => void this.translate(), field("Beam", this.beam)),
      h(
        "section",
        { class: "panel result" },
        this.answer,
        this.parts,
        this.heads.element,
        this.lines.element,
        this.wordTools,
        this.measures,
      ),
      this.stepPanel,
      this.below,
      this.others.element,
      this.tables,
    );
  }

  // ---- decoding ----

  /** Translates the text from the start. */
  async translate(source = this.text.value): Promise<void> {
    const mine = { source };
    this.coming = mine;
    const find = async () => {
      try {
        return await this.model.translate(source, this.options());
      } finally {
        this.coming = this.coming === mine ? null : this.coming;
      }
    };
    await this.latest.run(find, (found) => {
      this.source = source;
      this.sentences = found.sentences ?? [found];
      this.start(0);
      this.context.announce(`Translation: ${found.text}`);
      this.others.show(source);
    });
  }

  /** Searches with another beam; the interventions stay. */
  private async search(): Promise<void> {
    if (this.coming) {
      await this.translate(this.coming.source);
      return;
    }
    const find = () => this.model.translate(this.source, this.options());
    await this.latest.run(find, async (found) => {
      const wasTouched = this.isTouched;
      this.sentences = found.sentences ?? [found];
      this.own = this.sentences[this.part];
      this.now = this.own;
      this.picked = null;
      this.draw();
      if (wasTouched) {
        await this.decode();
      }
    });
  }

  private options(): { beamSize: number; nBest: number } {
    return { beamSize: Number(this.beam.value), nBest: Number(this.beam.value) };
  }

  /** Shows a sentence as the model translates it. */
  private start(n: number): void {
    this.part = n;
    this.own = this.sentences[n];
    const several = this.sentences.length > 1;
    fill(
      this.parts,
      several && h("p", { class: "whole muted" }, this.sentences.map(({ text }) => text).join(" ")),
      several &&
        this.sentences.map((_, m) =>
          button(`Sentence ${m + 1}`, () => this.start(m), { "aria-pressed": m === n ? "true" : "false" }),
        ),
    );
    this.reset(true);
  }

  private reset(gradually = false): void {
    this.now = this.own;
    this.heads.offer(this.model.config, this.shown.steps);
    this.sentence = new Sentence(this.own.ids, this.own.source);
    this.fixed = NONE();
    this.isWanted = false;
    this.picked = null;
    this.chosen = null;
    this.wordTools.hidden = true;
    this.draw(gradually);
  }

  /** Decodes with the interventions; while it runs only the last of further ones is kept. */
  private async decode(): Promise<void> {
    this.isWanted = true;
    if (this.isBusy) {
      return;
    }
    this.isBusy = true;
    while (this.isWanted) {
      this.isWanted = false;
      await this.context.attempt(async () => {
        const given = new Map([...this.fixed.given].map(([t, weights]) => [t, this.sentence.narrowed(weights)]));
        const { own, sentence } = this; // another one is of another text, or of the same after a reset
        const options = { ...this.options(), given, prefix: this.fixed.prefix };
        const found = await this.model.translateIds(this.sentence.ids, options);
        if (own === this.own && sentence === this.sentence) {
          this.now = found;
          this.picked = null;
          this.chosen = this.chosen === null ? null : Math.min(this.chosen, this.shown.steps.length - 1);
          this.draw();
          this.context.announce(`Now: ${found.text}`);
        }
      });
    }
    this.isBusy = false;
  }

  private get shown(): Hypothesis {
    return this.picked ?? this.now.hypotheses[0] ?? { steps: [], text: "", score: 0, logProb: 0 };
  }

  private get isTouched(): boolean {
    return this.fixed.given.size > 0 || this.fixed.prefix.length > 0 || this.sentence.changed;
  }

  // ---- interventions ----

  /** Gives a target position weights, or with null its own again; the words before it stay, those after are decoded. */
  private give(position: number, weights: Float32Array | null): void {
    const steps = this.shown.steps;
    const before = [...this.fixed.given].filter(([t]) => t < position);
    const hadOwn = weights === null && !this.fixed.given.has(position);
    if (hadOwn) {
      return;
    }
    this.fixed.given = new Map(weights ? [...before, [position, weights]] : before);
    this.fixed.prefix = steps.slice(0, position).map(({ token }) => token);
    if (!this.fixed.given.size) {
      this.fixed.prefix = [];
    }
    this.chosen = position;
    void this.decode();
  }

  /** Fixes a word, and decodes those after it. */
  private force(position: number, token: number): void {
    const before = this.shown.steps.slice(0, position).map((step) => step.token);
    this.fixed.given = new Map([...this.fixed.given].filter(([t]) => t <= position));
    this.fixed.prefix = [...before, token];
    void this.decode();
  }

  private edit(change: () => void): void {
    change();
    this.fixed = NONE();
    this.chosen = null;
    void this.decode();
  }

  private openWord(position: number): void {
    if (this.sentence.isEnd(position)) {
      return;
    }
    const word = { text: this.sentence.textOf(position), isStruck: this.sentence.isStruck(position) };
    fillWordTools(this.wordTools, word, {
      strike: () => this.edit(() => this.sentence.strike(position)),
      replace: (text) => this.edit(() => this.sentence.replace(position, text, this.model)),
    });
  }

  private choose(position: number | null): void {
    this.chosen = position;
    this.draw();
  }

  private async pick(tokens: number[]): Promise<void> {
    await this.context.attempt(async () => {
      const { now } = this;
      const found = await this.model.translateIds(this.sentence.ids, { beamSize: 1, prefix: tokens });
      if (now === this.now) {
        this.picked = found.hypotheses[0];
        this.chosen = null;
        this.draw();
        this.context.announce(`Picked: ${this.picked.text}`);
      }
    });
  }

  // ---- drawing ----

  private draw(gradually = false): void {
    const { steps } = this.shown;
    const ownTokens = this.own.hypotheses[0]?.steps.map(({ token }) => token) ?? [];
    this.lines.show(
      {
        source: this.sentence.tokens,
        target: steps.map(({ piece }) => piece),
        attention: this.rows,
        chosen: this.chosen,
        given: new Set(this.fixed.given.keys()),
        changed: changes(
          ownTokens,
          steps.map(({ token }) => token),
        ),
        struck: this.sentence.struck,
        movable: this.model.takesAttention,
      },
      gradually,
    );
    this.drawAnswer();
    fill(
      this.measures,
      measuresLine(this.rows),
      hint(
        this.model.takesAttention,
        this.chosen !== null,
        this.rows.some((row) => row),
      ),
    );
    this.drawStep();
    fill(this.below, this.drawSearch());
    fill(this.tables, this.drawTable());
  }

  private get rows(): (Float32Array | null)[] {
    return this.heads.rows(this.shown.steps).map((weights) => weights && this.sentence.widened(weights));
  }

  private drawAnswer(): void {
    const isOwn = !this.isTouched && !this.picked;
    fill(
      this.answer,
      h("p", { class: "text", lang: this.context.entry.languages.at(-1) }, this.shown.text || "(no words)"),
      trust(this.now),
      ownLine(!isOwn && ["The model’s own: ", wordsBefore(this.own.text, this.shown.text)], () => this.reset()),
      h("p", { class: "muted time" }, `${Math.round(this.now.milliseconds)} ms, score ${decimals(this.shown.score)}`),
    );
  }

  private drawStep(): void {
    const t = this.chosen;
    const step = t === null ? undefined : this.shown.steps[t];
    if (t === null || !step) {
      fill(this.stepPanel);
      return;
    }
    const isGiven = this.fixed.given.has(t);
    const names = this.sentence.tokens.filter((_, n) => !this.sentence.isStruck(n));
    const found = this.heads.of(step).attention;
    const weights = found?.length === names.length ? found : null; // else those of a changed sentence are on the way
    if (weights) {
      this.editor.show(names, weights, isGiven, this.model.takesAttention);
    }
    const editorIsThere = this.stepPanel.contains(this.editor.element);
    const title = `Where “${label(step.piece)}” looks${isGiven ? ": your weights" : ""}`;
    const words = panel(
      "Most probable words here",
      alternatives(step, (token) => this.force(t, token)),
      this.fixed.prefix.length <= t && !this.picked && whyNotBest(step),
      isGiven && step.heads && h("p", { class: "muted" }, "All heads of all layers use your weights."),
    );
    const { about } = this.model.facts;
    const facts = { about, names, step: this.heads.of(step), t, isGiven };
    const equation = equations(this.context, this.model.name, facts);
    if (editorIsThere && weights) {
      // The bars stay in the document, so that the one in hand keeps the pointer and the focus.
      const [bars, ...rest] = Array.from(this.stepPanel.children);
      bars.querySelector("h2")!.textContent = title;
      rest.forEach((element) => element.remove());
      this.stepPanel.append(words, equation);
      return;
    }
    fill(this.stepPanel, weights && panel(title, this.editor.element), words, equation);
    this.stepPanel.className = "step";
  }

  private drawSearch(): HTMLElement | null {
    const tree = this.now.tree;
    if (!tree?.length || !this.shown.steps.length) {
      return null;
    }
    const picked = this.shown.steps.map(({ token }) => token);
    return panel(
      "Search",
      h("p", { class: "muted" }, "The best hypotheses with their scores. Pick one to see its attention."),
      hypothesisList(this.now.hypotheses, this.shown, (one) => this.show(one)),
      h(
        "details",
        {},
        h("summary", {}, "Search tree"),
        searchTree(tree, picked, (tokens) => void this.pick(tokens)),
      ),
    );
  }

  private show(hypothesis: Hypothesis): void {
    this.picked = hypothesis === this.now.hypotheses[0] ? null : hypothesis;
    this.chosen = null;
    this.draw();
    this.context.announce(`Picked: ${hypothesis.text}`);
  }

  private drawTable(): HTMLElement | null {
    if (!this.rows.some((row) => row)) {
      return null;
    }
    const rows = this.shown.steps.map(({ piece }, t) => [
      label(piece),
      ...Array.from(this.rows[t] ?? [], (x) => decimals(x, 3)),
    ]);
    return tableOf("All weights as a table", ["", ...this.sentence.tokens.map(label)], rows);
  }
}
