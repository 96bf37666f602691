// A map of weights: rows and columns with labels, darker for more.
import { styled, svg } from "./dom.ts";
import { label } from "./lines.ts";
import { largest, percent, type Rows } from "./numbers.ts";

const CELL = 20;
const ROOM = 7.4; // pixels of a letter in a label, in a wide font
const LONGEST = 12; // letters of a label

/** A drawing of rows of weights; with `sums` the last row has sums, and its own shades. */
export function heatmap(
  rowNames: readonly string[],
  columnNames: readonly string[],
  rows: Rows,
  title: string,
  sums = false,
): SVGSVGElement {
  const names = [rowNames, columnNames].map((list) => list.map((name) => shortened(label(name))));
  const [left, above] = names.map((list) => Math.max(...list.map((name) => name.length), 1) * ROOM + 8);
  const width = left + columnNames.length * CELL + 12;
  const height = above + rowNames.length * CELL + 2;
  const most = rows.map((row) => (row ? row[largest(row)] : 0));
  const last = sums ? most.pop()! : 0;
  const highest = Math.max(1e-9, ...most);
  const scale = rows.map((_, t) => (sums && t === rows.length - 1 ? last : highest));
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width, height, class: "heatmap", role: "img", "aria-label": title },
    names[1].map((name, n) => {
      const x = left + n * CELL + CELL / 2 + 4;
      return svg("text", { transform: `translate(${x} ${above - 5}) rotate(-90)` }, name);
    }),
    names[0].map((name, n) => svg("text", { x: left - 6, y: above + n * CELL + CELL / 2 + 4, class: "row" }, name)),
    rows.map((row, t) =>
      Array.from(row ?? [], (weight, s) => {
        const cell = svg(
          "rect",
          { x: left + s * CELL, y: above + t * CELL, width: CELL - 1, height: CELL - 1, rx: 2 },
          svg("title", {}, `${label(rowNames[t])} – ${label(columnNames[s])}: ${percent(weight)}`),
        );
        return styled(cell, { "--weight": weight / scale[t] });
      }),
    ),
  );
}

function shortened(name: string): string {
  return name.length > LONGEST ? `${name.slice(0, LONGEST - 1)}…` : name;
}
