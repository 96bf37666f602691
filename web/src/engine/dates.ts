// Dates in words, and whether a text tells a date: zoo/text/dates.py.
export const NO_DATE = "no date"; // what a model of dates answers to a text that is none
const TWO_DIGITS = [1969, 2068]; // the first and the last year that two digits stand for

const MONTHS = "january february march april may june july august september october november december".split(" ");
const SMALL = (
  "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen " +
  "eighteen nineteen"
).split(" ");
const TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split(" ");
const IRREGULAR: Record<string, string> = {
  one: "first",
  two: "second",
  three: "third",
  five: "fifth",
  eight: "eighth",
  nine: "ninth",
  twelve: "twelfth",
  twenty: "twentieth",
  thirty: "thirtieth",
};

const NOT_AFTER_TENS = TENS.map((tens) => `(?<!${tens})(?<!${tens} )`).join(""); // "twenty first" is not the first
const MORE = [...SMALL, ...TENS].join("|");
const NOT_BEFORE_MORE = `(?! ?(?:and |oh )?(?:${MORE})\\b)`; // "two thousand and nine" is not the year 2000

const NTHS = [...Object.values(IRREGULAR), ...SMALL.map((word) => `${word}th`)].join("|");
const DAYS =
  "monday|tuesday|wednesday|thursday|friday|saturday|sunday|mon|tue|tues|wed|weds|thu|thur|thurs|fri|sat|sun";
const COUNTED_WEEKDAY = new RegExp(`(?:[0-9](?:st|nd|rd|th)|\\b(?:${NTHS})) ?(?:${DAYS})\\.? (?:of|in)\\b`); // 2nd Sunday of May
const OTHER_ERA = /[0-9] ?b\.? ?c(?:\.? ?e)?\b/;

/** 25 -> "twenty five", for numbers below 100. */
function inWords(number: number): string {
  if (number < 20) {
    return SMALL[number];
  }
  const ones = number % 10;
  return TENS[Math.floor(number / 10) - 2] + (ones ? ` ${SMALL[ones]}` : "");
}

/** 25 -> "twenty fifth". */
function ordinalInWords(day: number): string {
  const words = inWords(day).split(" ");
  const last = words.pop()!;
  return [...words, IRREGULAR[last] ?? `${last}th`].join(" ");
}

/** The ways to say a year: 1906 -> "nineteen oh six"; 2009 also "two thousand and nine". */
function yearInWords(year: number): string[] {
  const [hundreds, ones] = [Math.floor(year / 100), year % 100];
  const found: string[] = [];
  if (year % 1000 < 100) {
    const thousand = `${inWords(Math.floor(year / 1000))} thousand`;
    found.push(...(ones ? [`${thousand} and ${inWords(ones)}`, `${thousand} ${inWords(ones)}`] : [thousand]));
  }
  if (ones >= 10) {
    found.push(`${inWords(hundreds)} ${inWords(ones)}`);
  } else if (hundreds % 10 || ones) {
    found.push(`${inWords(hundreds)} ${ones ? `oh ${inWords(ones)}` : "hundred"}`);
  }
  return found;
}

/** A regular expression for a number in words, between which there may be commas. */
const inText = (number: string) => number.replace(/ /g, "[ ,]+");

/** Whether day, month and year of a date are in a text; a month may be shortened, or have a wrong letter. */
export function tells(given: string, year: number, month: number, day: number): boolean {
  const two = (number: number) => String(number).padStart(2, "0");
  const text = given.toLowerCase();
  if (OTHER_ERA.test(text) || COUNTED_WEEKDAY.test(text)) {
    return false;
  }
  const numbers: string[] = text.match(/\p{Nd}+/gu) ?? [];
  if (numbers.includes(`${year}${two(month)}${two(day)}`)) {
    return true;
  }
  const apart = text.replace(/(\p{Nd})(?:st|nd|rd|th)/gu, "$1 ");
  const words = text.replace(/[^a-z,]+/g, " ");
  const saidDay = (day < 10 ? NOT_AFTER_TENS : "") + inText(ordinalInWords(day));
  const saidYears = yearInWords(year).map((way) => `${inText(way)}\\b${year % 10 ? "" : NOT_BEFORE_MORE}`);
  const isShort = year >= TWO_DIGITS[0] && year <= TWO_DIGITS[1];
  const takes = (...digits: string[]) => {
    const place = numbers.findIndex((number) => digits.includes(number)); // among those that tell nothing else yet
    if (place >= 0) {
      numbers.splice(place, 1);
    }
    return place >= 0;
  };
  const says = (ways: string[]) => ways.some((way) => new RegExp(way).test(words));
  return (
    (takes(String(year)) || says(saidYears) || (isShort && takes(two(year % 100)))) &&
    (takes(String(day), two(day)) || says([saidDay])) &&
    (takes(String(month), two(month)) || names(`${text} ${apart}`, MONTHS[month - 1]))
  );
}

/** Whether a text in lower case has the beginning of a month, or its name with a wrong letter. */
function names(text: string, month: string): boolean {
  return text.includes(month.slice(0, 3)) || (text.match(/[a-z]+/g) ?? []).some((word) => isSlip(word, month));
}

/** Whether one letter of a name (but of May) is missing, wrong or too many, or two have changed places. */
function isSlip(word: string, name: string): boolean {
  if (name.length < 4 || Math.abs(word.length - name.length) > 1) {
    return false;
  }
  let same = 0;
  while (same < Math.min(word.length, name.length) && word[same] === name[same]) {
    same += 1;
  }
  const [rest, wanted] = [word.slice(same), name.slice(same)];
  const swapped = rest.slice(1, 2) + rest.slice(0, 1) + rest.slice(2);
  return rest.slice(1) === wanted.slice(1) || rest.slice(1) === wanted || rest === wanted.slice(1) || swapped === wanted;
}
