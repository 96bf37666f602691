// A photo with its caption by one model: where each word looked, and a brush to say where it must look.
import type { Caption, Captioner, Hypothesis } from "../engine/index.ts";
import type { Context } from "./app.ts";
import { button, field, fill, h, tableOf } from "./dom.ts";
import { equations } from "./equation.ts";
import { Latest } from "./latest.ts";
import { label } from "./lines.ts";
import { changes, decimals, largest, percent, uniform } from "./numbers.ts";
import { ownLine, wordsBefore } from "./parts.ts";
import { normalised, type Photo, spot, spotlight, thumbnail } from "./spotlight.ts";
import { trust } from "./trust.ts";

const WIDTH = 720; // pixels of the large photo
const STRIP = 132; // and of those of the words
const CHANGED_PAUSE = 60; // milliseconds between two strokes that are decoded

export class Board {
  readonly element = h("section", { class: "panel board" });
  private readonly answer = h("div", { class: "answer" });
  private readonly large = h("canvas", { class: "photo", width: WIDTH, tabindex: 0, role: "application" });
  private readonly strip = h("ol", { class: "strip" });
  private readonly tools = h("div", { class: "row" });
  private readonly below = h("div", {});
  private readonly radius = h("input", { type: "range", min: 0.5, max: 4, step: 0.5, value: 1.5 });

  private readonly photos: Latest;
  private photo!: Photo;
  private thumb!: HTMLCanvasElement;
  private readonly smalls: HTMLCanvasElement[] = []; // of the words, by their number
  private own!: Caption;
  private now!: Caption;
  private chosen: number | null = null;
  private given = new Map<number, Float32Array>();
  private prefix: number[] = [];
  private stroke: Float32Array | null = null;
  private isBusy = false;
  private isWanted = false;
  private resets = 0;
  private at: [number, number];

  constructor(
    private readonly model: Captioner,
    private readonly context: Context,
    title: string,
  ) {
    this.at = [Math.floor(model.grid[0] / 2), Math.floor(model.grid[1] / 2)];
    this.photos = new Latest(context.attempt);
    fill(
      this.element,
      h("h2", {}, title),
      this.answer,
      h("div", { class: "desk" }, this.large, h("div", {}, this.tools, this.strip)),
      this.below,
    );
    this.listen();
  }

  async show(photo: Photo): Promise<void> {
    await this.photos.run(
      () => this.model.caption(photo.picture, { nBest: 1 }),
      (found) => {
        this.photo = photo;
        this.thumb = thumbnail(photo, STRIP);
        this.own = found;
        this.reset();
        this.context.announce(`Caption: ${this.own.text}`);
        this.play();
      },
    );
  }

  private reset(): void {
    this.resets += 1;
    this.isWanted = false;
    this.now = this.own;
    this.given = new Map();
    this.prefix = [];
    this.chosen = null;
    this.draw();
  }

  /** Words appear one by one, and the light follows them. */
  private play(): void {
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.element.classList.toggle("gradual", !still);
  }

  private get best(): Hypothesis {
    return this.now.hypotheses[0];
  }

  // ---- painting ----

  /** Decodes with painted weights; while it runs only the last of further strokes is kept. */
  private async decode(): Promise<void> {
    this.isWanted = true;
    if (this.isBusy) {
      return;
    }
    this.isBusy = true;
    while (this.isWanted) {
      this.isWanted = false;
      await this.context.attempt(async () => {
        const { photo, resets } = this;
        const found = await this.model.caption(photo.picture, { given: this.given, prefix: this.prefix });
        if (resets === this.resets) {
          this.now = found;
          this.element.classList.remove("gradual");
          this.chosen = this.chosen === null ? null : Math.min(this.chosen, this.best.steps.length - 1);
          this.draw();
          this.context.announce(`Now: ${found.text}`);
        }
      });
      await new Promise((resume) => setTimeout(resume, CHANGED_PAUSE));
    }
    this.isBusy = false;
  }

  private give(weights: Float32Array | null): void {
    const t = this.chosen;
    if (t === null || !this.model.takesAttention) {
      return;
    }
    const before = [...this.given].filter(([position]) => position < t);
    this.given = new Map(weights ? [...before, [t, weights]] : before);
    this.prefix = this.given.size ? this.best.steps.slice(0, t).map(({ token }) => token) : [];
    void this.decode();
  }

  private listen(): void {
    const paint = (event: PointerEvent) => {
      const cell = this.cellAt(event);
      if (!cell || !this.stroke) {
        return;
      }
      this.at = cell;
      const more = spot(this.model.grid, cell[0], cell[1], Number(this.radius.value));
      this.stroke = this.stroke.map((weight, n) => Math.max(weight, more[n]));
      this.light(this.stroke);
      this.give(normalised(this.stroke));
    };
    this.large.addEventListener("pointerdown", (event) => {
      if (this.chosen !== null && this.model.takesAttention) {
        this.large.setPointerCapture(event.pointerId);
        this.stroke = new Float32Array(this.model.grid[0] * this.model.grid[1]);
        paint(event);
      }
    });
    this.large.addEventListener("pointermove", paint);
    this.large.addEventListener("pointerup", () => (this.stroke = null));
    this.large.addEventListener("pointercancel", () => (this.stroke = null));
    this.large.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (step && this.chosen !== null) {
        event.preventDefault();
        const clamp = (x: number, most: number) => Math.min(most - 1, Math.max(0, x));
        this.at = [clamp(this.at[0] + step[0], this.model.grid[0]), clamp(this.at[1] + step[1], this.model.grid[1])];
        this.give(normalised(spot(this.model.grid, this.at[0], this.at[1], Number(this.radius.value))));
      }
    });
  }

  /** Row and column of the grid under the pointer. */
  private cellAt(event: PointerEvent): [number, number] | null {
    const box = this.large.getBoundingClientRect();
    const [left, top, width, height] = this.model.frame(this.photo.picture);
    const x = ((event.clientX - box.left) / box.width) * this.photo.canvas.width - left;
    const y = ((event.clientY - box.top) / box.height) * this.photo.canvas.height - top;
    const [rows, columns] = this.model.grid;
    const cell: [number, number] = [Math.floor((y / height) * rows), Math.floor((x / width) * columns)];
    return cell[0] >= 0 && cell[0] < rows && cell[1] >= 0 && cell[1] < columns ? cell : null;
  }

  // ---- drawing ----

  private draw(): void {
    const isOwn = this.now === this.own;
    fill(
      this.answer,
      h("p", { class: "text" }, this.now.text),
      trust(this.now),
      ownLine(!isOwn && ["The model’s own: ", wordsBefore(this.own.text, this.now.text)], () => this.reset()),
      h("p", { class: "muted time" }, `${Math.round(this.now.milliseconds)} ms, score ${decimals(this.now.score)}`),
    );
    this.drawStrip();
    this.drawTools();
    this.light(this.chosen === null ? null : this.best.steps[this.chosen].attention);
    fill(this.below, this.chosen !== null && this.numbers(this.chosen), this.places());
  }

  private places(): HTMLElement {
    const [rows, columns] = this.model.grid;
    const lines = this.best.steps.map(({ piece, attention }) => {
      const at = attention ? largest(attention) : 0;
      return [
        label(piece),
        `row ${Math.floor(at / columns) + 1}, column ${(at % columns) + 1}`,
        attention ? percent(attention[at]) : "–",
      ];
    });
    return tableOf(`Where each word looked most (grid of ${rows} × ${columns})`, ["Word", "Place", "Weight"], lines);
  }

  private numbers(t: number): HTMLElement {
    const [rows, columns] = this.model.grid;
    const names = Array.from(
      { length: rows * columns },
      (_, n) => `${Math.floor(n / columns) + 1}|${(n % columns) + 1}`,
    );
    const { about } = this.model.facts;
    return equations(this.context, this.model.name, {
      about,
      names,
      step: this.best.steps[t],
      t,
      isGiven: this.given.has(t),
    });
  }

  private light(weights: Float32Array | null): void {
    spotlight(this.large, this.photo.canvas, this.model.frame(this.photo.picture), this.model.grid, weights);
  }

  private drawStrip(): void {
    const share = this.thumb.width / this.photo.canvas.width;
    const frame = this.model.frame(this.photo.picture).map((pixels) => pixels * share);
    const { steps } = this.best;
    const changed = changes(
      this.own.hypotheses[0].steps.map(({ token }) => token),
      steps.map(({ token }) => token),
    );
    fill(
      this.strip,
      steps.map(({ piece, attention }, t) => {
        const small = (this.smalls[t] ??= h("canvas", { width: STRIP, "aria-hidden": "true" }));
        spotlight(small, this.thumb, frame, this.model.grid, attention);
        const classes = [changed.has(t) && "changed", this.given.has(t) && "given"].filter(Boolean).join(" ");
        const act = () => this.choose(t === this.chosen ? null : t);
        const word = h("span", { class: classes }, label(piece));
        const element = h(
          "button",
          { type: "button", onclick: act, "aria-pressed": t === this.chosen ? "true" : "false" },
          small,
          word,
        );
        const item = h("li", {}, element);
        item.style.setProperty("--n", String(t));
        return item;
      }),
    );
  }

  private choose(t: number | null): void {
    this.chosen = t;
    this.element.classList.remove("gradual");
    this.draw();
    this.strip.querySelectorAll("button")[t ?? 0]?.focus({ preventScroll: true });
  }

  private drawTools(): void {
    const t = this.chosen;
    this.large.classList.toggle("paintable", t !== null && this.model.takesAttention);
    if (t === null) {
      const more = this.model.takesAttention ? ", and to paint where it must look" : "";
      this.large.setAttribute("aria-label", "The photo");
      fill(this.tools, h("p", { class: "muted" }, `Pick a word to see where it looked${more}.`));
      return;
    }
    const word = label(this.best.steps[t].piece);
    this.large.setAttribute("aria-label", `Where “${word}” looks: arrow keys move it`);
    if (!this.model.takesAttention) {
      fill(this.tools, h("p", { class: "muted" }, "The graphs of this model take no other weights; export it again."));
      return;
    }
    fill(
      this.tools,
      h(
        "p",
        { class: "muted" },
        `Paint on the photo where “${word}” must look, or move the light with the arrow keys.`,
      ),
      field("Brush", this.radius),
      button("Everywhere", () => this.give(uniform(this.model.grid[0] * this.model.grid[1]))),
      button("The model’s own", () => this.give(null)),
    );
  }
}
