// Reading: the missing word of a query, found by the attention of document and query on each other.
import type { Reader, Reading } from "../engine/index.ts";
import type { Context } from "./app.ts";
import { computedBy } from "./code.ts";
import { button, equationRow, field, fill, h, panel, scrolling, styled, tableOf } from "./dom.ts";
import { STORIES } from "./examples.ts";
import { formula } from "./formula.ts";
import { heatmap } from "./heatmap.ts";
import { Latest } from "./latest.ts";
import { decimals, percent, sum, top } from "./numbers.ts";
import { exampleButtons } from "./parts.ts";
import { trust } from "./trust.ts";

const CONTEXTS =
  "c and q are vectors of what stands around a word of the document and around XXXXX, e is that of the word itself, u is 1 for a word unknown to the model.";
const MOST = 28; // words of the document in the drawn matrix
const MOST_CANDIDATES = 8;
const CODE = ["zoo/models/attention_over_attention.py", "attend_both_ways"] as const;

export function readingView(model: Reader, context: Context): HTMLElement {
  const desk = new Desk(model, context);
  void desk.answer();
  return desk.element;
}

class Desk {
  readonly element = h("div", { class: "view reading" });
  private readonly document = h("textarea", { rows: 4, maxlength: 20000, spellcheck: "false", id: "document" });
  private readonly query = h("textarea", { rows: 2, maxlength: 2000, spellcheck: "false", id: "query" });
  private readonly candidates = h("input", { size: 34, spellcheck: "false" });
  private readonly result = h("div", {});
  private chosen: string | null = null; // a candidate
  private readonly latest: Latest;

  constructor(
    private readonly model: Reader,
    private readonly context: Context,
  ) {
    this.latest = new Latest(context.attempt);
    this.take(0);
    const submit = (event: Event) => {
      event.preventDefault();
      void this.answer();
    };
    fill(
      this.element,
      h(
        "form",
        { class: "panel ask", onsubmit: submit },
        h("label", { for: "document" }, "Document"),
        this.document,
        h("label", { for: "query" }, "Sentence with XXXXX in place of the missing word"),
        this.query,
        h(
          "div",
          { class: "row" },
          h("button", { class: "main" }, "Find the word"),
          field("Candidates, or nothing", this.candidates),
        ),
        exampleButtons(
          STORIES.map(({ query }) => query),
          (query) => {
            this.take(STORIES.findIndex((story) => story.query === query));
            void this.answer();
          },
        ),
      ),
      this.result,
    );
  }

  private take(story: number): void {
    this.document.value = STORIES[story].document;
    this.query.value = STORIES[story].query;
    this.candidates.value = STORIES[story].candidates;
  }

  async answer(): Promise<void> {
    const words = this.candidates.value.split(/[\s,]+/).filter(Boolean);
    const find = () => this.model.answer(this.document.value, this.query.value, words.length ? words : null);
    await this.latest.run(find, (found) => {
      this.chosen = found.answer;
      this.draw(found);
      this.context.announce(`Answer: ${found.answer}`);
    });
  }

  // ---- drawing ----

  private draw(found: Reading): void {
    fill(
      this.result,
      h(
        "section",
        { class: "panel answer" },
        h("p", { class: "text" }, found.answer),
        trust(found),
        this.bars(found),
        h("p", { class: "muted time" }, `${Math.round(found.milliseconds)} ms`),
      ),
      panel(
        "Where it looked in the document",
        h(
          "p",
          { class: "muted" },
          `The weights of all places of a word add up to its probability. Framed: “${this.chosen}”.`,
        ),
        h(
          "p",
          { class: "shades" },
          found.document.map((word, n) => this.shaded(word, found.weights[n], Math.max(...found.weights))),
        ),
        found.queryWeights && h("h2", {}, "Where it looked in the query"),
        found.queryWeights &&
          h(
            "p",
            { class: "shades" },
            found.query.map((word, n) => this.shaded(word, found.queryWeights![n], Math.max(...found.queryWeights!))),
          ),
      ),
      this.matrix(found),
      this.equation(found),
      tableOf(
        "All weights as a table",
        ["Word", "Weight"],
        found.document.map((word, n) => [word, decimals(found.weights[n], 4)]),
      ),
    );
  }

  private bars(found: Reading): HTMLElement {
    const shares = found.probabilities.map(({ probability }) => probability);
    return h(
      "ul",
      { class: "bars labels" },
      top(shares, MOST_CANDIDATES).map((n) => {
        const { word, probability } = found.probabilities[n];
        const choose = () => {
          this.chosen = word;
          this.draw(found);
        };
        return h(
          "li",
          { class: word === found.answer ? "chosen" : "" },
          button(word, choose, { class: "word", "aria-pressed": word === this.chosen ? "true" : "false" }),
          h("meter", { min: 0, max: 1, value: probability, "aria-label": word }),
          h("span", { class: "share" }, percent(probability)),
        );
      }),
    );
  }

  private shaded(word: string, weight: number, highest: number): (HTMLElement | string)[] {
    const element = h(
      "span",
      { class: `shaded${word === this.chosen ? " framed" : ""}`, title: percent(weight) },
      word,
    );
    return [styled(element, { "--weight": (weight / highest).toFixed(3) }), " "];
  }

  /** The share of each query word in the weight of each document word: columns add up to the document's weights. */
  private matrix({ overDocument, queryWeights, weights, document, query }: Reading): HTMLElement | null {
    if (!overDocument || !queryWeights) {
      return null;
    }
    const shown = top(weights, MOST).sort((one, other) => one - other);
    const rows = query.map((_, l) =>
      Float32Array.from(shown, (d) => overDocument[d * query.length + l] * queryWeights[l]),
    );
    const sums = Float32Array.from(shown, (_, n) => sum(rows.map((row) => row[n])));
    const names = shown.map((d) => document[d]);
    const title =
      "Two-way attention: rows are words of the query, columns words of the document, the last row their sums";
    return panel(
      "Attention over attention",
      h(
        "p",
        { class: "muted" },
        "Each cell is what a word of the query contributes to the weight of a word of the document: its weight on ",
        "that word times its own importance. The last row has the sums.",
        this.model.reRanking && " A look at what stands around each word changes these weights before they count: see below.",
        shown.length < document.length && ` The ${shown.length} words with the largest weights are shown.`,
      ),
      h(
        "div",
        scrolling(title),
        heatmap([...query, "sum"], names, [...rows, sums], title, true),
      ),
    );
  }

  /** How the contexts c of the document's words and q of the blank change the weights. */
  private reRanked(): Element[] {
    const { context_share: share, expectation_weight: expected, unknown_weight: unknown } = this.model.reRanking!;
    const [other, sign] = [decimals(1 - share, 2), unknown < 0 ? "−" : "+"];
    return [
      `{s′}_d ∝ ( ${other} s_d + ${decimals(share, 2)} a_d ) exp( ${decimals(expected, 3)} e_d^⊤ q ${sign} ${decimals(Math.abs(unknown), 3)} u_d )`,
      "a_d = softmax_d( 15 cos( c_d, q ) )",
    ].map(formula);
  }

  private equation({ document, weights, queryWeights }: Reading): HTMLElement {
    const places = document.map((_, n) => n).filter((n) => document[n] === this.chosen);
    const shown = top(
      places.map((n) => weights[n]),
      4,
    ).map((n) => places[n]);
    const total = sum(places.map((n) => weights[n]));
    const terms = shown.map((n) => decimals(weights[n], 3)).join(" + ");
    const rest = places.length > shown.length ? " + …" : "";
    const scores = queryWeights
      ? ["M_{dl} = h_d^⊤ q_l", "α_{dl} = softmax_d(M_{dl})", "β_{dl} = softmax_l(M_{dl})"].map(formula)
      : [formula("α_d = softmax_d(h_d^⊤ q)")];
    const name = `"${(this.chosen ?? "").replaceAll('"', "”")}"`;
    return panel(
      "In numbers",
      h(
        "dl",
        { class: "equations" },
        equationRow("Both ways", scores),
        queryWeights &&
          equationRow("Weights", formula("s_d = ∑_l α_{dl} {β̄}_l"), formula(`{β̄}_l = frac{1}{${document.length}} ∑_d β_{dl}`)),
        this.model.reRanking && equationRow("Re-ranked", this.reRanked(), h("p", { class: "muted" }, CONTEXTS)),
        equationRow("Sum", formula(`P(${name}) = ${terms}${rest} = ${decimals(total, 3)}`)),
      ),
      computedBy(this.context, this.model.name, ...CODE),
    );
  }
}
