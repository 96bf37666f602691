// What the fields hold at first, and other examples to try.
export const TEXTS: Record<string, string[]> = {
  en: [
    "A dog runs in the snow.",
    "Two children in red jackets are playing on the beach.",
    "A man with a guitar sits next to a woman who is reading a book.",
  ],
  de: [
    "Ein Hund rennt durch den Schnee.",
    "Zwei Kinder in roten Jacken spielen am Strand.",
    "Ein Mann mit einer Gitarre sitzt neben einer Frau, die ein Buch liest.",
  ],
  fr: ["je suis très heureux .", "elle ne parle pas anglais .", "nous sommes prêts à partir ."],
  dates: ["3 May 1999", "Tuesday, October 12, 2004", "21 aug 1973"],
  everyday: ["Ich habe heute keine Zeit.", "Wo ist der Bahnhof?", "Das Buch liegt auf dem Tisch."],
};

/** Texts for translators: by what they were trained on. */
export function textsFor(name: string, language: string): string[] {
  if (name.endsWith(".dates")) {
    return TEXTS.dates;
  }
  return name.includes(".tatoeba_de") ? TEXTS.everyday : (TEXTS[language] ?? TEXTS.en);
}

export const DOCUMENTS: Record<string, string[]> = {
  imdb: [
    "The first half hour is slow and the jokes are tired. Then Anna walks in and everything changes. She is " +
      "wonderful, the music is great, and the ending made me cry. I would not call it a masterpiece, but I " +
      "loved it.",
    "I wanted to like this film. The actors are good and the photography is beautiful. But the story is " +
      "boring, the dialogue is awful, and after two hours I was glad that it was over.",
  ],
  reuters: [
    "The company said it expects a net profit of 12 mln dlrs in the fourth quarter. Shareholders will receive " +
      "a dividend of 25 cts per share. The results do not include the sale of its oil unit.",
    "Wheat exports rose sharply in March, the Agriculture Department said. Farmers in Kansas expect a smaller " +
      "crop after the dry winter. Corn prices were unchanged.",
  ],
  sst2: ["A funny, warm and surprisingly moving film.", "The plot is thin and not even the great cast can save it."],
  trec6: [
    "Who wrote the first dictionary of English?",
    "How far is the moon from the earth?",
    "What city hosted the 1936 Olympics?",
  ],
  sick: ["A dog is running in the snow.", "A man is playing a guitar."],
};

/** Second texts of pairs. */
export const SECONDS = ["An animal is running outdoors.", "Nobody is playing an instrument."];

export const BEGINNINGS = [
  "the company said it expects to report a loss for the third quarter because",
  "mr. smith who joined the firm in N said the",
  "the bank of japan said it will raise interest rates and the",
];

export const STORIES = [
  {
    document:
      "Anna lived with her brother Peter in a small house by the sea. Their uncle John was a fisherman. Every " +
      "morning John went out in his boat, and in the evening he brought fish home. One day there was a storm, " +
      'and John did not come back. "We must find him," said Anna. Peter was afraid, but Anna took the lamp and ' +
      "went down to the beach.",
    query: "There on the sand lay the broken boat, and beside it sat XXXXX, wet and cold, but alive.",
    candidates: "Anna Peter John",
  },
  {
    document:
      '"Come here," said Anna to her brother Peter. Peter was asleep under the tree and did not hear her. Anna ' +
      'called a second time. "Peter! The boat is gone!" At last Peter woke up and rubbed his eyes. Their uncle ' +
      "John had taken the boat and was fishing on the lake.",
    query: '"What is it, Anna?" asked XXXXX, who was still half asleep.',
    candidates: "Anna Peter John",
  },
];
