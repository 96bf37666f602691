"""A tiny model of each kind and its ONNX export, made once for all tests, in all processes of pytest-xdist together."""

import itertools
import os
import warnings

import pytest
import torch
from filelock import FileLock
from model_cases import build

import zoo
from zoo.cli import main
from zoo.models.attention_over_attention import AttentionOverAttentionReader
from zoo.models.han import HAN
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.models.luong import LuongNMT
from zoo.models.seq2seq import Seq2SeqNMT
from zoo.models.show_attend_tell import ShowAttendTell
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.models.transformer import TransformerNMT
from zoo.text import Tokenizer
from zoo.verbs.confidence import Calibration

SENTENCES = [
    f"{who} {does} {where}."
    for (who, does), where in zip(
        itertools.product(
            ["A man", "Two women", "The little girl in a red coat", "A black dog", "People"],
            ["plays the guitar", "runs", "is waiting for a bus, I think", "jumps over it", "eats ice cream"],
        ),
        itertools.cycle(
            [
                "in the snow",
                "on the beach",
                "at a party with friends",
                "in front of a large old building",
                "near me",
                "there",
            ]
        ),
    )
]
SENTENCES += [sentence.lower().removesuffix(".") for sentence in SENTENCES]  # 50 in all
LABELS = ["a", "b", "ß"]


def loud(model, seed=0):
    """Weights large enough for a difference to show."""
    torch.manual_seed(seed)
    for p in model.parameters():
        p.data = torch.randn_like(p) * (0.7 if p.dim() > 1 else 0.2)
    return model.eval()


def exported(model, folder):
    """The folder of the graphs of a model, exported as a user does it."""
    model.save_pretrained(folder / "bundle")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["export", f"local-dir:{folder / 'bundle'}", str(folder / "graphs"), "--format", "onnx"]) == 0
    return folder / "graphs"


def calibrated(model, *evidence, low=0.5):
    """With a confidence, and limits that some answers fall below."""
    model.calibration = Calibration(
        "it is good", 1.5, dict.fromkeys(evidence, 0.75), low_confidence=low, least_known=0.75, language="en"
    )
    return model


def shared(make):
    """The fixture of a model and the folder of its graphs; the first process that needs them makes them."""

    @pytest.fixture(scope="session", name=make.__name__)
    def found(tmp_path_factory):
        base = tmp_path_factory.getbasetemp()
        folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"exported_{make.__name__}"
        with FileLock(f"{folder}.lock"):
            if not (folder / "graphs").exists():
                exported(make(), folder)
        return zoo.load(f"local-dir:{folder / 'bundle'}"), folder / "graphs"

    return found


@shared
def translator():
    """It has rows that no word uses."""
    tokenizer = Tokenizer.train(SENTENCES, "bpe", vocab_size=120)
    size = len(tokenizer) + 3
    options = dict(
        src_vocab_size=size, tgt_vocab_size=size, shared_vocab=True, attention="local_m", encoder_layers=2, window=2
    )
    model = loud(LuongNMT(**{**LuongNMT.tiny, **options}))
    model.src_tokenizer = model.tgt_tokenizer = tokenizer
    return calibrated(model, "score", "known")


@shared
def transformer():
    """Its state grows."""
    tokenizer = Tokenizer.train(SENTENCES, "bpe", vocab_size=120)
    sizes = dict(src_vocab_size=len(tokenizer), tgt_vocab_size=len(tokenizer) + 2)
    model = TransformerNMT(
        **{**TransformerNMT.tiny, **sizes, "norm": "pre", "decoder_layers": 2, "shown_layer": 0, "shown_head": 1}
    )
    model = loud(model, seed=2)  # writes long texts, so that much is kept
    model.src_tokenizer = model.tgt_tokenizer = tokenizer
    return model


@shared
def predictive_translator():
    """With a window around a predicted position."""
    tokenizer = Tokenizer.train(SENTENCES, "bpe", vocab_size=120)
    sizes = dict(src_vocab_size=len(tokenizer), tgt_vocab_size=len(tokenizer))
    model = loud(LuongNMT(**{**LuongNMT.tiny, **sizes, "attention": "local_p", "window": 3}), seed=1)
    model.src_tokenizer = model.tgt_tokenizer = tokenizer
    return model


@shared
def plain_translator():
    """Without attention."""
    tokenizer = Tokenizer.train(SENTENCES, "bpe", vocab_size=120)
    sizes = dict(src_vocab_size=len(tokenizer), tgt_vocab_size=len(tokenizer))
    model = loud(Seq2SeqNMT(**{**Seq2SeqNMT.tiny, **sizes}), seed=1)
    model.src_tokenizer = model.tgt_tokenizer = tokenizer
    return model


@shared
def captioner():
    tokenizer = Tokenizer.train(SENTENCES, "word")
    model = loud(ShowAttendTell(**{**ShowAttendTell.tiny, "vocab_size": len(tokenizer) + 2}))
    model.tokenizer = tokenizer
    return calibrated(model, "score")


@shared
def document_classifier():
    model = loud(build(HAN, vocab_size=40))
    model.tokenizer, model.label_names = Tokenizer.train(SENTENCES, "word_punct", vocab_size=40), LABELS
    return calibrated(model, "score", low=0.78)


@shared
def pair_classifier():
    """It also says how related the texts are."""
    model = loud(build(StructuredSelfAttention, pair=True, relatedness=0.5, vocab_size=40))
    model.tokenizer, model.label_names = Tokenizer.train(SENTENCES, "word_punct", vocab_size=40), LABELS
    return calibrated(model, "score", low=0.765)


@shared
def language_model():
    """Of tokenised text; it has rows that no word uses."""
    tokenizer = Tokenizer.train(SENTENCES, "word")
    options = dict(vocab_size=len(tokenizer) + 3, num_layers=2, inner_size=7, window=3)
    model = loud(KeyValuePredictLM(**{**KeyValuePredictLM.tiny, **options}))
    model.tokenizer = tokenizer
    return model


@shared
def treebank_model():
    """Of text in the form of the Penn Treebank."""
    tokenizer = Tokenizer.train(["they do n't ca it 's we 'll # $ N million companies ' can not of corp."], "word")
    model = loud(KeyValuePredictLM(**{**KeyValuePredictLM.tiny, "vocab_size": len(tokenizer), "window": 3}))
    model.tokenizer = tokenizer
    return model


def _reader(**options):
    options = {**AttentionOverAttentionReader.tiny, "vocab_size": 30, "num_unknown": 3, **options}
    model = loud(AttentionOverAttentionReader(**options))
    texts = ["`` I know the Rabbit , '' said Alice . The Rabbit did n't buy 's ; well-known"]
    model.tokenizer = Tokenizer.train(texts, "word")
    return calibrated(model, "score")


@shared
def reader():
    """Of tokenised text."""
    return _reader()


@shared
def excluding_reader():
    """It never answers with a word of the query, and re-ranks by contexts."""
    return _reader(exclude_query_words=True, context_size=4, context_embedding_size=5)
