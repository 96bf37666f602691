// Plain forms of characters that a vocabulary lacks: zoo/text/characters.py.
import { isSpace } from "./characters.ts";

const ALIKE = ["'’‘‚‛′´`ʼ‹›", '"“”„‟«»″', "-–‐‑‒−—―"]; // the best first
const LONG_DASHES = "—―"; // between parts of a sentence, where a hyphen joins words
const IGNORED = /^[\p{Cf}\p{Mn}]$/u; // what steers the direction or the form of others, and accents of their own

/** Gives the characters that a vocabulary lacks plain forms: other marks, letters of a ligature, no accent; or nothing. */
export class PlainForms {
  private readonly forms = new Map<string, string>();
  private readonly known: ReadonlySet<string>;

  /** `isUnknown`: whether a character alone, not one of those known, means nothing to the tokenizer. */
  constructor(
    known: Iterable<string>,
    private readonly isUnknown: (character: string) => boolean,
  ) {
    this.known = new Set([...known, " "]);
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
    return formsOf(character).find((form) => Array.from(form).every((part) => this.known.has(part))) ?? character;
  }
}

/** What may stand in place of a character, the best first. */
function formsOf(character: string): string[] {
  const compatible = character.normalize("NFKC").replace("⁄", "/"); // a fraction has a slash of its own
  const bare = Array.from(character.normalize("NFKD")).filter((part) => !isSpace(part) && !/\p{Mn}/u.test(part));
  return [
    ...(LONG_DASHES.includes(character) ? [" - "] : []),
    ...ALIKE.filter((group) => group.includes(character)).flatMap((group) => Array.from(group)),
    ...(Array.from(compatible).some(isSpace) ? [] : [compatible]),
    bare.join("") || character,
  ];
}
