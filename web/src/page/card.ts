// The card of a model: its text, in a window above the page.
import { cardOf, type Entry } from "./catalogue.ts";
import { button, type Child, fill, h, scrolling } from "./dom.ts";

const SPECIAL = /^(```|#+ |\||[-*] |\d+\. | {4})/; // begins something else than a paragraph
const ITEM = /^([-*]|\d+\.) /;
const INLINE = /(!?\[[^\]]*\]\([^)\s]*\)|`[^`]+`|\*\*[^*]+\*\*)/;

/** Opens the card of a model. */
export function cardButton(entry: Entry, label: string): HTMLElement {
  return button(label, () => void open(entry), { class: "small" });
}

async function open(entry: Entry): Promise<void> {
  const text = h("div", {}, h("p", { class: "muted" }, "Reading the card …"));
  const close = button("Close", () => dialog.close(), { class: "close" });
  const dialog = h("dialog", { class: "whole-card", "aria-label": `Card of ${entry.name}` }, close, text);
  const leave = () => dialog.close();
  addEventListener("hashchange", leave); // the card is of the view that was left
  dialog.addEventListener("close", () => {
    removeEventListener("hashchange", leave);
    dialog.remove();
  });
  document.body.append(dialog);
  dialog.showModal();
  try {
    fill(text, rendered(await cardOf(entry)));
  } catch (error) {
    fill(text, h("p", { class: "error" }, error instanceof Error ? error.message : String(error)));
  }
}

/** The Markdown of our cards: headings, paragraphs, lists, tables, code. */
function rendered(markdown: string): HTMLElement[] {
  const lines = markdown.split("\n");
  const found: HTMLElement[] = [];
  const take = (isIn: (line: string) => boolean): string[] => {
    const end = lines.findIndex((line) => !isIn(line));
    return lines.splice(0, end < 0 ? lines.length : end);
  };
  while (lines.length) {
    const line = lines[0];
    if (line.startsWith("```")) {
      lines.shift();
      found.push(h("pre", scrolling("Code"), take((one) => !one.startsWith("```")).join("\n")));
      lines.shift();
    } else if (line.startsWith("    ")) {
      const code = take((one) => one.startsWith("    "));
      found.push(h("pre", scrolling("Code"), code.map((one) => one.slice(4)).join("\n")));
    } else if (line.startsWith("#")) {
      const [, marks, title] = /^(#+) *(.*)$/.exec(lines.shift()!)!;
      found.push(h(marks.length < 2 ? "h2" : "h3", {}, inline(title)));
    } else if (line.startsWith("|")) {
      found.push(table(take((one) => one.startsWith("|"))));
    } else if (ITEM.test(line)) {
      found.push(list(take((one) => ITEM.test(one) || one.startsWith("  "))));
    } else if (line.trim()) {
      found.push(h("p", {}, inline(take((one) => one.trim() !== "" && !SPECIAL.test(one)).join(" "))));
    } else {
      lines.shift();
    }
  }
  return found;
}

function list(lines: readonly string[]): HTMLElement {
  const items: string[] = [];
  for (const line of lines) {
    ITEM.test(line) ? items.push(line.replace(ITEM, "")) : items.push(`${items.pop() ?? ""} ${line.trim()}`);
  }
  return h(
    "ul",
    {},
    items.map((item) => h("li", {}, inline(item))),
  );
}

function table(lines: readonly string[]): HTMLElement {
  const rows = lines.filter((line) => !/^[|:\s-]+$/.test(line)).map(cells);
  const row = (tag: "th" | "td", values: string[]) =>
    h(
      "tr",
      {},
      values.map((value) => h(tag, {}, inline(value))),
    );
  return h(
    "div",
    scrolling("Table"),
    h("table", {}, h("thead", {}, row("th", rows[0] ?? [])), h("tbody", {}, rows.slice(1).map((one) => row("td", one)))),
  );
}

function cells(line: string): string[] {
  return line
    .replace(/^\||\|\s*$/g, "")
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim().replaceAll("\\|", "|"));
}

/** Code, bold words and links; pictures and links to files of the repository are not here, so only their words are. */
function inline(text: string): Child[] {
  return text.split(INLINE).map((part) => {
    if (part.startsWith("`")) {
      return h("code", {}, part.slice(1, -1));
    }
    if (part.startsWith("**")) {
      return h("strong", {}, part.slice(2, -2));
    }
    const link = /^(!?)\[([^\]]*)\]\(([^)\s]*)\)$/.exec(part);
    if (!link) {
      return part;
    }
    const [, isPicture, words, address] = link;
    const isOutside = /^https?:/.test(address);
    return isPicture ? "" : isOutside ? h("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, words) : words;
  });
}
