// Sentence splitting, as zoo/text/sentences.py does it with `sentencex`; here that library is a second program.
import { initSync, segment } from "sentencex-wasm";

import { stripped, words } from "./characters.ts";
import type { Tokenizer } from "./tokenizer.ts";

const LONGEST_PARAGRAPH = 20_000; // characters; the library's time is quadratic in the number of unclosed quotation marks
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

/** Sentences of which each has a letter: a mark such as ":)" belongs to the one before, a number to the next. */
export function withWords(sentences: readonly string[]): string[] {
  const found: string[] = [];
  let waiting: string[] = [];
  for (const sentence of sentences) {
    if (/\p{L}/u.test(sentence)) {
      found.push([...waiting, sentence].join(" "));
      waiting = [];
    } else if (found.length && !waiting.length && !NUMBER_OF_ITEM.test(sentence)) {
      found.push(`${found.pop()} ${sentence}`);
    } else {
      waiting.push(sentence);
    }
  }
  if (waiting.length) {
    found.push([...found.splice(-1), ...waiting].join(" "));
  }
  return found;
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
