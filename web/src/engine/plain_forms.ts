// Plain forms of characters that a vocabulary lacks: zoo/text/characters.py.
import { isAlphanumeric, isSpace } from "./characters.ts";

const ALIKE = ["'’‘‚‛′´`ʼ‹›", '"“”„‟«»″', "-–‐‑‒−—―"]; // the best first
const LONG_DASHES = "—―"; // between parts of a sentence, where a hyphen joins words
const IGNORED = /^[\p{Cf}\p{Mn}]$/u; // what steers the direction or the form of others, and accents of their own

/** Gives the characters that a vocabulary lacks plain forms: other marks, letters of a ligature, no accent; or nothing. */
export class PlainForms {
  private readonly forms = new Map<string, string>();
  private readonly known: ReadonlySet<string>;

  /** `isUnknown`: whether a text means nothing to the tokenizer. */
  constructor(
    known: Iterable<string>,
    private readonly isUnknown: (text: string) => boolean,
  ) {
    this.known = new Set(known);
  }

  applied(text: string): string {
    return Array.from(text.normalize("NFC"), (character) => this.formOf(character)).join("");
  }

  private formOf(character: string): string {
    let form = this.forms.get(character);
    if (form === undefined) {
      form = this.found(character);
      this.forms.set(character, form);
    }
    return form;
  }

  private found(character: string): string {
    if (this.known.has(character) || isSpace(character) || !this.isUnknown(character)) {
      return character;
    }
    if (IGNORED.test(character)) {
      return "";
    }
    if (/\p{No}/u.test(character)) {
      return character; // "1½" is not "11/2"
    }
    return formsOf(character).find((form) => this.isRead(form)) ?? character;
  }

  /** Whether a form is known; of letters it suffices that words are made of them. */
  private isRead(form: string): boolean {
    return !this.isUnknown(form) || (isAlphanumeric(form) && Array.from(form).every((part) => this.known.has(part)));
  }
}

/** What may stand in place of a character, the best first. */
function formsOf(character: string): string[] {
  const compatible = character.normalize("NFKC");
  const bare = Array.from(character.normalize("NFKD")).filter((part) => !isSpace(part) && !/\p{Mn}/u.test(part));
  return [
    ...(LONG_DASHES.includes(character) ? [" - "] : []),
    ...ALIKE.filter((group) => group.includes(character)).flatMap((group) => Array.from(group)),
    ...(Array.from(compatible).some(isSpace) ? [] : [compatible]),
    bare.join("") || character,
  ];
}
