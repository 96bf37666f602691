// Dates in words, and whether a text tells the day and the year of a date: zoo/text/dates.py.
export const NO_DATE = "no date"; // what a model of dates answers to a text that is none
const TWO_DIGITS = [1969, 2068]; // the first and the last year that two digits stand for

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

/** Whether day and year of a date are in a text, as different numbers, in words, or as eight digits. */
export function tells(text: string, year: number, month: number, day: number): boolean {
  const two = (number: number) => String(number).padStart(2, "0");
  const numbers: string[] = text.match(/\p{Nd}+/gu) ?? [];
  if (numbers.includes(`${year}${two(month)}${two(day)}`)) {
    return true;
  }
  const words = text.toLowerCase().replace(/[^a-z,]+/g, " ");
  const saidDay = (day < 10 ? NOT_AFTER_TENS : "") + inText(ordinalInWords(day));
  const saidYears = yearInWords(year).map((way) => `${inText(way)}\\b${year % 10 ? "" : NOT_BEFORE_MORE}`);
  const isShort = year >= TWO_DIGITS[0] && year <= TWO_DIGITS[1];
  const isTold = (digits: string[], said: string[]) => {
    const place = numbers.findIndex((number) => digits.includes(number));
    if (place >= 0) {
      numbers.splice(place, 1);
    }
    return place >= 0 || said.some((way) => new RegExp(way).test(words));
  };
  return (
    isTold([String(day), two(day)], [saidDay]) &&
    isTold([String(year), ...(isShort ? [two(year % 100)] : [])], saidYears)
  );
}
