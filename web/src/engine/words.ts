// From a text, raw or tokenised, to the words of a reader: zoo/text/words.py.
import { SPACES, words as wordsOf } from "./characters.ts";
import { BOS, type Tokenizer, UNK } from "./tokenizer.ts";

export const BLANK = "XXXXX"; // the missing word of a query
const BLANK_ID = BOS;
const CHARACTER = "[\\p{L}\\p{N}_]"; // \w
const CONTRACTED = "n['’]t|['’](?:s|ll|re|ve|d|m)";
const PIECE = new RegExp(
  `@?${CHARACTER}+(?:[-.'’]${CHARACTER}+|(?<=\\p{Nd}),\\p{Nd}+)*|--+|\\.{2,}|\`\`|''|[^]`, // rabbit-hole, U.S, 1,000
  "gu",
);
const APART = new RegExp(`(?<![^${SPACES}])[.,;:!?](?![^${SPACES}])`, "u"); // only in tokenised text
const ATTACHED = new RegExp(`${CHARACTER}(?:[,;:!?]|${CONTRACTED})(?![^${SPACES}])`, "u"); // and none of these
const CONTRACTION = new RegExp(`(?=(?:${CONTRACTED})$)`, "iu");
const PENN: Record<string, [string, string]> = {
  '"': ["``", "''"],
  "“": ["``", "``"],
  "”": ["''", "''"],
  "‘": ["`", "`"],
  "’": ["'", "'"],
}; // at the beginning of a string between spaces, and inside

export function wordId(word: string, tokenizer: Tokenizer): number {
  const ids = tokenizer.encode(word);
  return word === BLANK ? BLANK_ID : ids.length === 1 ? ids[0] : UNK;
}

/** Words of a raw or tokenised text, in the form of a model's training text; `keep` are not split. */
export function splitWords(text: string, tokenizer: Tokenizer, keep: ReadonlySet<string>): string[] {
  if (tokenizer.kind !== "word") {
    return tokenizer.words(text);
  }
  const plain = tokenizer.clean(text).normalize("NFC");
  if (APART.test(plain) && !ATTACHED.test(plain)) {
    return wordsOf(plain);
  }
  const isWord = (word: string) => wordId(word, tokenizer) !== UNK;
  return wordsOf(plain).flatMap((chunk) => {
    if (isWord(chunk) || keep.has(chunk)) {
      return [chunk];
    }
    return (chunk.match(PIECE) ?? []).flatMap((piece, place) => {
      if (isWord(piece) || keep.has(piece)) {
        return [piece];
      }
      if (piece in PENN) {
        const mark = PENN[piece][place > 0 ? 1 : 0];
        return [isWord(mark) ? mark : piece];
      }
      return contractionParts(piece).map((part) => part.replaceAll("’", "'"));
    });
  });
}

function contractionParts(piece: string): string[] {
  const place = piece.search(CONTRACTION);
  return place > 0 ? [piece.slice(0, place), piece.slice(place)] : [piece];
}
