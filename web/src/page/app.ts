// The shell: header, routes, the choice of a model, progress, errors.
import type { Model } from "../engine/index.ts";
import { captionsView } from "./captions.ts";
import { cardButton } from "./card.ts";
import { type Catalogue, type Entry, isLoaded, isOwn, modelOf, type Progress, readCatalogue } from "./catalogue.ts";
import { documentsView } from "./documents.ts";
import { button, fill, h, type Child } from "./dom.ts";
import { languageView } from "./language.ts";
import { megabytes } from "./numbers.ts";
import { readingView } from "./reading.ts";
import { translationView } from "./translation.ts";

/** What the shell does for a view. */
export interface Context {
  catalogue: Catalogue;
  entry: Entry;
  /** Another model; shows how much of it has arrived. */
  load(entry: Entry): Promise<Model>;
  /** Says something to screen readers. */
  announce(text: string): void;
  /** Runs something and shows its error, if it has one, as a line; does nothing once the user has left the view. */
  attempt(work: () => Promise<void>): Promise<void>;
}

interface Route {
  path: string;
  label: string;
  task: string;
  /** The model that is shown first, if the folder has it. */
  first?: string;
  view(model: any, context: Context): HTMLElement;
}

const ROUTES: Route[] = [
  { path: "translate", label: "Translation", task: "translation", view: translationView },
  {
    path: "captions",
    label: "Captions",
    task: "captioning",
    first: "show_attend_tell_soft.flickr8k",
    view: captionsView,
  },
  { path: "documents", label: "Documents", task: "classification", first: "han.imdb", view: documentsView },
  { path: "language", label: "Language model", task: "language modelling", view: languageView },
  {
    path: "reading",
    label: "Reading",
    task: "reading",
    first: "attention_over_attention.cbtlike_ne",
    view: readingView,
  },
];
const THEMES = { auto: "light dark", light: "light", dark: "dark" };

class App {
  private readonly nav = h("nav", { "aria-label": "Views" });
  private readonly picker = h("div", { class: "picker" });
  private readonly bar = h("progress", { "aria-label": "Loading the model" });
  private readonly loading = h("div", { class: "loading", hidden: true }, h("span"), this.bar);
  private readonly error = h("p", { class: "error", role: "alert", hidden: true });
  private readonly live = h("p", { class: "unseen", "aria-live": "polite" });
  private readonly place = h("div", { id: "view" });
  private visits = 0;
  private loads = 0;

  constructor(private readonly catalogue: Catalogue) {
    const main = h("main", { id: "main", tabindex: -1 }, this.picker, this.loading, this.error, this.live, this.place);
    const skip = button("Skip to the content", () => main.focus(), { class: "skip" });
    fill(document.querySelector("#page")!, skip, this.header(), main, footer(catalogue));
    addEventListener("hashchange", () => void this.show());
    void this.show();
  }

  private header(): HTMLElement {
    const home = h("a", { href: "#/translate", class: "brand" }, "Attention Zoo");
    return h("header", {}, h("h1", {}, home), this.nav, themeSwitch());
  }

  /** Shows what the address names. */
  private async show(): Promise<void> {
    const [path, name] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
    const { first } = this.catalogue;
    const task = this.catalogue.models.find((one) => one.name === first)?.task;
    const route =
      ROUTES.find((one) => one.path === path) ?? ROUTES.find((one) => one.task === task) ?? ROUTES[0];
    const models = this.catalogue.models.filter((one) => one.task === route.task);
    const wanted = [name, first, route.first].map((name) => models.find((one) => one.name === name));
    const entry = wanted.find((one) => one) ?? models[0];
    const visit = (this.visits += 1);
    document.title = `${route.label} · Attention Zoo`;
    this.error.hidden = true;
    this.endLoading((this.loads += 1));
    fill(
      this.nav,
      ROUTES.map((one) => link(one, one === route)),
    );
    fill(this.picker, entry && this.choice(route, models, entry), entry && name && missing(name, entry, route));
    fill(this.place);
    if (!entry) {
      fill(this.place, h("p", {}, "This folder has no model for that. Export it again with one: zoo demo --export."));
      return;
    }
    const context = this.contextOf(entry, visit);
    await context.attempt(async () => {
      const model = await context.load(entry).catch((error) => {
        if (visit === this.visits) {
          fill(this.place, button("Try again", () => void this.show()));
        }
        throw error;
      });
      if (visit === this.visits) {
        fill(this.place, route.view(model, context));
      }
    });
  }

  private choice(route: Route, models: Entry[], entry: Entry): Child[] {
    const options = models.map((one) =>
      h(
        "option",
        { value: one.name, selected: one === entry },
        one.bytes === null ? one.name : `${one.name} (${megabytes(one.bytes)})`,
      ),
    );
    const select = h("select", { id: "model" }, options);
    select.addEventListener("change", () => (location.hash = `#/${route.path}/${select.value}`));
    return [
      h("label", { for: "model" }, "Model"),
      select,
      h(
        "details",
        { class: "card" },
        h("summary", {}, entry.title),
        h(
          "ul",
          {},
          factsOf(entry).map((fact) => h("li", {}, fact)),
        ),
        !isOwn(entry) && h("p", {}, cardButton(entry, "The whole card")),
      ),
    ];
  }

  /** What the shell does for the view of a visit; after the next one began it is silent. */
  private contextOf(entry: Entry, visit: number): Context {
    return {
      catalogue: this.catalogue,
      entry,
      load: (other) => this.load(other),
      announce: (text) => {
        if (visit === this.visits) {
          this.live.textContent = text;
        }
      },
      attempt: (work) => this.attempt(work, visit),
    };
  }

  private async load(entry: Entry): Promise<Model> {
    const mine = (this.loads += 1); // the bar is of the newest
    const progress: Progress = (...found) => {
      if (mine === this.loads) {
        this.progress(...found);
      }
    };
    progress(`Loading ${entry.name}`, 0, null);
    this.loading.hidden = isLoaded(entry);
    try {
      return await modelOf(entry, progress);
    } finally {
      this.endLoading(mine);
    }
  }

  private endLoading(load: number): void {
    this.loading.hidden ||= load === this.loads;
  }

  private progress(what: string, read: number, total: number | null): void {
    const size = read ? `: ${megabytes(read)}${total ? ` of ${megabytes(Math.max(read, total))}` : ""}` : " …";
    this.loading.querySelector("span")!.textContent = what + size;
    if (read && total) {
      this.bar.max = Math.max(read, total);
      this.bar.value = read;
    } else {
      this.bar.removeAttribute("value");
    }
  }

  private async attempt(work: () => Promise<void>, visit: number): Promise<void> {
    if (visit !== this.visits) {
      return;
    }
    this.error.hidden = true;
    try {
      await work();
    } catch (error) {
      if (visit === this.visits) {
        this.error.textContent = lineOf(error);
        this.error.hidden = false;
      }
    }
  }
}

/** An error as a line. */
export function lineOf(error: unknown): string {
  return error instanceof Error ? error.message.split("\n")[0] : String(error);
}

/** A part of the address; as it stands there if a % in it begins no character. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** A line if the address names another model than the one that is shown. */
function missing(name: string, shown: Entry, { label }: Route): Child {
  const line = `This folder has no model “${name}” for the view “${label}”, so it shows ${shown.name}.`;
  return name !== shown.name && h("p", { class: "warning" }, line);
}

/** A link to a file of the repository, or its name where the folder does not say where that is. */
export function source({ repository }: Catalogue, path: string, label = path, line?: number): Node {
  if (!repository) {
    return h("span", {}, label === path ? h("code", {}, path) : [label, ": ", h("code", {}, path)]);
  }
  const address = `${repository}/blob/main/${path}${line === undefined ? "" : `#L${line}`}`;
  return h("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, label);
}

/** The lines of a model's card that the list of models has. */
function factsOf({ languages, facts, bytes }: Entry): Child[][] {
  const { parameters, paper, license, score } = facts;
  const found: (Child[] | false | undefined)[] = [
    languages.length > 0 && [languages.join(" → ")],
    parameters !== undefined && [
      `${parameters.toLocaleString("en")} parameters`,
      bytes !== null && `, ${megabytes(bytes)} in 8 bits`,
    ],
    score && [`${score.metric} ${score.value} on ${score.split}`],
    license !== undefined && license !== "other" && [`licence: ${license}`],
    paper !== undefined && [h("a", { href: paper, target: "_blank", rel: "noopener noreferrer" }, paper)],
  ];
  return found.filter((fact) => fact !== false && fact !== undefined);
}

function link(route: Route, isCurrent: boolean): HTMLElement {
  return h("a", { href: `#/${route.path}`, "aria-current": isCurrent && "page" }, route.label);
}

function themeSwitch(): HTMLElement {
  const select = h(
    "select",
    { "aria-label": "Colours" },
    Object.keys(THEMES).map((name) => h("option", { value: name }, name)),
  );
  const apply = () => (document.documentElement.style.colorScheme = THEMES[select.value as keyof typeof THEMES]);
  select.value = remembered("theme") ?? "auto";
  select.addEventListener("change", () => {
    apply();
    remember("theme", select.value);
  });
  apply();
  return select;
}

/** Browsers may forbid a page to keep anything. */
function remembered(key: string): string | null {
  try {
    const value = localStorage.getItem(key);
    return value !== null && value in THEMES ? value : null;
  } catch {
    return null;
  }
}

function remember(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // The choice holds until the page is closed.
  }
}

function footer(catalogue: Catalogue): HTMLElement {
  return h(
    "footer",
    {},
    h("p", {}, "All models run in this browser. Nothing that you type, upload or film leaves it."),
    h("p", {}, h("a", { href: "licences.txt" }, "Licences"), " · ", source(catalogue, "README.md", "Repository")),
  );
}

export async function open(): Promise<void> {
  const page = document.querySelector("#page")!;
  fill(page, h("p", { class: "starting" }, "Reading the list of models …"));
  try {
    new App(await readCatalogue());
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    fill(page, h("p", { class: "error", role: "alert" }, `The page cannot start: ${why}`));
  }
}
