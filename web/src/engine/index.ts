// The engine: models that `zoo export --format onnx --int8` wrote, run by onnxruntime-web. No DOM; it also runs in node.
import { Captioner } from "./captioning.ts";
import { Classifier } from "./classification.ts";
import { Exported, type Folder } from "./folder.ts";
import { useSessions } from "./graph.ts";
import { LanguageModel } from "./language.ts";
import { Reader } from "./reading.ts";
import { useSplitter } from "./sentences.ts";
import type { Sessions } from "./sessions.ts";
import { Translator } from "./translation.ts";

export type { Caption } from "./captioning.ts";
export type { Classification, Encoded, Weighed } from "./classification.ts";
export type { Calibration, Warnings } from "./confidence.ts";
export type { About, Folder } from "./folder.ts";
export type { Picture } from "./images.ts";
export type { CompleteOptions, Completion, Read, Scored, ScoreOptions } from "./language.ts";
export type { Facts } from "./model.ts";
export type { Reading } from "./reading.ts";
export type { Alternative, BeamNode, Hypothesis, SearchOptions, Step } from "./search.ts";
export type { TranslateOptions, Translation } from "./translation.ts";
export { Captioner } from "./captioning.ts";
export { readCapitals } from "./casing.ts";
export { Classifier } from "./classification.ts";
export { tells } from "./dates.ts";
export { languagesOf, otherLanguage } from "./familiar.ts";
export { Tensor } from "./graph.ts";
export { pixels } from "./images.ts";
export { LanguageModel } from "./language.ts";
export { Reader } from "./reading.ts";
export { search } from "./search.ts";
export { OwnSessions, type Sessions } from "./sessions.ts";
export { splitSentences } from "./sentences.ts";
export { Tokenizer } from "./tokenizer.ts";
export { Translator } from "./translation.ts";

export type Model = Translator | Captioner | Classifier | LanguageModel | Reader;

const MODELS: Record<string, { open(exported: Exported): Promise<Model> }> = {
  translation: Translator,
  captioning: Captioner,
  classification: Classifier,
  "language modelling": LanguageModel,
  reading: Reader,
};

/** Gives the engine what runs its graphs, and its program sentences.wasm; called before `loadModel`. */
export async function start(sessions: Sessions, sentences: Promise<WebAssembly.Module>): Promise<void> {
  useSessions(sessions);
  useSplitter(await sentences);
}

/**
 * Reads onnx.json and opens the model of its task.
 *
 * @param started what `start` returned; files arrive and tokenizers are made before it has ended.
 */
export async function loadModel(folder: Folder, started?: Promise<void>): Promise<Model> {
  const exported = await Exported.open(folder);
  await exported.fetched();
  const { task } = exported.about;
  if (!(task in MODELS)) {
    throw new Error(`the model is for ${task}, which this page does not know`);
  }
  const model = await MODELS[task].open(exported);
  await started;
  exported.close();
  return model;
}
