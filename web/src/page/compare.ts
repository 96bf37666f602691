// The same sentence by up to four translators, each with its map.
import type { Translation, Translator } from "../engine/index.ts";
import { type Context, lineOf } from "./app.ts";
import { type Entry, isOwn } from "./catalogue.ts";
import { fill, h, panel, scrolling } from "./dom.ts";
import { HeadChoice } from "./heads.ts";
import { heatmap } from "./heatmap.ts";
import { mechanismOf } from "./mechanisms.ts";
import { measuresLine, NO_ATTENTION } from "./parts.ts";
import { trust } from "./trust.ts";

const MOST = 4;

/** A section that shows what other translators of the same languages make of a sentence. */
export function comparison(context: Context): { element: HTMLElement; show(text: string): void } {
  const kind = (entry: Entry) => `${entry.languages.join()} ${entry.name.split(".")[1]?.split("_")[0]}`;
  // Of what languages a model of the user is, is not known.
  const suits = (one: Entry) => isOwn(one) || isOwn(context.entry) || kind(one) === kind(context.entry);
  const others = context.catalogue.models.filter(
    (one) => one.task === context.entry.task && one !== context.entry && suits(one),
  );
  const results = h("div", { class: "side-by-side" });
  const chosen = new Set<Entry>();
  let text = "";
  let turn = 0;

  const answered = async (entry: Entry) => {
    const model = (await context.load(entry)) as Translator;
    return column(entry, model, await model.translate(text, { splitSentences: false }));
  };
  const run = async () => {
    const mine = (turn += 1);
    boxes.forEach((box, n) => (box.disabled = chosen.size >= MOST - 1 && !chosen.has(others[n])));
    fill(results);
    const shown = chosen.size && text ? [context.entry, ...chosen] : [];
    for (const entry of shown) {
      await context.attempt(async () => {
        const found = await answered(entry).catch((error) => failed(entry, error));
        if (mine === turn) {
          results.append(found);
        }
      });
    }
  };
  const boxes = others.map((entry) =>
    h("input", {
      type: "checkbox",
      onchange: (event: Event) => {
        (event.target as HTMLInputElement).checked ? chosen.add(entry) : chosen.delete(entry);
        void run();
      },
    }),
  );
  const labels = others.map((entry, n) => h("label", { class: "chip" }, boxes[n], entry.name.split(".")[0]));
  const element = panel(
    "Side by side",
    h("p", { class: "muted" }, "Other models of this folder on the same sentence, up to three."),
    h("div", { class: "chips" }, labels),
    results,
  );
  element.hidden = !others.length;
  return {
    element,
    show: (sentence) => {
      text = sentence;
      void run();
    },
  };
}

/** In place of the column of a model that does not answer, so that the others do not hide why. */
function failed(entry: Entry, error: unknown): HTMLElement {
  return h("article", {}, h("h3", {}, entry.name.split(".")[0]), h("p", { class: "error" }, lineOf(error)));
}

function column(entry: Entry, model: Translator, found: Translation): HTMLElement {
  const steps = found.hypotheses[0]?.steps ?? [];
  const words = steps.map(({ piece }) => piece);
  const title = `Attention of ${entry.name}: rows are words of the translation, columns those of the sentence`;
  const map = h("div", {});
  const draw = () => {
    const rows = heads.rows(steps);
    if (!rows.some((row) => row)) {
      fill(map, steps.length > 0 && h("p", { class: "muted" }, NO_ATTENTION));
      return;
    }
    const drawing = heatmap(words, found.source, rows, title);
    fill(
      map,
      h("div", scrolling(title), drawing),
      measuresLine(rows),
    );
  };
  const heads = new HeadChoice(draw);
  heads.offer(model.config, steps);
  draw();
  return h(
    "article",
    {},
    h("h3", {}, entry.name.split(".")[0]),
    h("p", { class: "muted" }, mechanismOf(model.facts.about)?.name ?? "no attention"),
    h("p", { class: "text", lang: entry.languages.at(-1) }, found.text),
    trust(found),
    heads.element,
    map,
    h("p", { class: "muted time" }, `${Math.round(found.milliseconds)} ms`),
  );
}
