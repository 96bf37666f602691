// Source and target tokens with lines of attention between them. The lines follow the pointer; the end of the chosen
// word's line can be dragged, or moved with the arrow keys, to another source word.
import { fill, h, styled, svg } from "./dom.ts";
import { largest, percent, type Rows } from "./numbers.ts";

export interface Drawn {
  source: readonly string[];
  target: readonly string[];
  attention: Rows;
  /** Target position whose weights are shown below; null if none is. */
  chosen: number | null;
  /** Target positions with weights from the user, and those whose words differ from the model's own. */
  given: ReadonlySet<number>;
  changed: ReadonlySet<number>;
  struck: ReadonlySet<number>;
  /** Whether lines can be dragged. */
  movable: boolean;
}

export interface Handlers {
  onTarget(position: number): void;
  onSource(position: number): void;
  /** All attention of a target position goes to one source position. */
  onMove(position: number, source: number): void;
}

const THINNEST = 0.03; // weights below have no line
const THICKEST = 9; // pixels
const AWAY = 10; // pixels from a token to the handle of its line

export class Lines {
  readonly element = h("div", { class: "lines" });
  private readonly sources = h("ol", { class: "tokens source", "aria-label": "Source words" });
  private readonly targets = h("ol", { class: "tokens target", "aria-label": "Words of the translation" });
  private readonly canvas = svg("svg", { "aria-hidden": "true", class: "wires" });
  private readonly handle = h("button", { type: "button", role: "slider", class: "handle", hidden: true });
  private drawn: Drawn | null = null;
  private pointed: { side: "source" | "target"; position: number } | null = null;

  constructor(private readonly handlers: Handlers) {
    fill(this.element, this.canvas, this.sources, this.targets, this.handle);
    new ResizeObserver(() => this.arrange()).observe(this.element);
    this.listenToHandle();
  }

  /** Shows a translation; new words appear one by one if `gradually`. */
  show(drawn: Drawn, gradually = false): void {
    this.drawn = drawn;
    this.element.classList.toggle("gradual", gradually);
    this.fillTokens();
    this.arrange();
  }

  focusHandle(): void {
    this.handle.focus();
  }

  private fillTokens(): void {
    const { source, target, chosen, given, changed, struck } = this.drawn!;
    const focused = document.activeElement;
    const place = [this.sources, this.targets].map((list) =>
      Array.from(list.children).findIndex((x) => x.contains(focused)),
    );
    fill(
      this.sources,
      source.map((token, n) => {
        const classes = struck.has(n) ? "struck" : "";
        const name = struck.has(n) ? `${label(token)}, removed` : label(token);
        return this.token(token, n, "source", { class: classes, "aria-label": name, title: "Remove or replace" });
      }),
    );
    fill(
      this.targets,
      target.map((token, n) => {
        const classes = [given.has(n) && "given", changed.has(n) && "changed"].filter(Boolean).join(" ");
        const name = `${label(token)}${given.has(n) ? ", attention given" : ""}${changed.has(n) ? ", changed" : ""}`;
        return this.token(token, n, "target", {
          class: classes,
          "aria-label": name,
          "aria-pressed": n === chosen ? "true" : "false",
        });
      }),
    );
    [this.sources, this.targets].forEach((list, n) => {
      if (place[n] >= 0) {
        list.children[Math.min(place[n], list.children.length - 1)]
          ?.querySelector("button")
          ?.focus({ preventScroll: true });
      }
    });
  }

  private token(token: string, n: number, side: "source" | "target", attributes: Record<string, string>): HTMLElement {
    const act = () => (side === "source" ? this.handlers.onSource(n) : this.handlers.onTarget(n));
    const point = (to: number | null) => {
      this.pointed = to === null ? null : { side, position: to };
      this.light();
    };
    const element = h(
      "button",
      {
        type: "button",
        ...attributes,
        onclick: act,
        onpointerenter: () => point(n),
        onpointerleave: () => point(null),
        onfocus: () => point(n),
        onblur: () => point(null),
      },
      label(token),
    );
    return styled(h("li", {}, element), { "--n": n });
  }

  /** Rows one above the other where they fit, else two columns; then the lines. */
  private arrange(): void {
    if (!this.drawn || !this.element.isConnected) {
      return;
    }
    this.element.classList.remove("columns");
    const fits = [this.sources, this.targets].every((list) => list.scrollWidth <= this.element.clientWidth);
    this.element.classList.toggle("columns", !fits);
    this.draw();
  }

  private draw(): void {
    const { attention } = this.drawn!;
    const { width, height } = this.element.getBoundingClientRect();
    this.canvas.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const from = this.anchors(this.sources, "source");
    const to = this.anchors(this.targets, "target");
    const isTall = this.element.classList.contains("columns");
    fill(
      this.canvas,
      attention.map((row, t) =>
        Array.from(row ?? [], (weight, s) => {
          if (weight < THINNEST || !from[s] || !to[t]) {
            return null;
          }
          const line = svg("path", { d: curve(from[s], to[t], isTall), "data-s": s, "data-t": t });
          return styled(line, { "--weight": weight, "--width": `${Math.max(1, weight * THICKEST)}px`, "--n": t });
        }),
      ),
    );
    this.placeHandle(from);
    this.light();
  }

  /** The points where lines meet the tokens, relative to the drawing. */
  private anchors(list: HTMLElement, side: "source" | "target"): { x: number; y: number }[] {
    const box = this.element.getBoundingClientRect();
    const isTall = this.element.classList.contains("columns");
    return Array.from(list.querySelectorAll("button"), (token) => {
      const own = token.getBoundingClientRect();
      const [left, top] = [own.left - box.left, own.top - box.top];
      if (isTall) {
        return { x: side === "source" ? left + own.width : left, y: top + own.height / 2 };
      }
      return { x: left + own.width / 2, y: side === "source" ? top + own.height : top };
    });
  }

  /** The pointed token's lines stand out, or else the chosen one's; the shade of the source words is their weight. */
  private light(): void {
    const { chosen, attention } = this.drawn!;
    const spot = this.pointed ?? (chosen === null ? null : { side: "target" as const, position: chosen });
    const key = spot?.side === "source" ? "s" : "t";
    this.canvas.querySelectorAll<SVGPathElement>("path").forEach((line) => {
      line.classList.toggle("faint", spot !== null && Number(line.dataset[key]) !== spot.position);
      line.classList.toggle("mine", this.drawn!.given.has(Number(line.dataset.t)));
    });
    const weightOf = (side: "source" | "target", n: number) =>
      spot && spot.side !== side
        ? (attention[side === "source" ? spot.position : n]?.[side === "source" ? n : spot.position] ?? 0)
        : 0;
    this.element.classList.toggle("amber", spot?.side === "target" && this.drawn!.given.has(spot.position));
    for (const [list, side] of [
      [this.sources, "source"],
      [this.targets, "target"],
    ] as const) {
      list
        .querySelectorAll("button")
        .forEach((token, n) => styled(token, { "--weight": weightOf(side, n).toFixed(3) }));
    }
  }

  // ---- the handle ----

  private placeHandle(from: readonly { x: number; y: number }[]): void {
    const { chosen, movable, attention, source } = this.drawn!;
    const row = chosen === null ? null : attention[chosen];
    this.handle.hidden = !movable || !row;
    if (!row || this.handle.hidden) {
      return;
    }
    const at = largest(row);
    const isTall = this.element.classList.contains("columns");
    const [x, y] = isTall ? [from[at].x + AWAY, from[at].y] : [from[at].x, from[at].y + AWAY];
    styled(this.handle, { left: `${x}px`, top: `${y}px` });
    const attributes = {
      "aria-label": `Where “${label(this.drawn!.target[chosen!])}” looks: arrow keys move it`,
      "aria-valuemin": "1",
      "aria-valuemax": String(row.length),
      "aria-valuenow": String(at + 1),
      "aria-valuetext": `${label(source[at])}, ${percent(row[at])}`,
    };
    Object.entries(attributes).forEach(([name, value]) => this.handle.setAttribute(name, value));
  }

  private listenToHandle(): void {
    this.handle.addEventListener("keydown", (event) => {
      const { chosen, attention } = this.drawn!;
      const row = chosen === null ? null : attention[chosen];
      const step = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
      if (row && step) {
        event.preventDefault();
        this.handlers.onMove(chosen!, this.nextSource(largest(row), step));
      }
    });
    this.handle.addEventListener("pointerdown", (event) => {
      this.handle.setPointerCapture(event.pointerId);
      event.preventDefault();
      this.handle.focus();
    });
    this.handle.addEventListener("pointermove", (event) => {
      const { chosen, attention } = this.drawn!;
      if (!this.handle.hasPointerCapture(event.pointerId) || chosen === null) {
        return;
      }
      const to = this.nearestSource(event.clientX, event.clientY);
      if ((attention[chosen]?.[to] ?? 1) < 1) {
        this.handlers.onMove(chosen, to);
      }
    });
  }

  /** The next position in a direction whose word is not struck; at an end the same one. */
  private nextSource(from: number, step: number): number {
    const { source, struck } = this.drawn!;
    let to = from + step;
    while (struck.has(to)) {
      to += step;
    }
    return to >= 0 && to < source.length ? to : from;
  }

  private nearestSource(x: number, y: number): number {
    const distances = Array.from(this.sources.querySelectorAll("button"), (token, n) => {
      if (this.drawn!.struck.has(n)) {
        return Infinity;
      }
      const { left, right, top, bottom } = token.getBoundingClientRect();
      return Math.hypot(Math.max(left - x, 0, x - right), Math.max(top - y, 0, y - bottom));
    });
    return distances.indexOf(Math.min(...distances));
  }
}

/** A token as people read it. */
export function label(token: string): string {
  if (token === "</s>") {
    return "end";
  }
  return token === "▁" ? "␣" : token.replaceAll("▁", "");
}

function curve(from: { x: number; y: number }, to: { x: number; y: number }, isTall: boolean): string {
  const middle = isTall ? (from.x + to.x) / 2 : (from.y + to.y) / 2;
  const bend = isTall ? `${middle} ${from.y} ${middle} ${to.y}` : `${from.x} ${middle} ${to.x} ${middle}`;
  return `M${from.x} ${from.y}C${bend} ${to.x} ${to.y}`;
}
