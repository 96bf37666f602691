// Capitals in texts for models that have read few of them: zoo/text/casing.py.
import { capitalized, isUpper, length, LETTER } from "./characters.ts";
import { isFrequent } from "./familiar.ts";
import { type Tokenizer, UNK } from "./tokenizer.ts";

const WORD = new RegExp(`${LETTER}+(?:['’]${LETTER}+)*`, "gu");
const QUOTED = /["“”„«»][^"“”„«»]*["“”„«»]/g; // what a sign says
const CAPITALS_SHARE = 0.7; // of the letters of a text that is in capitals
const TITLE_SHARE = 0.75; // of the words after the first that begin with a capital, in a text written as a title
const LONGEST_SHORT_WORD = 3; // letters; a text that has no longer word in capitals may be an abbreviation
const SHORTEST_LOUD_WORD = 3; // letters; shorter words in capitals stay, and so short nouns
const GAIN = 2; // times fewer tokens: a single word that is in capitals, or looks so, is read otherwise only then

type Cost = [unknown: number, all: number];

export function inCapitals(text: string): boolean {
  const words = text.match(WORD) ?? [];
  const loud = words.filter((word) => length(word) > 1 && isUpper(word));
  const letters = (found: string[]) => found.reduce((sum, word) => sum + length(word), 0);
  return letters(loud) >= CAPITALS_SHARE * letters(words) && Math.max(0, ...loud.map(length)) > LONGEST_SHORT_WORD;
}

/** Whether nearly all words of a text begin with a capital. */
function asTitle(text: string): boolean {
  const words = (text.match(WORD) ?? []).slice(1);
  const large = words.filter((word) => isUpper([...word][0]));
  return words.length > 1 && large.length >= TITLE_SHARE * words.length;
}

/** A text with capitals as a usual sentence, if the tokenizer knows the words of that better; else null. */
export function readCapitals(text: string, tokenizer: Tokenizer, language = "en"): string | null {
  const loud = inCapitals(text);
  const title = asTitle(text);
  const quoted = [...text.matchAll(QUOTED)].map((found) => [found.index, found.index + found[0].length]);
  let words = 0;
  const quiet = text.replace(WORD, (word: string, place: number) => {
    const isFirst = words++ === 0;
    const large = capitalized(word);
    const small = word.toLowerCase();
    if (!loud && !(isUpper(word) && length(word) >= SHORTEST_LOUD_WORD) && (isFirst || !title)) {
      return word;
    }
    if (!loud && quoted.some(([start, end]) => start < place && place < end)) {
      return word;
    }
    const forms = word === "I" || isFirst ? [large] : [small, large];
    const german = language === "de" && isUpper(word) ? germanForm(forms, tokenizer) : null;
    const best = german ?? cheapest(forms, (form) => cost(form, tokenizer));
    if (loud) {
      return best;
    }
    const isShort = isUpper(word) && length(word) <= LONGEST_SHORT_WORD && best === large && !isFirst;
    return isShort || GAIN * sum(cost(best, tokenizer)) > sum(cost(word, tokenizer)) ? word : best;
  });
  return isCheaper(cost(quiet, tokenizer), cost(text, tokenizer)) ? quiet : null;
}

/** The form of a German word in capitals that is an entry of the vocabulary, the most frequent; or one with ß for SS. */
function germanForm(forms: readonly string[], tokenizer: Tokenizer): string | null {
  if (forms.length > 1 && isFrequent(forms[0], "de")) {
    return forms[0];
  }
  for (const found of [forms, forms.map((form) => form.replaceAll("ss", "ß"))]) {
    const entries = found.map((form) => ({ form, ids: tokenizer.encode(form) }));
    const known = entries.filter(({ ids }) => ids.length === 1 && ids[0] !== UNK);
    if (known.length) {
      return known.reduce((best, other) => (other.ids[0] < best.ids[0] ? other : best)).form;
    }
  }
  return null;
}

/** Unknown tokens and all tokens of a text. */
function cost(text: string, tokenizer: Tokenizer): Cost {
  const ids = tokenizer.encode(text);
  return [ids.filter((id) => id === UNK).length, ids.length];
}

/** The first of the forms that cost least. */
function cheapest(forms: readonly string[], costOf: (form: string) => Cost): string {
  return forms.reduce((best, form) => (isCheaper(costOf(form), costOf(best)) ? form : best));
}

function isCheaper(one: Cost, other: Cost): boolean {
  return one[0] !== other[0] ? one[0] < other[0] : one[1] < other[1];
}

function sum([unknown, all]: Cost): number {
  return unknown + all;
}
