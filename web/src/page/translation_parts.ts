// Parts of the view of translation that keep nothing.
import type { Hypothesis, Step } from "../engine/index.ts";
import { button, fill, h } from "./dom.ts";
import { label } from "./lines.ts";
import { decimals, percent } from "./numbers.ts";
import { NO_ATTENTION } from "./parts.ts";

const WITHOUT_LINES =
  "Click a word of the translation to see what else was probable there, or one of the sentence to remove or replace it.";

/** What can be done with the words, in a line. */
export function hint(takesAttention: boolean, isChosen: boolean, hasAttention: boolean): HTMLElement {
  if (!hasAttention) {
    return h("p", { class: "muted" }, `${NO_ATTENTION} ${WITHOUT_LINES}`);
  }
  const drag = takesAttention ? " Drag the end of its line, or its bars, to another word." : "";
  const start = isChosen ? "" : `Click a word of the translation to see where it looked.${drag} `;
  const old = takesAttention ? "" : " The graphs of this model take no other weights; export it again.";
  return h("p", { class: "muted" }, `${start}Click a word of the sentence to remove or replace it.${old}`);
}

/** The most probable words of a step; `force` fixes one. */
export function alternatives(step: Step, force: (token: number) => void): HTMLElement {
  return h(
    "ul",
    { class: "bars" },
    step.alternatives.map(({ token, piece, logProb }) => {
      const share = Math.exp(logProb);
      const isChosen = token === step.token;
      const pressed = isChosen ? "true" : "false";
      return h(
        "li",
        { class: isChosen ? "chosen" : "" },
        button(label(piece), () => force(token), {
          class: "word",
          title: "Continue with this word",
          "aria-pressed": pressed,
        }),
        h("meter", { min: 0, max: 1, value: share, "aria-label": label(piece) }),
        h("span", { class: "share" }, percent(share)),
      );
    }),
  );
}

/** Why the word is not the most probable one. */
export function whyNotBest(step: Step): HTMLElement | null {
  if (step.alternatives[0]?.token === step.token) {
    return null;
  }
  const why =
    `The search kept “${label(step.piece)}”, because the whole sentence scores higher with it. ` +
    "A beam of 1 takes the most probable word at once.";
  return h("p", { class: "muted" }, why);
}

export function hypothesisList(
  hypotheses: readonly Hypothesis[],
  shown: Hypothesis,
  show: (hypothesis: Hypothesis) => void,
): HTMLElement {
  const line = (one: Hypothesis) =>
    h(
      "li",
      {},
      button(one.text || "(no words)", () => show(one), { "aria-pressed": one === shown ? "true" : "false" }),
      h("span", { class: "share" }, decimals(one.score)),
    );
  return h("ol", { class: "hypotheses" }, hypotheses.map(line));
}

/** What can be done with a word of the sentence; shows `tools`, which each action hides again. */
export function fillWordTools(
  tools: HTMLElement,
  word: { text: string; isStruck: boolean },
  act: { strike(): void; replace(text: string): void },
): void {
  const name = `Replace ${word.text} by`;
  const other = h("input", { size: 12, "aria-label": name, placeholder: "another word", spellcheck: "false" });
  const close = () => (tools.hidden = true);
  const replace = (event: Event) => {
    event.preventDefault();
    if (other.value.trim()) {
      act.replace(other.value);
      close();
    }
  };
  const strike = () => {
    act.strike();
    close();
  };
  fill(
    tools,
    h("strong", {}, word.text),
    button(word.isStruck ? "Put back" : "Remove", strike),
    h("form", { onsubmit: replace }, other, h("button", {}, "Replace")),
    button("Close", close),
  );
  tools.hidden = false;
  tools.querySelector("button")!.focus({ preventScroll: true });
}
