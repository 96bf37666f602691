"""Classifiers of texts, of pairs of texts and of documents: classifier.onnx.

Shapes: B batch, S length, N sentences of a document, W words of a sentence, H states of both directions, C classes.
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zoo.batches.classification import DocumentBatch, TextBatch
from zoo.layers.attention import LocalPredictiveAttention
from zoo.layers.masking import lengths_to_mask, masked_softmax
from zoo.layers.packed import to_padded
from zoo.models.attention_classifier import AttentionClassifier
from zoo.models.han import HAN, ContextAttention
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.onnx_export.graphs import Graph, Tensors, check_graph, write_graph
from zoo.onnx_export.watching import POSITION, SCORES, watching
from zoo.text import PAD, UNK

LAST = 2**30  # a position after the end of every text


def _read_with_query(model: AttentionClassifier, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    """tokens (B, S), lengths (B,) -> logits (B, C), weights (B, 1, S), and what `watching` finds."""
    states, finals = model.encoder(model.embedding(tokens), lengths)
    memory = model.attention.project(states, lengths_to_mask(lengths, tokens.size(1)))
    query = finals[-1][0].unsqueeze(1)
    with watching(model) as before_weights:
        context, weights = model.attention(query, memory, LAST)
    hidden = torch.tanh(model.w_c(torch.cat([context, query], dim=-1))).squeeze(1)
    return model.classifier(hidden), weights, *before_weights.values()


def _read_hops(model: StructuredSelfAttention, tokens: Tensor, lengths: Tensor, **second: Tensor) -> tuple[Tensor, ...]:
    """tokens (B, S), lengths (B,), for pairs tokens2, lengths2 -> logits (B, C), weights (B, hops, S) of each text.

    A model that predicts it also gives the relatedness (B,). The scores (B, hops, S) of each text come last.
    """
    scores: list[Tensor] = []
    model.embed_text = partial(_embed_padded, model, scores)
    logits, weights, related = model.read_related(TextBatch(tokens, lengths, None, **second))
    return logits, *weights, *([] if related is None else [related]), *scores


def _embed_padded(
    model: StructuredSelfAttention, scores: list[Tensor], tokens: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """M and the weights of padded texts, whose scores are added to the list."""
    states, _ = model.encoder(model.embedding(tokens), lengths)
    scores.append(model.attention.scores(states).transpose(1, 2))  # (B, hops, S)
    weights = masked_softmax(scores[-1], lengths_to_mask(lengths, tokens.size(1)).unsqueeze(1))
    return torch.bmm(weights, states), weights


def _read_documents(model: HAN, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
    """tokens (B, N, W), lengths (B, N) -> logits (B, C), weights of words (B, N, W) and of sentences (B, N), scores."""
    shape, words, sentences = tokens.shape, lengths.flatten(), (lengths > 0).sum(1)
    states, _ = model.word_encoder(model.embedding(tokens.flatten(0, 1)), words)  # (B N, W, H)
    vectors, word_weights, word_scores = _attend(model.word_attention, states, lengths_to_mask(words, shape[2]))
    states, _ = model.sentence_encoder(vectors.unflatten(0, shape[:2]), sentences)  # (B, N, H)
    documents, weights, scores = _attend(model.sentence_attention, states, lengths_to_mask(sentences, shape[1]))
    word_weights, word_scores = (x.unflatten(0, shape[:2]) for x in (word_weights, word_scores))
    return model.classifier(documents), word_weights, weights, word_scores, scores


def _attend(attention: ContextAttention, items: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """items (B, S, H), mask (B, S) -> sums (B, H), weights (B, S) and their scores."""
    scores = attention.scores(items)
    weights = masked_softmax(scores, mask)
    return torch.matmul(weights.unsqueeze(1), items).squeeze(1), weights, scores


def padded_documents(batch: DocumentBatch) -> Tensors:
    """Inputs of a document classifier: tokens (B, N, W), lengths (B, N) words per sentence, 0 after the last."""
    real = lengths_to_mask(batch.document_lengths)
    rows = to_padded(batch.words, lengths_to_mask(batch.sentence_lengths))  # (sentences, W)
    return {"tokens": to_padded(rows, real), "lengths": to_padded(batch.sentence_lengths, real)}


def write_classifier(model: Any, traced: Any, folder: Path) -> dict[str, Any]:
    """classifier.onnx."""

    def example(size: int) -> tuple[Tensors, tuple[Tensor, ...]]:
        batch = model.example_batch(size)
        logits, weights, related = model.read_related(batch)
        if isinstance(model, HAN):
            return padded_documents(batch), (logits,)
        outputs = [logits, *weights, *([] if related is None else [related])]
        return {name: x for name, x in batch._asdict().items() if x is not None and name != "labels"}, tuple(outputs)

    (inputs, _), (others, expected) = example(6), example(4)
    if isinstance(model, HAN):
        outputs = ["logits", "word_attention", "sentence_attention", "word_scores", "sentence_scores"]
        axes = {"tokens": ("batch", "sentences", "words"), "lengths": ("batch", "sentences")}
    else:
        outputs = ["logits", *["attention", "attention2"][: 1 + ("tokens2" in inputs)]]
        outputs += ["relatedness"] * (len(expected) > len(outputs))
        if isinstance(model, AttentionClassifier):
            outputs += [SCORES, *[POSITION] * isinstance(model.attention, LocalPredictiveAttention)]
        else:
            outputs += [SCORES, f"{SCORES}2"][: 1 + ("tokens2" in inputs)]
        axes = {
            "tokens": ("batch", "length"),
            "lengths": ("batch",),
            "tokens2": ("batch", "length2"),
            "lengths2": ("batch",),
        }
    graph = write_graph(folder / "classifier.onnx", Graph(traced, CLASSIFIERS[type(model)]), inputs, axes, outputs)
    check_graph(folder / "classifier.onnx", others, expected)
    found = {"task": "classification", "special_tokens": {"pad": PAD, "unk": UNK}, "labels": model.label_names}
    if isinstance(model, HAN):  # before splitting into sentences; tokenizer.json does it for each sentence
        found["cleaning"] = model.tokenizer.cleaning_steps() if model.tokenizer else []
    return {**found, "multi_label": model.config["multi_label"], "graphs": {"classifier.onnx": graph}}


CLASSIFIERS = {AttentionClassifier: _read_with_query, HAN: _read_documents, StructuredSelfAttention: _read_hops}
