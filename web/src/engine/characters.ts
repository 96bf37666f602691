// Classes of characters as Python, and the libraries that it uses, define them. JavaScript's own differ in details.

/** What `str.split` and `\s` of Python take as white space, for use inside a class. */
export const SPACES = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const AROUND = new RegExp(`^[${SPACES}]+|[${SPACES}]+$`, "gu");
const SPACE = new RegExp(`^[${SPACES}]$`, "u");
const BETWEEN = new RegExp(`[${SPACES}]+`, "u");
/** Letters, and numbers that are not decimal digits: `[^\W\d_]` in Python. */
export const LETTER = "[\\p{L}\\p{No}\\p{Nl}]";
const CASED = /[\p{Uppercase}\p{Lowercase}\p{Lt}]/u;
const NOT_UPPER = /[\p{Lowercase}\p{Lt}]/u;
const GEORGIAN = /^[\u10d0-\u10fa\u10fd-\u10ff]/; // has capitals, but no title case
let titles: Map<string, string> | undefined; // of the letters whose title case is not their upper case

/** Whether a text has a letter or a digit: `any(map(str.isalnum, text))`. */
export function hasAlphanumeric(text: string): boolean {
  return /[\p{L}\p{N}]/u.test(text);
}

/** `text.isspace()` of a character. */
export function isSpace(character: string): boolean {
  return SPACE.test(character);
}

/** `text.split()`. */
export function words(text: string): string[] {
  return text.split(BETWEEN).filter((word) => word !== "");
}

/** `text.strip()`. */
export function stripped(text: string): string {
  return text.replace(AROUND, "");
}

/** `len(text)`: code points, not UTF-16 units. */
export function length(text: string): number {
  let count = 0;
  for (const _ of text) {
    count += 1;
  }
  return count;
}

/** `text.isupper()`. */
export function isUpper(text: string): boolean {
  return CASED.test(text) && !NOT_UPPER.test(text);
}

/** `text.isalpha()`. */
export function isAlpha(text: string): boolean {
  return /^\p{L}+$/u.test(text);
}

/** `text.isalnum()`. */
export function isAlphanumeric(text: string): boolean {
  return /^[\p{L}\p{N}]+$/u.test(text);
}

/** `text.capitalize()`. */
export function capitalized(text: string): string {
  const first = [...text.slice(0, 2)][0] ?? "";
  const lower = text.toLowerCase(); // of the whole: the form of a small sigma depends on what stands before it
  return titleCase(first) + lower.slice(first.toLowerCase().length);
}

function titleCase(character: string): string {
  if (GEORGIAN.test(character)) {
    return character;
  }
  titles ??= titleCases();
  const [head = "", ...tail] = character.toUpperCase(); // ß becomes SS, and at the beginning of a word Ss
  return titles.get(character) ?? head + tail.join("").toLowerCase();
}

function titleCases(): Map<string, string> {
  const found = new Map<string, string>();
  for (let code = 0x1c0; code < 0x2000; code++) {
    const character = String.fromCharCode(code);
    if (/\p{Lt}/u.test(character)) {
      for (const form of [character, character.toLowerCase(), character.toUpperCase()]) {
        found.set(form, character);
      }
    }
  }
  return found;
}

/** A regular expression of Python's `re`, as far as our tokenizers use it, as one of JavaScript. */
export function fromPython(pattern: string, flags = "gu"): RegExp {
  const ignoresCase = pattern.startsWith("(?i)");
  let source = "";
  let inClass = false;
  for (let place = ignoresCase ? 4 : 0; place < pattern.length; place++) {
    const pair = pattern.slice(place, place + 2);
    if (pair[0] === "\\") {
      source += pair === "\\s" ? (inClass ? SPACES : `[${SPACES}]`) : pair === '\\"' ? '"' : pair;
      place += 1;
      continue;
    }
    inClass = pair[0] === "[" ? true : pair[0] === "]" ? false : inClass;
    source += pair[0];
  }
  return new RegExp(source, ignoresCase ? `${flags}i` : flags);
}
