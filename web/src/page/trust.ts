// Confidence and warnings below an answer, in the words of Python's pages.
import type { Warnings } from "../engine/index.ts";
import { h } from "./dom.ts";
import { decimals } from "./numbers.ts";

export function trust({ confidence, warnings }: Warnings): HTMLElement {
  return h(
    "div",
    { class: "trust" },
    confidence !== null && h("p", { class: "muted" }, `confidence ${decimals(confidence)}`),
    warnings.map((warning) => h("p", { class: "warning" }, warning)),
  );
}
