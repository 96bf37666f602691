// What computed an equation: the part of the repository, its line, its text, and the model's card.
import { type Context, source } from "./app.ts";
import { cardButton } from "./card.ts";
import { isOwn } from "./catalogue.ts";
import { h, scrolling } from "./dom.ts";

/** Names `symbol`, a part of `file` in models/index.json, which has the code as it is where the page was made. */
export function computedBy(context: Context, name: string, file: string, symbol: string, letters = ""): HTMLElement {
  const found = context.catalogue.code?.[`${file}:${symbol}`];
  const entry = context.catalogue.models.find((one) => one.name === name && !isOwn(one));
  const line = found ? `, line ${found.line}` : "";
  return h(
    "div",
    {},
    h(
      "p",
      { class: "muted computed" },
      letters && `${letters}. `,
      "Computed by ",
      source(context.catalogue, file, file, found?.line),
      line,
      ": ",
      h("code", {}, symbol),
      ". ",
      entry && cardButton(entry, "The model’s card"),
    ),
    found &&
      h(
        "details",
        { class: "excerpt" },
        h("summary", {}, "The code"),
        h(
          "pre",
          scrolling(`${file}${line}`),
          found.text.split("\n").map((text, n) => [h("span", { class: "line" }, found.line + n), text, "\n"]),
        ),
      ),
  );
}
