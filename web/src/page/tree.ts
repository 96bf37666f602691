// The search tree: candidates of each step, left to right; finished ones can be picked.
import type { BeamNode } from "../engine/index.ts";
import { h, scrolling, svg } from "./dom.ts";
import { label } from "./lines.ts";
import { decimals } from "./numbers.ts";

const ACROSS = 92; // pixels from one step to the next
const DOWN = 26; // and from one candidate to the next

interface Spot {
  x: number;
  y: number;
}

/** Draws a tree; `picked` are the tokens of the shown hypothesis, and `pick` gets those of another. */
export function searchTree(
  tree: readonly BeamNode[],
  picked: readonly number[],
  pick: (tokens: number[]) => void,
): HTMLElement {
  const shown = tree.map((node, n) => ({ node, n })).filter(({ node }) => node.state !== "dropped");
  const spots = placed(shown);
  const path = new Set(nodesOf(tree, picked));
  const width = (Math.max(0, ...shown.map(({ node }) => node.step)) + 1) * ACROSS + 20;
  const height = Math.max(0, ...[...spots.values()].map(({ y }) => y)) + DOWN;
  const drawing = svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width, height, class: "tree", role: "group", "aria-label": "Search tree" },
    shown.map(({ node, n }) => edge(spots, node, n, path.has(n))),
    shown.map(({ node, n }) => drawnNode(node, spots.get(n)!, path.has(n), () => pick(tokensOf(tree, n)))),
  );
  const dropped = tree.length - shown.length;
  return h(
    "div",
    {},
    h(
      "p",
      { class: "muted" },
      `${tree.length} candidates, of which ${dropped} were dropped at once and are not drawn. `,
      "Finished ones have a frame: pick one.",
    ),
    h("div", scrolling("Search tree"), drawing),
  );
}

/** Candidates of a step from the best down; finished ones too. */
function placed(shown: readonly { node: BeamNode; n: number }[]): Map<number, Spot> {
  const rows: number[] = [];
  const spots = new Map<number, Spot>();
  for (const { node, n } of shown) {
    const row = rows[node.step] ?? 0;
    rows[node.step] = row + 1;
    spots.set(n, { x: node.step * ACROSS + 6, y: row * DOWN + DOWN / 2 });
  }
  return spots;
}

function edge(spots: Map<number, Spot>, node: BeamNode, n: number, isPicked: boolean): SVGElement | null {
  const from = node.parent === null ? undefined : spots.get(node.parent);
  const to = spots.get(n)!;
  if (!from) {
    return null;
  }
  const start = from.x + ACROSS - 24;
  const middle = (start + to.x) / 2;
  const d = `M${start} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${to.x - 2} ${to.y}`;
  return svg("path", { d, class: isPicked ? "picked" : "" });
}

function drawnNode(node: BeamNode, { x, y }: Spot, isPicked: boolean, act: () => void): SVGElement {
  const ended = node.state === "ended";
  const classes = [ended ? "ended" : "kept", isPicked && "picked"].filter(Boolean).join(" ");
  const word = label(node.piece);
  const text = word.length > 9 ? `${word.slice(0, 8)}…` : word;
  const says = `${word}, log-probability ${decimals(node.logProb)}, sum ${decimals(node.total)}`;
  const listening = ended && {
    tabindex: 0,
    role: "button",
    "aria-label": `Pick the hypothesis that ends here: ${says}`,
    onclick: act,
    onkeydown: (event: KeyboardEvent) => ["Enter", " "].includes(event.key) && (event.preventDefault(), act()),
  };
  return svg(
    "g",
    { class: classes, transform: `translate(${x} ${y})`, ...listening },
    svg("title", {}, says),
    svg("rect", { x: -2, y: -DOWN / 2 + 3, width: ACROSS - 22, height: DOWN - 6, rx: 5 }),
    svg("text", { x: 4, y: 4.5 }, text),
  );
}

function tokensOf(tree: readonly BeamNode[], n: number): number[] {
  const tokens: number[] = [];
  for (let at: number | null = n; at !== null; at = tree[at].parent) {
    tokens.unshift(tree[at].token);
  }
  return tokens;
}

/** The nodes of a hypothesis. */
function nodesOf(tree: readonly BeamNode[], tokens: readonly number[]): number[] {
  const found: number[] = [];
  for (const [step, token] of tokens.entries()) {
    const parent = step ? found[step - 1] : null;
    const n = tree.findIndex((node) => node.step === step && node.token === token && node.parent === parent);
    if (n < 0) {
      break;
    }
    found.push(n);
  }
  return found;
}
