"""Batches for inference lack what a loss or a score needs: each says so in one line."""

import pytest
import torch

from zoo.batches.classification import collate_documents, collate_texts
from zoo.batches.translation import pad_batch
from zoo.models.attention_over_attention import AttentionOverAttentionReader


def test_targets_and_references():
    batch = pad_batch([[5, 6]], [[7]], tgt_text=["a word"])
    tgt, lengths = batch.targets()
    assert tgt.tolist() == [[2, 7, 3]] and lengths.tolist() == [2]
    assert batch.references() == ["a word"]
    with pytest.raises(ValueError, match="^this batch has no targets; give pad_batch those of its sentences$"):
        pad_batch([[5, 6]]).targets()
    with pytest.raises(ValueError, match="^this batch has no reference translations; a score needs them as tgt_text$"):
        pad_batch([[5, 6]]).references()


def test_labels_and_second_texts():
    labels = torch.tensor([1])
    assert collate_texts([[5]], labels).known_labels() is labels
    assert collate_documents([[[5]]], labels).known_labels() is labels
    for batch in (collate_texts([[5]]), collate_documents([[[5]]])):
        with pytest.raises(ValueError, match="^this batch has no labels; a loss and a score need them$"):
            batch.known_labels()
    tokens, lengths = collate_texts([[5]], texts2=[[6, 7]]).second()
    assert tokens.tolist() == [[6, 7]] and lengths.tolist() == [2]
    with pytest.raises(ValueError, match="^this batch has no second texts; a model of pairs reads batches of pairs$"):
        collate_texts([[5]]).second()


def test_answers():
    batch = AttentionOverAttentionReader(**AttentionOverAttentionReader.tiny).example_batch(4)
    assert batch.known_answers() is batch.answers
    with pytest.raises(ValueError, match="^this batch has no answers; a loss and a score need them$"):
        batch._replace(answers=None).known_answers()


def test_a_batch_of_questions_moves_to_a_device_with_or_without_answers():
    batch = AttentionOverAttentionReader(**AttentionOverAttentionReader.tiny).example_batch(4)
    moved = batch._replace(answers=None).to(torch.device("meta"))
    assert moved.answers is None and {part.device.type for part in moved[:-1]} == {"meta"}
    assert batch.to(torch.device("meta")).answers.device.type == "meta"
