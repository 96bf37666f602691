"""Readers of a document and a query with one word left out: reader.onnx.

Shapes: B examples, D and L words of the longest document and query, H states of both directions.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from zoo.batches.reading import ClozeBatch
from zoo.layers.masking import lengths_to_mask, masked_softmax
from zoo.layers.packed import segment_ids, to_padded
from zoo.models.attention_over_attention import (
    AttentionOverAttentionReader,
    attend_both_ways,
    keep_weights,
    outside_query,
)
from zoo.onnx_export.graphs import Graph, Tensors, check_graph, meaning, write_graph
from zoo.text import PAD, UNK
from zoo.text.words import BLANK, BLANK_ID


def _read(
    model: Any,
    document: Tensor,
    document_lengths: Tensor,
    query: Tensor,
    query_lengths: Tensor,
    not_in_query: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """document (B, D), document_lengths (B,), query (B, L), query_lengths (B,), embedding rows -> weights (B, D).

    A model that excludes query words also takes not_in_query (B, D) bool. Except for the attention-sum reader there are
    also query weights (B, L) and both attentions, alpha and beta (B, D, L). All are 0 after the lengths.
    """
    documents, _ = model.encoders[0](model.embedding(document), document_lengths)
    queries, finals = model.encoders[-1](model.embedding(query), query_lengths)
    mask, query_mask = (
        lengths_to_mask(document_lengths, document.size(1)),
        lengths_to_mask(query_lengths, query.size(1)),
    )
    if model.config["attention"] == "sum":
        scores = torch.matmul(documents, finals[-1][0].unsqueeze(2)).squeeze(2)
        weights, others = masked_softmax(scores, mask) * (query_lengths > 0).unsqueeze(1), ()
    else:
        scores, both = torch.bmm(documents, queries.transpose(1, 2)), mask.unsqueeze(2) & query_mask.unsqueeze(1)
        weights, importance, alpha, beta = attend_both_ways(scores, mask, query_mask)
        others = importance, alpha * both, beta * both
    if model.contexts is not None:
        texts = (torch.where(rows < model.config["vocab_size"], rows, UNK) for rows in (document, query))
        documents, queries = texts
        weights = model.rerank(weights, documents, document_lengths, queries, query_lengths)
    return weights if not_in_query is None else keep_weights(weights, not_in_query), *others


def padded_questions(model: AttentionOverAttentionReader, batch: ClozeBatch) -> Tensors:
    """Inputs of a reader's graph."""
    ids, starts, found = model.word_ids(batch), batch.first_words(), {}
    for name in ("document", "query"):
        numbers, lengths = getattr(batch, name), getattr(batch, f"{name}_lengths")
        rows = ids[numbers + starts[segment_ids(lengths)]]
        found |= {name: to_padded(rows, lengths_to_mask(lengths)), f"{name}_lengths": lengths}
    if model.config["exclude_query_words"]:
        found["not_in_query"] = to_padded(outside_query(batch), lengths_to_mask(batch.document_lengths))
    return found


def write_reader(model: AttentionOverAttentionReader, traced: Any, folder: Path) -> dict[str, Any]:
    """reader.onnx."""

    def example(size: int) -> tuple[Tensors, tuple[Tensor, ...]]:
        batch = model.example_batch(size)
        lengths = batch.document_lengths, batch.query_lengths
        weights = [
            to_padded(x, lengths_to_mask(n)) for x, n in zip(model(batch), lengths, strict=True) if x is not None
        ]
        return padded_questions(model, batch), tuple(weights)

    (inputs, expected), (others, wanted) = example(6), example(4)
    axes = {
        "document": ("batch", "words"),
        "query": ("batch", "query_words"),
        "document_lengths": ("batch",),
        "query_lengths": ("batch",),
    }
    if "not_in_query" in inputs:
        axes["not_in_query"] = axes["document"]
    outputs = ["weights", *(["query_weights", "over_document", "over_query"] if len(expected) > 1 else [])]
    graph = write_graph(folder / "reader.onnx", Graph(traced, _read), inputs, axes, outputs)
    check_graph(folder / "reader.onnx", others, wanted)
    return {
        "task": "reading",
        "special_tokens": {"pad": PAD, "unk": UNK, "blank": BLANK_ID},
        "tokenizer": model.tokenizer and model.tokenizer.kind,
        "cleaning": model.tokenizer.cleaning_steps() if model.tokenizer else [],  # before a text is split into words
        "blank": BLANK,
        "unknown_words": {"first_id": model.config["vocab_size"], "count": model.config["num_unknown"]},
        "meaning": meaning(
            graph,
            document=f"{BLANK} is special_tokens.blank, a word of tokenizer.json has its id there; the other words of "
            "an example, compared as strings and numbered from 0 in order of occurrence in its "
            "document and then in its query, are "
            "unknown_words.first_id + number % count, or special_tokens.unk if count is 0",
            query=f"as the document, with {BLANK} in place of the missing word",
            not_in_query="true on the document words that are not in its query, compared as strings",
            weights="the answer is the candidate, or document word, with the largest sum over its occurrences",
            query_weights="weight of each query word; 0 after the lengths",
            over_document="(document word, query word): for each query word its attention, which sums to 1 over the "
            "document; weights are its sum with query_weights, before words are re-ranked and query words excluded",
            over_query="(document word, query word): for each document word its attention, which sums to 1 over the "
            "query; query_weights are its mean over the document",
        ),
        "graphs": {"reader.onnx": graph},
    }
