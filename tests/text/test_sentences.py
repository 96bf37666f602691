import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.batches.classification import collate_documents, collate_texts
from zoo.text import PAD, Tokenizer
from zoo.text.sentences import _parts, encode_document, split_sentences

DOCUMENTS = [[[4, 5], [6]], [], [[7, 8, 9]], [[1], [2], [], [3, 3]]]


def _sentences(batch):
    """The documents of a batch as lists of lists."""
    words, lengths = iter(batch.words.tolist()), iter(batch.sentence_lengths.tolist())
    rebuilt = [[[next(words) for _ in range(next(lengths))] for _ in range(n)] for n in batch.document_lengths.tolist()]
    assert next(words, None) is None and next(lengths, None) is None
    return rebuilt


def test_texts_are_padded():
    labels = torch.tensor([2, 0, 1])
    batch = collate_texts([[4, 5], [], [6]], labels, [[7], [8, 9, 7], []])
    assert batch.tokens.tolist() == [[4, 5], [PAD, PAD], [6, PAD]] and batch.tokens.dtype == torch.int64
    assert batch.lengths.tolist() == [2, 0, 1] and batch.labels is labels
    assert batch.tokens2.tolist() == [[7, PAD, PAD], [8, 9, 7], [PAD] * 3] and batch.lengths2.tolist() == [1, 3, 0]


def test_a_batch_of_empty_texts_has_a_column():
    batch = collate_texts([[], []])
    assert batch.tokens.tolist() == [[PAD], [PAD]] and batch.lengths.tolist() == [0, 0]
    assert (batch.labels, batch.tokens2, batch.lengths2) == (None, None, None)


def test_documents_are_joined_without_padding():
    batch = collate_documents(DOCUMENTS, torch.arange(4))
    assert batch.words.tolist() == [4, 5, 6, 7, 8, 9, 1, 2, 3, 3]
    assert batch.sentence_lengths.tolist() == [2, 1, 3, 1, 1, 2]  # the empty sentence is gone
    assert batch.document_lengths.tolist() == [2, 0, 1, 3]
    assert all(tensor.dtype == torch.int64 for tensor in batch)
    empty = collate_documents([[], [[]]])
    assert [tensor.tolist() for tensor in empty[:3]] == [[], [], [0, 0]] and empty.words.dtype == torch.int64


@given(
    st.lists(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), max_size=4), min_size=1, max_size=6),
    st.data(),
)
@settings(max_examples=80, deadline=None)
def test_select(documents, data):
    rows = data.draw(st.lists(st.integers(0, len(documents) - 1), max_size=6))
    batch = collate_documents(documents, torch.arange(len(documents)))
    for chosen in (rows, slice(min(rows, default=0), max(rows, default=0)), slice(None)):
        numbers = list(range(len(documents)))[chosen] if isinstance(chosen, slice) else chosen
        part = batch.select(chosen)
        assert _sentences(part) == [documents[number] for number in numbers]
        assert part.labels.tolist() == numbers
        texts = [[word for sentence in document for word in sentence] for document in documents]
        texts2 = [text[::-1] + [5] for text in texts]
        part = collate_texts(texts, batch.labels, texts2, batch.labels / 2).select(chosen)
        labels = torch.tensor(numbers, dtype=torch.int64)
        alone = collate_texts([texts[n] for n in numbers], labels, [texts2[n] for n in numbers], labels / 2)
        assert [tensor.tolist() for tensor in part] == [tensor.tolist() for tensor in alone]
    assert batch._replace(labels=None).select([0]).labels is None


@pytest.mark.parametrize(
    "sentences",
    [
        ["Mr. Smith met Dr. Jones in the U.S. on Jan. 5.", "They talked."],
        ["He lives in the U.S.", "He likes it."],
        ['"Stop!" he said.', '"Why?" she asked.', "They left."],
        ["It was bad... really bad.", "What?!", "No way!!", "Yes."],
        ["It cost $3.50.", "That is 2.5 times more.", "Version 1.2.3 is out."],
        ["this film was awful.", "i hated it.", "don't watch it!"],
        ["J. R. R. Tolkien wrote it.", "P. T. Anderson did not."],
        ["it was good .", "it was bad ."],
    ],
)
def test_sentences(sentences):
    assert split_sentences(" ".join(sentences)) == sentences


def test_sentences_without_space_between():
    assert split_sentences("The film ended.Then we left.I was sad.") == [
        "The film ended.",
        "Then we left.",
        "I was sad.",
    ]


def test_lines_and_paragraphs():
    assert split_sentences("A title\n \t\n\r\nThe first\nsentence is\r\nhere. Next\n\n\n") == [
        "A title",
        "The first sentence is here.",
        "Next",
    ]
    assert split_sentences("") == split_sentences(" \n\n \u2003") == []


TOKENIZER = Tokenizer.train(["the a it is not film good . ! ? , 1 2"], "word_punct", 100, lowercase=True)


def _joined(sentences):
    return [word for sentence in sentences for word in sentence]


@given(st.text(max_size=60) | st.text("aB.!?…'\"”) \n\u00a0\u2003é1,-", max_size=60))
@settings(max_examples=300, deadline=None)
def test_no_word_is_lost(text):
    ids, words = encode_document(text, TOKENIZER)
    assert _joined(ids) == TOKENIZER.encode(text) and _joined(words) == TOKENIZER.words(text)
    assert list(map(len, ids)) == list(map(len, words)) and all(ids)


def test_encode_document():
    text = "The film is GOOD!\n\n\u200b It isn't."
    ids, words = encode_document(text, TOKENIZER)
    assert words == [["The", "film", "is", "GOOD", "!"], ["\u200b", "It", "is", "n't", "."]]
    assert ids[0] == TOKENIZER.encode("the film is good !")
    assert encode_document(" ", TOKENIZER) == ([], [])


@pytest.mark.parametrize(
    ("unit", "times"),
    [("word ", 3_000), ("It is good. ", 10_000), *[(unit, 40_000) for unit in ("(", '" ', ".", "\n ", "Mr. ")]],
)
def test_time_is_linear(unit, times):
    text = unit * times
    begin = time.process_time()
    ids, _ = encode_document(text, TOKENIZER)
    assert time.process_time() - begin < 20  # a quadratic way takes hours
    assert sum(map(len, ids)) == len(TOKENIZER.encode(text))


@pytest.mark.parametrize("mark", ["\u201c", '"', "(", "\u00ab", "\u2018"])
def test_the_time_for_marks_that_are_never_closed_is_linear(mark):
    text = f"{mark}Well. " * 20_000  # 1.7 s at once for a curly quotation mark
    start = time.perf_counter()
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())
    assert time.perf_counter() - start < 30
    assert max(map(len, _parts(text))) <= 20_000


def test_parts_of_a_long_paragraph():
    for text in ("One. Two! " * 9_000, "word " * 9_000, "x" * 50_001, "a. " + "b" * 60_000):
        parts = list(_parts(text))
        assert "".join(parts) == text and max(map(len, parts)) <= 20_000 and len(parts) > 2
    assert list(_parts("Short. Text.")) == ["Short. Text."] and list(_parts("")) == [""]
