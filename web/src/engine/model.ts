// What all models share.
import type { Calibration } from "./confidence.ts";
import type { About, Exported } from "./folder.ts";
import { Tokenizer } from "./tokenizer.ts";

/** A model's facts and its map from evidence to confidence. */
export interface Facts {
  name: string;
  about: About;
  calibration: Calibration | null;
}

export async function factsOf(exported: Exported): Promise<Facts> {
  const { about } = exported;
  const calibration = exported.has("calibration.json") ? JSON.parse(await exported.text("calibration.json")) : null;
  return { name: about.source, about, calibration };
}

export async function tokenizerOf(exported: Exported, name = "tokenizer.json"): Promise<Tokenizer> {
  return new Tokenizer(await exported.text(name));
}
