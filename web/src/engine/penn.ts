// Words of plain text in the form of the Penn Treebank, as zoo/text/penn.py: do n't, it 's, $ N, N %.

export const CONTRACTED = "n't"; // in the vocabulary of a model that has learnt from such text
const MARKS = '",;:!?().“”'; // around a word, which the text of language models lacks
const NUMBER = /^[-+]?\p{Nd}[\p{Nd}.,]*$/u;
const AMOUNT = /^([A-Za-z]{0,2}\$|[#£€¥])?([-+]?\p{Nd}[\p{Nd}.,]*)(%)?$/u;
const END = /(?:n't|'(?:s|ll|re|ve|d|m)|(?<=s)')$/i;

export function isNumber(word: string): boolean {
  return NUMBER.test(word);
}

/** The words of which a string between spaces consists: `do n't` of don't, `$ 3.50` of $3.50. */
export function treebankWords(chunk: string): string[] {
  let word = withoutMarks(chunk.replace(/[‘’]/g, "'"));
  const amount = AMOUNT.exec(word);
  if (amount) {
    return amount.slice(1).filter(Boolean).map((part) => (part === "£" ? "#" : part)); // as the Treebank writes it
  }
  if (word.toLowerCase() === "cannot") {
    return [word.slice(0, 3), word.slice(3)];
  }
  if (word.startsWith("'") || !word.endsWith("s'")) {
    word = word.replace(/'$/, ""); // a quotation mark
  }
  const ends: string[] = [];
  for (let found = END.exec(word); found && found.index; found = END.exec(word)) {
    word = word.slice(0, found.index);
    ends.unshift(found[0]);
  }
  return [word.replace(/^'+|'+$/g, "") || word, ...ends];
}

/** A word without the punctuation marks around it. */
export function withoutMarks(word: string): string {
  let start = 0;
  let end = word.length;
  while (start < end && MARKS.includes(word[start])) {
    start += 1;
  }
  while (end > start && MARKS.includes(word[end - 1])) {
    end -= 1;
  }
  return word.slice(start, end);
}
