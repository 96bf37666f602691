// Text to token ids and back, as zoo/text/tokenizer.py does it with the `tokenizers` library of Hugging Face.
import { fromPython, isAlphanumeric, length, stripped, words } from "./characters.ts";
import { PlainForms } from "./plain_forms.ts";

export const UNK = 1;
export const BOS = 2;
export const EOS = 3;
export type Kind = "bpe" | "word" | "char" | "word_punct";

const LONE_SURROGATE = /\p{Cs}/u;
const SPECIAL_NAMES = ["<pad>", "<unk>", "<s>", "</s>"];
const SPACE = "▁";
const LETTER = "[\\p{L}\\p{M}\\p{N}]";
const NOT = `n't(?!${LETTER})`;
// Tokens of kind "word_punct"; zoo/text/tokenizer.py explains them. The group is atomic there, which changes nothing.
const PIECE = new RegExp(
  `${NOT}|'(?:s|ll|re|ve|d|m)(?!${LETTER})|can(?=not(?!${LETTER}))` +
    `|(?:(?!${NOT})${LETTER}|(?<=\\p{N})[.,](?=\\p{N})){1,200}|[^]`,
  "giu",
);
// Punctuation marks of Unicode 8, which the library knows, and all signs of ASCII. The newer ones are letters to it.
const NEWER =
  "\\u061d\\u09fd\\u0a76\\u0c77\\u0c84\\u1b4e\\u1b4f\\u1b7d-\\u1b7f\\u2e43-\\u2e4f\\u2e52-\\u2e5d\\u{10d6e}\\u{10ead}" +
  "\\u{10ed0}\\u{10f55}-\\u{10f59}\\u{10f86}-\\u{10f89}\\u{113d4}\\u{113d5}\\u{113d7}\\u{113d8}\\u{1144b}-\\u{1144f}" +
  "\\u{1145a}\\u{1145b}\\u{1145d}\\u{11660}-\\u{1166c}\\u{116b9}\\u{1183b}\\u{11944}-\\u{11946}\\u{119e2}" +
  "\\u{11a3f}-\\u{11a46}\\u{11a9a}-\\u{11a9c}\\u{11a9e}-\\u{11aa2}\\u{11b00}-\\u{11b09}\\u{11be1}\\u{11c41}-\\u{11c45}" +
  "\\u{11c70}\\u{11c71}\\u{11ef7}\\u{11ef8}\\u{11f43}-\\u{11f4f}\\u{11fff}\\u{12ff1}\\u{12ff2}\\u{16d6d}-\\u{16d6f}" +
  "\\u{16e97}-\\u{16e9a}\\u{16fe2}\\u{1e5ff}\\u{1e95e}\\u{1e95f}";
const PUNCTUATION = new RegExp(`(?![${NEWER}])[\\p{P}$+<=>^\`|~\\u166d\\u{111c9}]`, "u");

interface Spec {
  normalizer: { normalizers: { type: string; pattern?: { Regex?: string }; content?: string }[] };
  pre_tokenizer: { type: string };
  model: { type: string; vocab: Record<string, number>; merges?: [string, string][]; ignore_merges?: boolean };
}

export class Tokenizer {
  readonly kind: Kind;
  private readonly vocabulary: Map<string, number>;
  private readonly pieces: string[] = [];
  private readonly ranks = new Map<string, number>(); // of a pair of parts, joined by a space, which no part contains
  private readonly wholeWords: boolean;
  private readonly lowercase: boolean;
  private readonly cleaning: [RegExp, string][];
  private readonly known = new Map<string, number[]>(); // word -> ids
  private plainForms?: PlainForms;

  constructor(json: string) {
    const spec = JSON.parse(json) as Spec;
    this.kind = kindOf(spec);
    this.vocabulary = new Map(Object.entries(spec.model.vocab));
    this.vocabulary.forEach((id, piece) => (this.pieces[id] = piece));
    spec.model.merges?.forEach((pair, rank) => this.ranks.set(pair.join(" "), rank));
    this.wholeWords = spec.model.ignore_merges ?? false;
    const steps = spec.normalizer.normalizers;
    const first = steps.findIndex((step) => step.type === "NFC");
    this.lowercase = steps.some((step) => step.type === "Lowercase");
    this.cleaning = steps.slice(0, first).map((step) => [fromPython(step.pattern!.Regex!), step.content!]);
  }

  get size(): number {
    return this.pieces.length;
  }

  /** A raw text, cleaned as the training text was. */
  clean(text: string): string {
    checkUnicode(text);
    return this.cleaning.reduce((cleaned, [pattern, content]) => cleaned.replace(pattern, () => content), text);
  }

  /** A text as users write it, with plain forms of the characters that the vocabulary lacks; for scores it stays. */
  plain(text: string): string {
    checkUnicode(text);
    this.plainForms ??= new PlainForms(this.characters(), (form) => this.isUnknown(form));
    return this.plainForms.applied(text);
  }

  /** All characters of the vocabulary, with capitals if it reads these in lower case. */
  private characters(): string[] {
    const found = Array.from(this.pieces.slice(EOS + 1).join(""));
    const large = found.map((character) => character.toUpperCase()).filter((form) => length(form) === 1);
    return this.lowercase ? [...found, ...large] : found;
  }

  private isUnknown(text: string): boolean {
    const ids = this.encode(text);
    return !ids.length || ids.includes(UNK);
  }

  /** Token ids of one text, without special tokens; [] for an empty text. */
  encode(text: string): number[] {
    const found = words(this.clean(text).normalize("NFC"));
    return this.kind === "char" ? this.cut(found.join(" ")) : found.flatMap((word) => this.idsOf(word));
  }

  /** The tokens of a text as written there, one for each id of `encode`. */
  words(text: string): string[] {
    if (this.kind !== "word" && this.kind !== "word_punct") {
      return this.tokens(this.encode(text));
    }
    const found = words(this.clean(text).normalize("NFC"));
    return this.kind === "word" ? found : found.flatMap((word) => this.piecesAsWritten(word));
  }

  /** Plain text of token ids, without special tokens. */
  decode(ids: readonly number[]): string {
    const pieces = ids.filter((id) => id > EOS && id < this.pieces.length).map((id) => this.pieces[id]);
    if (this.kind === "word" || this.kind === "word_punct") {
      return pieces.join(" ");
    }
    const plain = pieces.map((piece, n) => piece.replaceAll(SPACE, n === 0 && this.kind === "bpe" ? "" : " "));
    return stripped(plain.join(""));
  }

  /** One readable label per id: plain words, inner parts of a word as "·part", spaces as "▁". */
  tokens(ids: readonly number[]): string[] {
    return ids.map((id) => this.token(id));
  }

  token(id: number): string {
    const piece = id <= EOS ? SPECIAL_NAMES[id] : (this.pieces[id] ?? SPECIAL_NAMES[UNK]);
    if (id <= EOS || id >= this.pieces.length || this.kind !== "bpe" || piece === SPACE) {
      return piece;
    }
    if (piece.startsWith(SPACE)) {
      return piece.slice(1);
    }
    return isAlphanumeric(piece) ? `·${piece}` : piece;
  }

  private idsOf(word: string): number[] {
    let ids = this.known.get(word);
    if (!ids) {
      ids = this.cut(word);
      this.known.set(word, ids);
    }
    return ids;
  }

  /** Ids of one word (kind "char": of a whole text). */
  private cut(word: string): number[] {
    const plain = this.normalized(word);
    switch (this.kind) {
      case "word":
        return [this.vocabulary.get(plain) ?? UNK];
      case "word_punct":
        return (plain.match(PIECE) ?? []).map((piece) => this.vocabulary.get(piece) ?? UNK);
      case "char":
        return this.merged(plain.replaceAll(" ", SPACE));
      case "bpe":
        return bpePieces(plain).flatMap((piece) => this.merged(piece));
    }
  }

  private normalized(word: string): string {
    const lower = this.lowercase ? Array.from(word, (character) => character.toLowerCase()).join("") : word;
    return this.kind === "word_punct" ? lower.replaceAll("’", "'") : lower;
  }

  /** Byte-pair encoding: the pair of the lowest rank is merged first, of equals the leftmost. */
  private merged(piece: string): number[] {
    const whole = this.wholeWords ? this.vocabulary.get(piece) : undefined;
    if (whole !== undefined) {
      return [whole];
    }
    const parts: (string | null)[] = []; // null: unknown characters, of which neighbours are one token
    for (const character of piece) {
      if (this.vocabulary.has(character)) {
        parts.push(character);
      } else if (parts.length === 0 || parts[parts.length - 1] !== null) {
        parts.push(null);
      }
    }
    for (let best = this.bestPair(parts); best >= 0; best = this.bestPair(parts)) {
      parts.splice(best, 2, parts[best]! + parts[best + 1]!);
    }
    return parts.map((part) => (part === null ? UNK : this.vocabulary.get(part)!));
  }

  private bestPair(parts: readonly (string | null)[]): number {
    let best = -1;
    let lowest = Infinity;
    for (let n = 0; n + 1 < parts.length && this.ranks.size; n++) {
      const rank = parts[n] === null || parts[n + 1] === null ? undefined : this.ranks.get(`${parts[n]} ${parts[n + 1]}`);
      if (rank !== undefined && rank < lowest) {
        lowest = rank;
        best = n;
      }
    }
    return best;
  }

  /** The pieces of kind "word_punct" with their case and marks: lower case may have more characters. */
  private piecesAsWritten(word: string): string[] {
    const origin: number[] = []; // for each UTF-16 unit of the normalised word its character in the word
    const characters = Array.from(word);
    characters.forEach((character, n) => {
      for (let unit = this.normalized(character).length; unit > 0; unit--) {
        origin.push(n);
      }
    });
    return Array.from(this.normalized(word).matchAll(PIECE), (found) => {
      const last = found.index + found[0].length - 1;
      return characters.slice(origin[found.index], origin[last] + 1).join("");
    });
  }
}

function checkUnicode(text: string): void {
  if (LONE_SURROGATE.test(text)) {
    throw new Error("the text is not valid Unicode: it has half a surrogate pair");
  }
}

function kindOf(spec: Spec): Kind {
  if (spec.model.type === "WordLevel") {
    return spec.pre_tokenizer.type === "WhitespaceSplit" ? "word" : "word_punct";
  }
  return spec.pre_tokenizer.type === "Metaspace" ? "char" : "bpe";
}

/** A word with a space in front, cut before each further "▁" and around each punctuation mark. */
function bpePieces(word: string): string[] {
  const pieces: string[] = [];
  let current = "";
  const finish = () => {
    if (current) {
      pieces.push(current);
    }
    current = "";
  };
  for (const character of word.startsWith(SPACE) ? word : SPACE + word) {
    if (character === SPACE) {
      finish();
    }
    if (PUNCTUATION.test(character)) {
      finish();
      pieces.push(character);
    } else {
      current += character;
    }
  }
  finish();
  return pieces;
}
