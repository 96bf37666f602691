// Parts that several views have.
import { button, h, type Child } from "./dom.ts";
import { changes, decimals, measuresOf, percent, type Rows } from "./numbers.ts";

export const NO_ATTENTION =
  "This model has no attention: its decoder knows the sentence only as the encoder’s last state. " +
  "So there are no lines and no entropy.";

const COMPOSING = 229; // the code that Safari gives a key which an input method has taken

/** A form with one text and examples for it. */
export function sentenceForm(
  text: HTMLTextAreaElement,
  label: string,
  verb: string,
  examples: readonly string[],
  act: () => void,
  ...more: Child[]
): HTMLElement {
  text.id = "text";
  text.addEventListener("keydown", (event) => {
    const isComposing = event.isComposing || event.keyCode === COMPOSING; // the key confirms a word of an input method
    if (event.key === "Enter" && !event.shiftKey && !isComposing) {
      event.preventDefault();
      act();
    }
  });
  const submit = (event: Event) => {
    event.preventDefault();
    act();
  };
  return h(
    "form",
    { class: "panel ask", onsubmit: submit },
    h("label", { for: "text" }, label),
    text,
    h("div", { class: "row" }, h("button", { class: "main" }, verb), ...more),
    exampleButtons(examples, (example) => {
      text.value = example;
      act();
    }),
  );
}

export function exampleButtons(examples: readonly string[], choose: (example: string) => void): HTMLElement {
  return h(
    "p",
    { class: "examples" },
    "Examples: ",
    examples.map((example) => {
      const shown = example.length > 60 ? `${example.slice(0, 58).trimEnd()} …` : example;
      return button(shown, () => choose(example), { class: "example" });
    }),
  );
}

/** Entropy and diagonal share of a map. */
export function measuresLine(rows: Rows): HTMLElement | null {
  const found = measuresOf(rows);
  if (!found) {
    return null;
  }
  const item = (name: string, value: string, more: string, title: string) =>
    h(
      "div",
      { title },
      h("dt", {}, name),
      h("dd", {}, h("strong", {}, value), " ", h("span", { class: "muted" }, more)),
    );
  return h(
    "dl",
    { class: "measures" },
    item(
      "Entropy",
      `${decimals(found.entropy)} nats`,
      `${percent(found.relativeEntropy)} of uniform weights`,
      "Mean over the words: 0 if each looks at one place only",
    ),
    item(
      "Near the diagonal",
      percent(found.diagonal),
      `uniform weights: ${percent(found.uniformDiagonal)}`,
      "Share of the weight within a tenth of the sentence around the same relative place, as in zoo compare",
    ),
  );
}

/** What the answer was before a change, with a button; without a change an empty line, so that nothing moves. */
export function ownLine(words: Child[] | false, reset: () => void): HTMLElement {
  return h("p", { class: "own" }, words || "\u00a0", words && " ", words && button("Reset", reset, { class: "small" }));
}

/** The words of an answer before a change; those that are gone are struck out. */
export function wordsBefore(before: string, now: string): Child[] {
  const words = before.split(" ");
  const gone = changes(now.split(" "), words);
  return words.map((word, n) => [gone.has(n) ? h("del", {}, word) : word, " "]);
}
