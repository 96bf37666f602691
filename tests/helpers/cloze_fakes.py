"""Made-up books and questions in the files of CBTLike."""

import numpy as np
from labeled_fakes import table, write

NAMES = "Alice Bob Carol Dave Eve Frank".split()


def invent(root, kind="NE", questions=60):
    """Books and questions in the files and forms of CBTLike; one word of each book is in no other."""
    rng = np.random.default_rng(0)
    for split in ("train", "valid", "test"):
        lines = [f"_BOOK_TITLE_ : {split}"]
        for _ in range(questions + 20):
            name, other = rng.choice(NAMES, 2)
            extra = " ".join(rng.choice(["so", "then", "again", "quietly"], rng.integers(0, 6)))
            lines.append(f"{extra} {name} of {split} met {other} .".strip())
        rows = []
        for start in range(1, questions):
            words = lines[start + 20].split(" ")
            pos = words.index("met") - 3
            context = " ".join(lines[start : start + 20]).split(" ")
            if words[pos] in context:
                rows.append((start, pos, words[pos], "|".join(name for name in NAMES if name in context)))
        write(root / "text" / f"cbt_books_{split}.txt.xz", "\n".join(lines) + "\n")
        table(root / "text" / f"cbtlike_{kind}_{split}.tsv.xz", ("start", "pos", "answer", "candidates"), rows)
