// How well a model knows the words of a text, and in which language a text is: zoo/text/familiar.py.
import { isAlpha, length, LETTER } from "./characters.ts";
import { type Tokenizer, UNK } from "./tokenizer.ts";

const WORD = new RegExp(`${LETTER}+`, "gu");
export const NAMES: Record<string, string> = {
  en: "English",
  de: "German",
  fr: "French",
  es: "Spanish",
  it: "Italian",
  pt: "Portuguese",
  nl: "Dutch",
  sv: "Swedish",
  pl: "Polish",
  cs: "Czech",
};
// Frequent words that say little; a word of several languages counts for each.
const FREQUENT: Record<string, string> = {
  en:
    "the a an of to in is are was were and that it he she they you i we for on with at this not be have " +
    "has from his her by as or what there but my your do does",
  de:
    "der die das den dem des ein eine einen einem einer eines und ist sind war nicht ich du er sie es wir " +
    "ihr mit auf im in zu von für an hat haben sich auch dass wie was aber bei aus nach",
  fr:
    "le la les un une des du de et est sont était dans sur avec pour pas ne je tu il elle nous vous ils " +
    "qui que ce cette au aux en son sa ses mais plus par c l d j qu n s",
  es:
    "el la los las un una unos unas de del y es son era en con por para no que se su sus al lo como más " +
    "pero este esta yo tú él ella muy",
  it:
    "il lo la i gli le un uno una di del della dei delle e è sono era in con per non che si su al alla " +
    "come più ma questo questa io tu lui lei da nel nella",
  pt:
    "o a os as um uma uns umas de do da dos das e é são era em no na nos nas com por para não que se ao " +
    "mais mas este esta eu você ele ela seu sua",
  nl:
    "de het een en is zijn was in op met voor niet van te dat die ik je jij hij zij wij ze aan er maar " +
    "ook om als bij uit naar heeft deze",
  sv: "en ett och är var i på med för inte av att det den de jag du han hon vi som till har om men från sig",
  pl: "i w na z do nie się jest to że po o jak ale za od dla są był przez ten tak",
  cs: "a v na s z do ne se je to že po o jak ale za od pro jsou byl který ve",
};
const ADDED_WORDS = 2; // see `knownShare`
const LEAST_WORDS = 2; // frequent words that tell a language
const LEAST_SHARE = 0.2; // of all words
const READ_SHARE = 0.8; // of the frequent words of a language that a vocabulary for it has
const LANGUAGES = new WeakMap<Tokenizer, string[]>();
const FREQUENT_WORDS = new Map(Object.entries(FREQUENT).map(([code, words]) => [code, new Set(words.split(" "))]));

const POLITE = ["sie", "ihr", "ihnen"]; // with a capital they address someone

/** Whether a word in lower case is one of the frequent words of a language, which hardly ever have a capital. */
export function isFrequent(word: string, language: string): boolean {
  return (FREQUENT_WORDS.get(language)?.has(word) ?? false) && !POLITE.includes(word);
}

/** Share of the words that the vocabulary has as a whole, with two known words added; of the characters if it has only these. */
export function knownShare(ids: readonly number[], tokenizer: Tokenizer): number {
  if (tokenizer.kind === "char") {
    return 1 - ids.filter((id) => id === UNK).length / (ids.length + ADDED_WORDS);
  }
  const labels = tokenizer.tokens(ids);
  const parts = labels.map((label) => tokenizer.kind === "bpe" && length(label) > 1 && label[0] === "·");
  const words = labels.flatMap((label, n) => (!parts[n] && (ids[n] === UNK || isAlpha(label)) ? [n] : []));
  const known = words.filter((n) => ids[n] !== UNK && !parts[n + 1]).length;
  return (known + ADDED_WORDS) / (words.length + ADDED_WORDS);
}

/** The name of the language of a text, if it clearly is another than expected (an ISO 639 code). */
export function otherLanguage(text: string, expected: string): string | null {
  const { counts, words } = count(text);
  const [[best, most], [, second]] = [...counts].sort((one, other) => other[1] - one[1]);
  const isClear = most >= Math.max(LEAST_WORDS, LEAST_SHARE * words) && most > second;
  if (!isClear || best === expected || !(expected in NAMES)) {
    return null;
  }
  return most > 2 * counts.get(expected)! ? NAMES[best] : null;
}

/** The languages for which a vocabulary was made, as ISO 639 codes: it has most of their frequent words whole. */
export function languagesOf(tokenizer: Tokenizer): string[] {
  let found = LANGUAGES.get(tokenizer);
  if (!found) {
    const isWhole = (word: string) => {
      const ids = tokenizer.encode(word);
      return ids.length === 1 && ids[0] !== UNK;
    };
    const known = (words: string[]) => words.filter(isWhole).length / words.length;
    const codes = tokenizer.kind === "char" ? [] : Object.keys(FREQUENT);
    found = codes.filter((code) => known(FREQUENT[code].split(" ")) >= READ_SHARE);
    LANGUAGES.set(tokenizer, found);
  }
  return found;
}

/** Frequent words by language, and the number of all words. */
function count(text: string): { counts: Map<string, number>; words: number } {
  const words = text.toLowerCase().match(WORD) ?? [];
  const counts = new Map<string, number>();
  for (const [code, frequent] of FREQUENT_WORDS) {
    counts.set(code, words.filter((word) => frequent.has(word)).length);
  }
  return { counts, words: words.length };
}
