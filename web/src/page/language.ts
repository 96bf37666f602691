// Language model: how probable each word was, how far back it looked, and what could come next.
import type { Completion, LanguageModel, Scored } from "../engine/index.ts";
import type { Context } from "./app.ts";
import { computedBy } from "./code.ts";
import { button, equationRow, field, fill, h, panel, styled, tableOf } from "./dom.ts";
import { BEGINNINGS } from "./examples.ts";
import { formula } from "./formula.ts";
import { EVERYWHERE } from "./mechanisms.ts";
import { decimals, percent } from "./numbers.ts";
import { sentenceForm } from "./parts.ts";
import { heaviest, scoreLine, weightedSum, weightLines } from "./step_numbers.ts";
import { trust } from "./trust.ts";

const LEAST = Math.log(1e-3); // log-probability that is drawn as none

/** A word, its log-probability, and the weights and scores of the words 1, 2, ... steps back. */
interface Word {
  word: string;
  logProb: number | null;
  attention: Float32Array | null;
  scores: Float32Array | null;
}

export function languageView(model: LanguageModel, context: Context): HTMLElement {
  const desk = new Desk(model, context);
  void desk.read();
  return desk.element;
}

class Desk {
  readonly element = h("div", { class: "view language" });
  private readonly text = h("textarea", { rows: 2, maxlength: 4000, spellcheck: "false", lang: "en" });
  private readonly warmth = h("input", { type: "range", min: 0, max: 1.5, step: 0.1, value: 0.7 });
  private readonly warmthShown = h("output", {});
  private readonly most = h("input", { type: "range", min: 1, max: 40, step: 1, value: 15 });
  private readonly mostShown = h("output", {});
  private readonly back: HTMLInputElement; // how many steps back the attention sees
  private readonly backShown = h("output", {});
  private readonly result = h("section", { class: "panel" });
  private readonly looks = h("div", {});

  private words: Word[] = [];
  private given = 0; // of them from the user
  private chosen: number | null = null;
  private seed = 0; // of what is drawn at random: the sliders change a continuation, and chance does not
  private shows: (() => Promise<void>) | null = null; // computes again what is shown
  private ownScored: { text: string; found: Scored } | null = null;
  private isBusy = false;
  private isWanted = false;

  constructor(
    private readonly model: LanguageModel,
    private readonly context: Context,
  ) {
    this.text.value = BEGINNINGS[0];
    const { reach } = model;
    this.back = h("input", { type: "range", min: 1, max: reach || 1, step: 1, value: reach, disabled: reach < 2 });
    const sliders = () => {
      const value = Number(this.warmth.value);
      this.warmthShown.textContent = value ? decimals(value, 1) : "0 (best)";
      this.mostShown.textContent = this.most.value;
      this.backShown.textContent = `${this.back.value} of ${reach}`;
    };
    for (const slider of [this.warmth, this.most, this.back]) {
      slider.addEventListener("input", () => {
        sliders();
        void this.again();
      });
    }
    sliders();
    const form = sentenceForm(
      this.text,
      "Beginning of a sentence",
      "Score the words",
      BEGINNINGS,
      () => void this.read(),
      button("Continue it", () => void this.continue()),
      h("span", { class: "field" }, field("Temperature", this.warmth), this.warmthShown),
      h("span", { class: "field" }, field("At most", this.most), this.mostShown, " words"),
      reach > 0 && h("span", { class: "field" }, field("Attention window", this.back), this.backShown, " steps back"),
    );
    fill(this.element, form, this.result, this.looks);
  }

  /** Scores the words of the text. */
  async read(): Promise<void> {
    this.chosen = null;
    const text = this.text.value;
    await this.show(() => this.score(text));
    await this.context.attempt(() => this.model.prepareWindows(text));
  }

  /** Adds words: the most probable ones, or with a temperature random ones. */
  private async continue(): Promise<void> {
    this.chosen = null;
    this.seed = Math.floor(Math.random() * 2 ** 32);
    const text = this.text.value;
    await this.show(() => this.complete(text));
  }

  private async show(work: () => Promise<void>): Promise<void> {
    this.shows = work;
    await this.again();
  }

  /** Computes what is shown, with the sliders as they are; while it runs only the last of further wishes is kept. */
  private async again(): Promise<void> {
    this.isWanted = true;
    if (this.isBusy) {
      return;
    }
    this.isBusy = true;
    while (this.isWanted && this.shows) {
      this.isWanted = false;
      await this.context.attempt(this.shows);
    }
    this.isBusy = false;
  }

  /** The window that the user chose; undefined for that of the model. */
  private get window(): number | undefined {
    const chosen = Number(this.back.value);
    return chosen < this.model.reach ? chosen : undefined;
  }

  private async score(text: string): Promise<void> {
    const { window } = this;
    const found = window === undefined ? await this.ownScore(text) : await this.model.score(text, { window });
    const whole = await this.ownScore(text);
    this.take(found.words, found.words.length);
    this.draw(this.summary(found, whole));
    this.context.announce(`Perplexity ${decimals(found.perplexity, 1)}`);
  }

  /** With the model's own window, which a change of the slider leaves as it is. */
  private async ownScore(text: string): Promise<Scored> {
    if (this.ownScored?.text !== text) {
      this.ownScored = { text, found: await this.model.score(text) };
    }
    return this.ownScored.found;
  }

  private async complete(text: string): Promise<void> {
    const temperature = Number(this.warmth.value) || undefined;
    const { window, seed } = this;
    const options = { maxWords: Number(this.most.value), temperature, beamSize: temperature ? undefined : 5 };
    const found = await this.model.complete(text, { ...options, window, seed });
    const steps = found.hypotheses[0].steps;
    const scored = await this.model.score(text, { window });
    const before = found.attention.map((attention, n) => ({
      word: found.tokens[n],
      logProb: scored.words[n]?.logProb ?? null,
      attention,
      scores: found.scores[n],
    }));
    const after = steps.map(({ piece, logProb, attention, scores = null }) => ({
      word: piece,
      logProb,
      attention,
      scores,
    }));
    this.take([...before, ...after], found.given);
    this.draw(this.continued(found));
    this.context.announce(`Continued: ${found.continuation}`);
  }

  private take(words: Word[], given: number): void {
    this.words = words;
    this.given = given;
    this.chosen = this.chosen !== null && this.chosen < words.length ? this.chosen : null;
  }

  // ---- drawing ----

  private summary(found: Scored, whole: Scored): HTMLElement[] {
    const own = `; with the model’s window of ${this.model.reach}: ${decimals(whole.perplexity, 1)}`;
    return [
      h(
        "p",
        { class: "perplexity" },
        `Perplexity of this line: ${decimals(found.perplexity, 1)}${whole === found ? "" : own}`,
      ),
      trust(found),
      h("p", { class: "muted time" }, `${Math.round(found.milliseconds)} ms`),
    ];
  }

  private continued(found: Completion): HTMLElement[] {
    const keep = () => {
      this.text.value = found.text;
      void this.read();
    };
    return [
      h("p", {}, "… ", h("strong", {}, found.continuation), " ", button("Take it over", keep, { class: "small" })),
      trust(found),
      h("p", { class: "muted time" }, `${Math.round(found.milliseconds)} ms, score ${decimals(found.score)}`),
    ];
  }

  private draw(top: HTMLElement[]): void {
    fill(
      this.result,
      h("div", { class: "answer" }, top),
      h("p", { class: "muted" }, "A fuller word was more probable. Click one to see where the model looked before it."),
      h(
        "ol",
        { class: "words" },
        this.words.map((_, n) => this.wordBar(n)),
      ),
    );
    this.drawLooks();
  }

  private wordBar(n: number): HTMLElement {
    const { word, logProb } = this.words[n];
    const share = logProb === null ? 0 : Math.max(0, 1 - logProb / LEAST);
    const element = h(
      "button",
      {
        type: "button",
        class: n >= this.given ? "added" : "",
        "aria-pressed": n === this.chosen ? "true" : "false",
        onclick: () => this.choose(n),
      },
      h("span", {}, shown(word)),
      h("small", {}, logProb === null ? "–" : percent(Math.exp(logProb))),
    );
    return h("li", {}, styled(element, { "--share": share.toFixed(3) }));
  }

  private choose(n: number): void {
    this.chosen = n === this.chosen ? null : n;
    this.result.querySelectorAll(".words button").forEach((element, at) => {
      element.setAttribute("aria-pressed", at === this.chosen ? "true" : "false");
    });
    this.drawLooks();
  }

  /** Weights by distance: of the chosen word, or the mean of all. */
  private drawLooks(): void {
    const places = this.words.map((_, n) => n).filter((n) => this.words[n].attention);
    if (!places.length) {
      fill(this.looks);
      return;
    }
    const window = this.window ?? this.model.reach;
    const n = this.chosen;
    const title =
      n === null
        ? "How far back the words look, on average"
        : `Where the model looked before “${shown(this.words[n].word)}”`;
    const own = n === null ? null : this.words[n].attention;
    const rows = own ? Array.from(own.slice(0, window)) : this.means(places, window);
    const names = rows.map((_, back) => (n === null ? "" : this.seen(n, back + 1)));
    const bars = rows.map((weight, back) =>
      h(
        "li",
        {},
        h("span", { class: "name" }, `${back + 1} back${names[back] && `: ${names[back]}`}`),
        h("meter", { min: 0, max: 1, value: weight, "aria-label": `${back + 1} back` }),
        h("span", { class: "share" }, percent(weight)),
      ),
    );
    const heads = ["Word", ...rows.map((_, back) => `${back + 1} back`)];
    const lines = places.map((at) => [
      shown(this.words[at].word),
      ...Array.from(this.words[at].attention!.slice(0, window), (x) => decimals(x, 3)),
    ]);
    fill(
      this.looks,
      panel(
        title,
        window < this.model.reach &&
          h("p", { class: "muted" }, `The attention sees ${window} of the ${this.model.reach} steps that it learnt with.`),
        h("ul", { class: "bars" }, bars),
        n !== null && this.equation(n, window),
        n !== null && computedBy(this.context, this.model.name, "zoo/models/key_value_predict_lm.py", "WindowAttention"),
      ),
      tableOf("All weights as a table", heads, lines),
    );
  }

  private means(places: readonly number[], window: number): number[] {
    const full = places.filter((n) => n > 0);
    return Array.from(
      { length: window },
      (_, back) => full.reduce((sum, n) => sum + this.words[n].attention![back], 0) / Math.max(1, full.length),
    );
  }

  /** The word so many steps before the one that was read last when a word was predicted. */
  private seen(n: number, back: number): string {
    const at = n - back - 1;
    return at >= 0 ? shown(this.words[at].word) : at === -1 ? "start" : "";
  }

  private equation(n: number, window: number): HTMLElement {
    const { logProb, word, attention, scores } = this.words[n];
    const weights = attention!.slice(0, Math.min(window, n)); // the first word has no other before it
    const places = heaviest(weights);
    const names = Array.from(weights, (_, back) => String(back + 1));
    const found = scores && { step: n + 1, position: 0, scores: scores.slice(0, weights.length), weights, names };
    const lines = found && n > 0 ? [scoreLine(found, places), ...weightLines(EVERYWHERE, found, places)] : [];
    const chance = logProb === null ? "" : `p(w_{${n + 1}} = "${shown(word)}") = ${decimals(Math.exp(logProb), 3)}`;
    return h(
      "dl",
      { class: "equations" },
      equationRow(
        "Weights",
        formula(`α_t = softmax(e_t) "  with  " e_t = w^⊤ tanh(W_Y [k_{t−${window}} … k_{t−1}] + W_h k_t)`),
        lines.map(formula),
      ),
      equationRow(
        "Context",
        formula("r_t = ∑_j α_{tj} v_{t−j}"),
        formula(`r_{${n + 1}} = ${weightedSum(weights, places, (back) => `v_{${n + 1}−${back + 1}}`)}`),
      ),
      chance && equationRow("Output", formula(chance)),
    );
  }
}

function shown(word: string): string {
  return word === "</s>" ? "end of line" : word;
}
