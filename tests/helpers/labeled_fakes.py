"""Made-up labelled texts in the files and forms of the real data sets."""

import json
import lzma
import random

from zoo.data import FDUMTL, IMDB, SICK, SST, TREC6, CaptionPairs, LabeledText, Reuters, TwentyNewsgroups

WORDS = (
    "a the this that and but with of in on it was is not very quite film story actor scene music plot town market "
    "price "
    "ship water report company question answer people house dog man woman child road game car screen light"
).split()


def sentence(rng, label, words=None):
    """Random words, one of which tells the label."""
    chosen = rng.choices(WORDS, k=words or rng.randint(3, 9))
    chosen.insert(rng.randrange(len(chosen) + 1), f"word{label}")
    return " ".join(chosen)


def document(rng, label, sentences=None):
    """Sentences with capitals, punctuation, contractions and paragraphs."""
    parts = [sentence(rng, label).capitalize() for _ in range(sentences or rng.randint(1, 6))]
    return "".join(
        part + rng.choice([". ", "! ", ", didn't it? ", ".\n\n", ". It's $3.50. "]) for part in parts
    ).strip()


def table(path, columns, rows):
    """Writes a tab-separated table, .xz if the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join("\t".join(map(str, row)) + "\n" for row in [columns, *rows])
    write(path, text)


def json_lines(path, rows):
    """Writes JSON lines, .xz if the name says so."""
    write(path, "".join(json.dumps(row) + "\n" for row in rows))


def write(path, text):
    """Writes a text file, .xz if the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (lzma.open if path.suffix == ".xz" else open)(path, "wt", encoding="utf-8", newline="\n") as file:
        file.write(text)


def invent(data_class, init_args, root):
    """Writes files that `data_class(**init_args)` reads from `root`: every class occurs in every split."""
    _WRITERS[data_class](random.Random(0), root, init_args)


def _imdb(rng, root, init_args):
    for part in ("train", "test"):
        rows = []
        for number in range(80):
            rating = (1, 2, 3, 4, 7, 8, 9, 10)[number % 8]
            text = document(rng, rating).replace("\n", "<br />")
            rows.append((number, int(rating > 5), rating, text))
        table(root / f"imdb_{part}.tsv.xz", ("id", "label", "rating", "text"), rows)


def _reuters(rng, root, init_args):
    topics = [f"topic-{number}" for number in range(90)]
    rows = []
    for part, odd in (("train", "only-train"), ("test", "only-test")):
        for number in range(180):
            names = sorted({topics[number % 90], *rng.sample(topics, number % 2)})
            if number % 10 == 0:
                names.append(odd)
            rows.append({"topics": names, "text": document(rng, names[0])})
        rows += [{"topics": names, "text": "Left out."} for names in ([], [odd])]
        rows[-182:] = [{"split": part, "title": "A TITLE", **row} for row in rows[-182:]]
    json_lines(root / "reuters_modapte.jsonl.xz", [{"id": number, **row} for number, row in enumerate(rows)])


def _newsgroups(rng, root, init_args):
    rows = []
    for part in ("train", "test"):
        for number in range(80):
            label = TwentyNewsgroups.known_labels[number % 20]
            header = "From: someone@example.org\nSubject: Re: talk\nLines: 9"
            quote = f"someone@example.org writes:\n> {document(rng, 'quoted', 1)}\n"
            text = f"{header}\n\n{quote}\n{document(rng, label)}\n\n--\nA. Person, Some Place\n"
            rows.append({"id": number, "split": part, "label": label, "text": text})
    json_lines(root / "20news_bydate.jsonl.xz", rows)


def tree(rng, label, words):
    """A random binary tree over the words, its root with the label, in the form of the Stanford Sentiment Treebank."""
    if len(words) == 1:
        return f"({label} {words[0]})"
    cut = rng.randrange(1, len(words))
    parts = (tree(rng, rng.randrange(5), part) for part in (words[:cut], words[cut:]))
    return f"({label} {' '.join(parts)})"


def _sst(rng, root, init_args):
    rows = []
    for part, count in (("train", 80), ("dev", 40), ("test", 40)):
        rows += [(part, number % 5, f"{sentence(rng, number % 5)} , does n't it ?") for number in range(count)]
    table(root / "sst5.tsv.xz", ("split", "label", "text"), rows)
    polar = [(part, int(label > 2), text) for part, label, text in rows if label != 2]
    table(root / "sst2.tsv.xz", ("split", "label", "text"), polar)
    trees = [tree(rng, label, text.split()) for part, label, text in rows if part == "train"]
    write(root / "sst_trees.train.txt.xz", "".join(f"{line}\n" for line in trees))


def _trec(rng, root, init_args):
    labels = [(part, number % 6) for part in ("train", "test") for number in range(60)]
    rows = [(part, label, f"What {sentence(rng, label)} ?") for part, label in labels]
    table(root / "trec6.tsv.xz", ("split", "label", "text"), rows)


def _sick(rng, root, init_args):
    names = SICK.known_labels
    columns = ("gold_label", "sentence1", "sentence2")
    rows = [
        (part, names[number % 3], 1.0 + number % 5, sentence(rng, number % 3), sentence(rng, number % 3))
        for part in ("train", "dev", "test")
        for number in range(60)
    ]
    table(root / "sick.tsv.xz", ("split", "gold_label", "relatedness", *columns[1:]), rows)
    for part in ("dev", "test"):
        pairs = [(names[number % 3], f"{sentence(rng, part)} .", f"{sentence(rng, part)} .") for number in range(40)]
        table(root / f"snli_{part}.tsv.xz", columns, pairs)


def _caption_pairs(rng, root, init_args):
    """Captions without the images: each of a photo names it, and is different."""
    rows = [
        (f"{part}{photo}.jpg", part, number, f"{sentence(rng, f'{part}{photo}')} number{number} .")
        for part, photos in (("train", 12), ("val", 4), ("test", 3))
        for photo in range(photos)
        for number in range(5)
    ]
    table(root / "captions.tsv", ("image", "split", "caption_id", "caption"), rows)


def _fdu_mtl(rng, root, init_args):
    rows = [
        (domain, part, number % 2, f"{domain} n{number} {sentence(rng, number % 2)} . {sentence(rng, number % 2)} !")
        for domain in ("books", "MR")
        for part, count in (("train", 120), ("test", 40))
        for number in range(count)
    ]
    rows.append(("books", "train", 1, rows[120][3]))  # a review of the test again
    table(root / "fdu_mtl16.tsv.xz", ("domain", "split", "label", "text"), rows)


def _labeled_text(rng, root, init_args):
    for part in ("train", "val", "test"):
        if name := init_args.get(part):
            rows = [(f"class{number % 3}", " ".join(document(rng, number % 3).split())) for number in range(60)]
            table(root / name, (init_args.get("label_column", "label"), init_args.get("text_column", "text")), rows)


_WRITERS = {
    IMDB: _imdb,
    Reuters: _reuters,
    TwentyNewsgroups: _newsgroups,
    SST: _sst,
    TREC6: _trec,
    SICK: _sick,
    CaptionPairs: _caption_pairs,
    FDUMTL: _fdu_mtl,
    LabeledText: _labeled_text,
}
