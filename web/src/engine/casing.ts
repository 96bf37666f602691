// Texts in capitals, for models that have read few or none: zoo/text/casing.py.
import { capitalized, isUpper, length, LETTER } from "./characters.ts";
import { type Tokenizer, UNK } from "./tokenizer.ts";

const WORD = new RegExp(`${LETTER}+(?:['’]${LETTER}+)*`, "gu");
const CAPITALS_SHARE = 0.7; // of the letters of a text that is in capitals
const LONGEST_SHORT_WORD = 3; // letters; a text that has no longer word in capitals may be an abbreviation

function inCapitals(text: string): boolean {
  const words = text.match(WORD) ?? [];
  const loud = words.filter((word) => length(word) > 1 && isUpper(word));
  const letters = (found: string[]) => found.reduce((sum, word) => sum + length(word), 0);
  return letters(loud) >= CAPITALS_SHARE * letters(words) && Math.max(0, ...loud.map(length)) > LONGEST_SHORT_WORD;
}

/** A text in capitals as a usual sentence, if the tokenizer knows the words of that better; else null. */
export function readCapitals(text: string, tokenizer: Tokenizer): string | null {
  if (!inCapitals(text)) {
    return null;
  }
  let isFirst = true;
  const quiet = text.replace(WORD, (word) => {
    const large = capitalized(word);
    if (isFirst || word === "I") {
      isFirst = false;
      return large;
    }
    const small = word.toLowerCase();
    return isCheaper(cost(large, tokenizer), cost(small, tokenizer)) ? large : small;
  });
  return isCheaper(cost(quiet, tokenizer), cost(text, tokenizer)) ? quiet : null;
}

/** Unknown tokens and all tokens of a text. */
function cost(text: string, tokenizer: Tokenizer): [number, number] {
  const ids = tokenizer.encode(text);
  return [ids.filter((id) => id === UNK).length, ids.length];
}

function isCheaper(one: [number, number], other: [number, number]): boolean {
  return one[0] !== other[0] ? one[0] < other[0] : one[1] < other[1];
}
