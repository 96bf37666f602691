// The models of this folder: models/index.json, and the models themselves, fetched when they are first used.
import { loadModel, type Model, OwnSessions, start } from "../engine/index.ts";
import { FROM_DISK, program, served } from "./served.ts";
import { WorkerSessions } from "./worker.ts";

/** What models/index.json says of a model. */
export interface Entry {
  name: string;
  task: string;
  title: string;
  /** ISO 639 codes, of a translator source and target. */
  languages: string[];
  facts: {
    parameters?: number;
    paper?: string;
    license?: string;
    score?: { metric: string; value: number; split: string };
  };
  /** Of its files; null if `zoo demo` has not exported them yet. */
  bytes: number | null;
  /** Their names; they are fetched before the first one has told of the others. */
  files: string[];
}

export interface Catalogue {
  /** Name of the model that is shown first. */
  first: string;
  /** Whether the files of models lie there as FILE.js. */
  scripts: boolean;
  /** Address of the repository; its files are named without links if there is none. */
  repository?: string | null;
  /** The code behind the equations: FILE:PART -> its first line and its text. */
  code?: Record<string, { line: number; text: string }>;
  models: Entry[];
}

/** Tells what is happening, bytes read so far and, if known, of how many. */
export type Progress = (what: string, read: number, total: number | null) => void;

/** Whether a model is from a folder of the user: it has no card. */
export function isOwn({ facts }: Entry): boolean {
  return facts.paper === undefined;
}

/** A model that arrives, or is there. */
interface Loading {
  model: Promise<Model>;
  progress: Progress; // of who asked for it last
  isDone: boolean;
}

const loads = new Map<string, Loading>(); // by name
let scripts = true;
let programs: Promise<void> | null = null;

export async function readCatalogue(): Promise<Catalogue> {
  const list = served("models/", false).text("index.json"); // asked for first: what is needed next stands in it
  programs = startPrograms();
  const catalogue = JSON.parse(await list) as Catalogue;
  scripts = catalogue.scripts;
  return catalogue;
}

/** A model; the second time the same one. */
export function modelOf(entry: Entry, progress: Progress): Promise<Model> {
  const before = loads.get(entry.name);
  if (before) {
    before.progress = progress;
    return before.model;
  }
  const model = opened(entry, (...found) => load.progress(...found));
  const load: Loading = { model, progress, isDone: false };
  loads.set(entry.name, load);
  model.then(
    () => (load.isDone = true),
    () => {
      loads.delete(entry.name);
      if (![...loads.values()].some(({ isDone }) => isDone)) {
        programs = null; // the engine itself may be what did not arrive
      }
    },
  );
  return model;
}

/** The card of a model, in Markdown. */
export function cardOf(entry: Entry): Promise<string> {
  return served(`models/${entry.name}/`, scripts).text("card.md");
}

export function isLoaded(entry: Entry): boolean {
  return loads.get(entry.name)?.isDone ?? false;
}

async function opened(entry: Entry, progress: Progress): Promise<Model> {
  let read = 0;
  const folder = served(`models/${entry.name}/`, scripts, {
    waiting: (message) => progress(message, 0, null),
    read: (bytes) => progress(`Loading ${entry.name}`, (read += bytes), entry.bytes),
  });
  entry.files.forEach((file) => void folder.bytes(file).catch(() => {})); // who needs a file gets its error
  programs ??= startPrograms();
  return loadModel(folder, programs);
}

function startPrograms(): Promise<void> {
  const sessions = FROM_DISK ? new OwnSessions(program("engine.wasm")) : new WorkerSessions();
  const started = start(sessions, program("sentences.wasm"));
  started.catch(() => (programs = null)); // the next model tries again
  return started;
}
