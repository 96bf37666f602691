// Elements of the page, made by code: HTML, SVG and MathML.
const SVG = "http://www.w3.org/2000/svg";
const MATHML = "http://www.w3.org/1998/Math/MathML";

export type Child = Node | string | number | null | undefined | false | Child[];

/** Attributes; a function listens to the event of its name, e.g. `onclick`, and true gives an empty attribute. */
export type Attributes = Record<string, string | number | boolean | null | undefined | ((event: any) => void)>;

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  return filled(document.createElement(tag), attributes, children);
}

export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  return filled(document.createElementNS(SVG, tag) as SVGElementTagNameMap[K], attributes, children);
}

export function math(tag: string, attributes: Attributes = {}, ...children: Child[]): Element {
  return filled(document.createElementNS(MATHML, tag), attributes, children);
}

function filled<E extends Element>(element: E, attributes: Attributes, children: Child[]): E {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      element.addEventListener(name.slice(2), value);
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  append(element, children);
  return element;
}

function append(parent: Element, children: Child[]): void {
  for (const child of children) {
    if (Array.isArray(child)) {
      append(parent, child);
    } else if (child !== null && child !== undefined && child !== false) {
      parent.append(child instanceof Node ? child : String(child));
    }
  }
}

/** Replaces what is in an element. */
export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  append(element, children);
}

/** Sets custom properties of CSS; style attributes are forbidden by the page's own policy. */
export function styled<E extends HTMLElement | SVGElement>(element: E, properties: Record<string, string | number>): E {
  for (const [name, value] of Object.entries(properties)) {
    element.style.setProperty(name, String(value));
  }
  return element;
}

export function button(label: string, act: () => void, attributes: Attributes = {}): HTMLButtonElement {
  return h("button", { type: "button", onclick: act, ...attributes }, label);
}

/** A label and its field, one below the other. */
export function field(label: string, control: HTMLElement): HTMLLabelElement {
  return h("label", { class: "field" }, h("span", {}, label), control);
}

/** A drawing's numbers as a table, folded away. */
export function tableOf(title: string, heads: string[], rows: (string | number)[][]): HTMLElement {
  return h(
    "details",
    { class: "numbers" },
    h("summary", {}, title),
    h(
      "div",
      scrolling(title),
      h(
        "table",
        {},
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            heads.map((head) => (head ? h("th", { scope: "col" }, head) : h("td"))),
          ),
        ),
        h(
          "tbody",
          {},
          rows.map((row) =>
            h(
              "tr",
              {},
              row.map((cell, n) => (n ? h("td", {}, cell) : h("th", { scope: "row" }, cell))),
            ),
          ),
        ),
      ),
    ),
  );
}

/** A section with a heading. */
export function panel(title: string, ...children: Child[]): HTMLElement {
  return h("section", { class: "panel" }, h("h2", {}, title), ...children);
}

/** Attributes of what scrolls where it is wider than the page; the keyboard reaches it, and a screen reader has its name. */
export function scrolling(label: string): Attributes {
  return { class: "scrolls", tabindex: 0, role: "region", "aria-label": label };
}

/** A row of a list of equations; those that are wider than the page scroll. */
export function equationRow(name: string, ...found: Child[]): HTMLElement {
  return h("div", {}, h("dt", {}, name), h("dd", { class: "scrolls", tabindex: 0 }, found));
}
