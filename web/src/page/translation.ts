// Translation: the sentence, its words of attention, and everything a hand can change about them.
import type { Hypothesis, Step, Translation, Translator } from "../engine/index.ts";
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

/** The sentence that is read, and what the user has fixed of the output. */
interface Wish {
  readonly sentence: Sentence;
  readonly given: ReadonlyMap<number, Float32Array>; // weights at the shown source positions
  readonly prefix: readonly number[];
}

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
  private readonly editor = new Editor((kept) => this.give(this.chosen!, kept && this.seen.sentence.widened(kept)));
  private readonly others: ReturnType<typeof comparison>;
  private readonly latest: Latest; // of the translations of a text
  private readonly picks: Latest;

  private source = ""; // the translated text
  private coming: { source: string } | null = null; // the newest one, while it is being translated
  private sentences: Translation[] = []; // of the text
  private part = 0; // the chosen one of them
  private own!: Translation; // of the chosen sentence, as the model translates it; missing until a text was translated
  private now!: Translation; // the same with the interventions
  private picked: Hypothesis | null = null; // from the search tree
  private seen!: Wish; // what `now` is of
  private wish!: Wish; // the newest one, which is being decoded if it is not the seen one
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
      onMove: (position, source) => this.give(position, only(this.seen.sentence.tokens.length, source)),
    });
    this.beam.value = "1"; // the fastest, and the one that follows each intervention
    this.beam.addEventListener("change", () => void this.search());
    this.others = comparison(context);
    this.latest = new Latest(context.attempt);
    this.picks = new Latest(context.attempt);
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
    if (this.coming || !this.own) {
      await this.translate(this.coming?.source);
      return;
    }
    const find = () => this.model.translate(this.source, this.options());
    await this.latest.run(find, async (found) => {
      this.sentences = found.sentences ?? [found];
      this.own = this.sentences[this.part];
      this.drawParts();
      if (isTouched(this.wish)) {
        await this.decode();
        return;
      }
      this.take(this.own, this.wish);
    });
  }

  private options(): { beamSize: number; nBest: number } {
    return { beamSize: Number(this.beam.value), nBest: Number(this.beam.value) };
  }

  /** Shows a sentence as the model translates it. */
  private start(n: number): void {
    this.part = n;
    this.own = this.sentences[n];
    this.drawParts();
    this.reset(true);
  }

  private reset(gradually = false): void {
    this.now = this.own;
    this.heads.offer(this.model.config, this.shown.steps);
    this.wish = { sentence: new Sentence(this.own.ids, this.own.source), given: new Map(), prefix: [] };
    this.seen = this.wish;
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
        const { own, seen, wish } = this;
        const isWanted = () => own === this.own && seen === this.seen; // not after a reset, or for another text
        try {
          const options = { ...this.options(), given: narrowed(wish), prefix: [...wish.prefix] };
          const found = await this.model.translateIds(wish.sentence.ids, options);
          if (isWanted()) {
            this.take(found, wish);
            this.context.announce(`Now: ${found.text}`);
          }
        } catch (error) {
          if (isWanted()) {
            this.wish = wish === this.wish ? seen : this.wish; // what is shown stays whole
            this.draw();
            throw error;
          }
        }
      });
    }
    this.isBusy = false;
  }

  /** Shows what was found for a wish. */
  private take(found: Translation, wish: Wish): void {
    this.now = found;
    this.seen = wish;
    this.picked = null;
    this.chosen = this.chosen === null ? null : Math.min(this.chosen, this.shown.steps.length - 1);
    this.draw();
  }

  private get shown(): Hypothesis {
    return this.picked ?? this.now.hypotheses[0] ?? { steps: [], text: "", score: 0, logProb: 0 };
  }

  // ---- interventions ----

  /** Gives a target position weights, or with null its own again; the words before it stay, those after are decoded. */
  private give(position: number, weights: Float32Array | null): void {
    const steps = this.shown.steps;
    const { sentence } = this.wish;
    const before = [...this.wish.given].filter(([t]) => t < position);
    const hadOwn = weights === null && !this.wish.given.has(position);
    if (hadOwn || sentence !== this.seen.sentence) {
      return; // of another sentence the weights would be at other words
    }
    const given = new Map(weights ? [...before, [position, weights]] : before);
    this.wish = { sentence, given, prefix: given.size ? tokensOf(steps.slice(0, position)) : [] };
    this.chosen = position;
    void this.decode();
  }

  /** Fixes a word, and decodes those after it. */
  private force(position: number, token: number): void {
    const given = new Map([...this.wish.given].filter(([t]) => t <= position));
    this.wish = { ...this.wish, given, prefix: [...tokensOf(this.shown.steps.slice(0, position)), token] };
    void this.decode();
  }

  private edit(change: (sentence: Sentence) => void): void {
    const sentence = this.wish.sentence.copy();
    change(sentence);
    this.wish = { sentence, given: new Map(), prefix: [] };
    this.chosen = null;
    void this.decode();
  }

  private openWord(position: number): void {
    const { sentence } = this.seen;
    if (sentence.isEnd(position)) {
      return;
    }
    const word = { text: sentence.textOf(position), isStruck: sentence.isStruck(position) };
    fillWordTools(this.wordTools, word, {
      strike: () => this.edit((sentence) => sentence.strike(position)),
      replace: (text) => this.edit((sentence) => sentence.replace(position, text, this.model)),
    });
  }

  private choose(position: number | null): void {
    this.chosen = position;
    this.draw();
  }

  /** Shows another hypothesis than the best one. */
  private async pick(find: () => Promise<Hypothesis>): Promise<void> {
    const { now, seen } = this;
    await this.picks.run(find, (found) => {
      if (now === this.now && seen === this.seen) {
        this.picked = found === now.hypotheses[0] ? null : found;
        this.chosen = null;
        this.draw();
        this.context.announce(`Picked: ${found.text}`);
      }
    });
  }

  /** A hypothesis of the search tree, with the attention of its steps. */
  private async ofTree(prefix: number[]): Promise<Hypothesis> {
    const options = { beamSize: 1, prefix, given: narrowed(this.seen) };
    return (await this.model.translateIds(this.seen.sentence.ids, options)).hypotheses[0];
  }

  // ---- drawing ----

  private draw(gradually = false): void {
    const { steps } = this.shown;
    const { sentence, given } = this.seen;
    this.lines.show(
      {
        source: sentence.tokens,
        target: steps.map(({ piece }) => piece),
        attention: this.rows,
        chosen: this.chosen,
        given: new Set(given.keys()),
        changed: changes(tokensOf(this.own.hypotheses[0]?.steps ?? []), tokensOf(steps)),
        struck: sentence.struck,
        movable: this.model.takesAttention,
      },
      gradually,
    );
    this.drawAnswer();
    fill(
      this.measures,
      measuresLine(this.rows),
      ...(this.rows.length ? [hint(this.model.takesAttention, this.chosen !== null, this.rows.some((row) => row))] : []),
    );
    this.drawStep();
    fill(this.below, this.drawSearch());
    fill(this.tables, this.drawTable());
  }

  private get rows(): (Float32Array | null)[] {
    return this.heads.rows(this.shown.steps).map((weights) => weights && this.seen.sentence.widened(weights));
  }

  private drawParts(): void {
    const several = this.sentences.length > 1;
    fill(
      this.parts,
      several && h("p", { class: "whole muted" }, this.sentences.map(({ text }) => text).join(" ")),
      several &&
        this.sentences.map((_, n) =>
          button(`Sentence ${n + 1}`, () => this.start(n), { "aria-pressed": n === this.part ? "true" : "false" }),
        ),
    );
  }

  private drawAnswer(): void {
    const isOwn = !isTouched(this.seen) && !this.picked;
    fill(
      this.answer,
      h("p", { class: "text", lang: this.context.entry.languages.at(-1) }, this.shown.text || "(no words)"),
      trust(this.picked ? { ...this.now, confidence: null } : this.now), // which is that of the best one
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
    const { sentence, given, prefix } = this.seen;
    const isGiven = given.has(t);
    const names = sentence.tokens.filter((_, n) => !sentence.isStruck(n));
    const weights = this.heads.of(step).attention;
    if (weights) {
      this.editor.show(names, weights, isGiven, this.model.takesAttention);
    }
    const editorIsThere = this.stepPanel.contains(this.editor.element);
    const title = `Where “${label(step.piece)}” looks${isGiven ? ": your weights" : ""}`;
    const words = panel(
      "Most probable words here",
      alternatives(step, (token) => this.force(t, token)),
      prefix.length <= t && !this.picked && whyNotBest(step),
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
    return panel(
      "Search",
      h("p", { class: "muted" }, "The best hypotheses with their scores. Pick one to see its attention."),
      hypothesisList(this.now.hypotheses, this.shown, (one) => void this.pick(async () => one)),
      h(
        "details",
        {},
        h("summary", {}, "Search tree"),
        searchTree(tree, tokensOf(this.shown.steps), (tokens) => void this.pick(() => this.ofTree(tokens))),
      ),
    );
  }

  private drawTable(): HTMLElement | null {
    if (!this.rows.some((row) => row)) {
      return null;
    }
    const rows = this.shown.steps.map(({ piece }, t) => [
      label(piece),
      ...Array.from(this.rows[t] ?? [], (x) => decimals(x, 3)),
    ]);
    return tableOf("All weights as a table", ["", ...this.seen.sentence.tokens.map(label)], rows);
  }
}

function isTouched({ sentence, given, prefix }: Wish): boolean {
  return given.size > 0 || prefix.length > 0 || sentence.changed;
}

/** The given weights, at the words that the model reads. */
function narrowed({ sentence, given }: Wish): Map<number, Float32Array> {
  return new Map([...given].map(([t, weights]) => [t, sentence.narrowed(weights)]));
}

function tokensOf(steps: readonly Step[]): number[] {
  return steps.map(({ token }) => token);
}
