// Sentence splitting, as zoo/text/sentences.py does it with `sentencex`; here that library is a second program.
import { initSync, segment } from "sentencex-wasm";

import { length, stripped, words } from "./characters.ts";
import type { Tokenizer } from "./tokenizer.ts";

const LONGEST_PARAGRAPH = 20_000; // characters; the library's time is quadratic in the number of unclosed quotation marks
const MOST_MARKS = 100; // characters without a letter that are read with a sentence; what is longer stands alone
const NUMBER_OF_ITEM = /^\p{Nd}+[.):]$/u; // of a list
const BLANK_LINE = /\n[\t\v-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]*\n/u;

/** Gives the splitter its program, sentences.wasm; before the first text. */
export function useSplitter(program: WebAssembly.Module): void {
  initSync({ module: program });
  segment("en", "One. Two."); // the first text takes longest: now it waits for nothing
}

/** The sentences of a text in order, white space normalised. */
export function splitSentences(text: string, language = "en"): string[] {
  const paragraphs = text.split(BLANK_LINE).map((paragraph) => words(paragraph).join(" "));
  const found = paragraphs.flatMap(parts).flatMap((part) => segment(language, part) as string[]);
  return found.map(stripped).filter((sentence) => sentence !== "");
}

/** Sentences of a text of which each has a letter: a mark such as ":)" belongs to the one before, a number to the next. */
export function withWords(text: string, sentences: readonly string[]): string[] {
  const whole = words(text).join(" ");
  const found: string[][] = [];
  let place = 0;
  let takes = false; // whether the last one takes what follows
  let marks = 0; // the length of the marks in it
  for (const sentence of sentences) {
    const gap = whole[place] === " " ? " " : "";
    place += gap.length + sentence.length;
    const hasLetter = /\p{L}/u.test(sentence);
    marks += hasLetter ? 0 : gap.length + length(sentence);
    const isItem = NUMBER_OF_ITEM.test(sentence); // else it has no letter yet, or this one has none
    if (found.length && marks <= MOST_MARKS && (takes || (!hasLetter && !isItem))) {
      found[found.length - 1].push(gap, sentence);
      takes = takes && !hasLetter;
    } else {
      found.push([sentence]);
      takes = !hasLetter;
      marks = hasLetter ? 0 : length(sentence);
    }
  }
  if (takes && found.length > 1 && marks <= MOST_MARKS) {
    const last = found.pop()!; // numbers at the end
    found[found.length - 1].push(" ", ...last);
  }
  return found.map((pieces) => pieces.join(""));
}

/** A paragraph in parts of bounded length, cut after a sentence or at least after a word if possible. */
function parts(paragraph: string): string[] {
  const characters = Array.from(paragraph);
  const found: string[] = [];
  let start = 0;
  while (characters.length - start > LONGEST_PARAGRAPH) {
    const piece = characters.slice(start, start + LONGEST_PARAGRAPH);
    const end = start + (lastEnd(piece, ".!?") || lastEnd(piece, "") || LONGEST_PARAGRAPH);
    found.push(characters.slice(start, end).join(""));
    start = end;
  }
  found.push(characters.slice(start).join(""));
  return found;
}

/** Length up to the last space, or up to the last mark that a space follows; 0 if there is none after the start. */
function lastEnd(piece: readonly string[], marks: string): number {
  for (let place = piece.length - 1; place > 0; place--) {
    const mark = marks ? place - 1 : place;
    if (piece[place] === " " && mark > 0 && (!marks || marks.includes(piece[mark]))) {
      return mark + 1;
    }
  }
  return 0;
}

/** Token ids and words (as written) of the sentences of a text; sentences without words are dropped. */
export function encodeDocument(text: string, tokenizer: Tokenizer): { ids: number[][]; words: string[][] } {
  const sentences = splitSentences(tokenizer.clean(text));
  const kept = sentences.map((sentence) => ({ sentence, ids: tokenizer.encode(sentence) })).filter(({ ids }) => ids.length);
  return { ids: kept.map(({ ids }) => ids), words: kept.map(({ sentence }) => tokenizer.words(sentence)) };
}
