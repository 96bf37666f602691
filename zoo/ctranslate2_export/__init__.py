"""`zoo export --format ctranslate2`: a Transformer for CTranslate2 (https://opennmt.net/CTranslate2).

The folder has what CTranslate2 reads (model.bin, config.json, the vocabularies), the tokenizer, and ctranslate2.json:
options of `translate_batch` that search as this package does, its length limit, and the sha256 of every other file.

A token is named as in tokenizer.json, so what the `tokenizers` library returns can be passed on. CTranslate2 adds the
end of the source itself.
"""

import copy
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from zoo.bundles.exports import replaceable_export, write_manifest
from zoo.layers.multi_head import MultiHeadAttention
from zoo.layers.positions import positions
from zoo.models.transformer import DecoderLayer, Layer, TransformerNMT
from zoo.tasks.base import ZooModule
from zoo.text import BOS, EOS, PAD, UNK, Tokenizer
from zoo.utils.atomic import new_folder, target_folder
from zoo.utils.extras import require
from zoo.utils.version import __version__
from zoo.verbs.translation import MORE, PER_SOURCE_TOKEN

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerSpec

MANIFEST, WEIGHTS = "ctranslate2.json", "model.bin"
FORMAT = 1  # of ctranslate2.json
TOLERANCE = 1e-4  # between the log-probabilities of torch and of CTranslate2, for an example
PENALTY = 0.75  # n ** (0.75 alpha) grows like ((5 + n) / 6) ** alpha, exactly so at n = 15 tokens
PATIENCE = (
    5.0  # CTranslate2 stops after so many times beam_size finished hypotheses, this package when none can be better
)


def export_ctranslate2(model: ZooModule, folder: str | os.PathLike, source: str, int8: bool = False) -> Path:
    """Writes the model, its tokenizer, and ctranslate2.json.

    Args:
        model: a TransformerNMT.
        folder: target: new, empty, or an earlier export, which is then replaced.
        source: origin of the model, recorded in ctranslate2.json.
        int8: store the weights in 8 bits; CTranslate2 then multiplies in integers.

    Raises:
        ValueError: ctranslate2 is missing, it has no form for the model, `folder` holds other files, or CTranslate2
            computes other numbers than torch.
    """
    require("ctranslate2", "export to CTranslate2")
    folder = Path(folder).absolute()
    target_folder(folder, replaceable_ctranslate2)
    transformer = _checked(model)
    with new_folder(folder, replaceable_ctranslate2) as new:
        _save(transformer, new, None)
        _compare(transformer, new)
        if int8:
            _save(transformer, new, "int8")
        for name, text in transformer.assets().items():
            (new / name).write_bytes(text.encode())
        write_manifest(new, MANIFEST, _about(transformer, source, int8))
    return folder


def replaceable_ctranslate2(folder: Path) -> set[str]:
    """Names of the files of an earlier export that a new one may replace.

    Raises:
        ValueError: The folder is not a complete export, or holds other files.
    """
    return replaceable_export(
        folder, MANIFEST, "a CTranslate2 export", lambda name: name.endswith(".json") or name == WEIGHTS
    )


def _checked(model: ZooModule) -> TransformerNMT:
    """A copy of a model that has a form."""
    if type(model) is not TransformerNMT:
        raise _no_form(model, "TransformerNMT is the only class that has one; export others with --format onnx")
    config = model.config
    if config["key_size"] not in (None, config["model_size"] // config["num_heads"]):
        raise _no_form(model, f"its keys need the size of its values, model_size / num_heads; got {config['key_size']}")
    if not config["output_projection"]:
        raise _no_form(model, "it needs output_projection true")
    if model.src_tokenizer is None or model.tgt_tokenizer is None:
        raise _no_form(model, "it has no tokenizer, which names its tokens")
    return copy.deepcopy(model).cpu().float().eval()


def _no_form(model: ZooModule, reason: str) -> ValueError:
    return ValueError(f"{type(model).__name__} has no CTranslate2 form: {reason}")


def _save(model: TransformerNMT, folder: Path, quantization: str | None) -> None:
    spec = _spec(model)
    spec.validate()
    spec.optimize(quantization)
    spec.save(os.fspath(folder))


# ---- the weights ----


def _spec(model: TransformerNMT) -> "TransformerSpec":
    from ctranslate2.specs import TransformerSpec

    config, tables = model.config, model.embeddings
    layers = (config["encoder_layers"], config["decoder_layers"])
    shown = config["shown_layer"] % config["decoder_layers"]
    spec: Any = TransformerSpec.from_config(  # its classes declare every weight as None
        layers, config["num_heads"], pre_norm=config["norm"] == "pre", alignment_layer=shown, alignment_heads=0
    )
    sides = (spec.encoder, model.encoder, model.encoder_norm), (spec.decoder, model.decoder, model.decoder_norm)
    places = _numbers(positions(_most_tokens(model), config["model_size"]))
    for stack, modules, norm in sides:
        stack.position_encodings.encodings = places
        if isinstance(norm, nn.LayerNorm):
            _norm(stack.layer_norm, norm)
        for layer, module in zip(stack.layer, modules, strict=True):
            _layer(layer, module)
    spec.encoder.embeddings[0].weight = _numbers(tables.source.weight)
    spec.decoder.embeddings.weight = _numbers(tables.tgt_table.weight)
    _linear(spec.decoder.projection, tables.output)
    tokenizers = model.tokenizers
    source, target = (_names(x, config[f"{side}_vocab_size"]) for x, side in zip(tokenizers, ("src", "tgt")))
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    known = {"bos_token": BOS, "eos_token": EOS, "unk_token": UNK, "decoder_start_token": BOS}
    for name, token in known.items():
        setattr(spec.config, name, target[token])
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = model.decoder[0].after_self.norm.eps
    return spec


def _layer(spec: Any, layer: Layer) -> None:
    attention = layer.self_attention
    spec.self_attention.linear[0].weight = _numbers(torch.cat([attention.query.weight, attention.key_value.weight]))
    _sublayer(spec.self_attention, layer.after_self.norm, attention)
    if isinstance(layer, DecoderLayer):
        attention = layer.cross_attention
        _linear(spec.attention.linear[0], attention.query)
        _linear(spec.attention.linear[1], attention.key_value)
        _sublayer(spec.attention, layer.after_cross.norm, attention)
    _norm(spec.ffn.layer_norm, layer.after_feedforward.norm)
    first, *_, last = layer.feedforward
    _linear(spec.ffn.linear_0, first)
    _linear(spec.ffn.linear_1, last)


def _sublayer(spec: Any, norm: nn.LayerNorm, attention: MultiHeadAttention) -> None:
    _norm(spec.layer_norm, norm)
    _linear(spec.linear[-1], attention.output)


def _norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _numbers(norm.weight), _numbers(norm.bias)


def _linear(spec: Any, layer: Any) -> None:
    spec.weight = _numbers(layer.weight)
    if layer.bias is not None:
        spec.bias = _numbers(layer.bias)


def _numbers(x: Tensor) -> np.ndarray:
    return x.detach().numpy().astype(np.float32)  # a copy: CTranslate2 quantises in place


def _most_tokens(model: TransformerNMT) -> int:
    """Most tokens of a target, which are more than those of a source."""
    return _limit(model.max_source_tokens + 1)


def _limit(source_tokens: int) -> int:
    return int(source_tokens * PER_SOURCE_TOKEN) + MORE


def _names(tokenizer: Tokenizer, size: int) -> list[str]:
    """The tokens of a vocabulary in order; a plain space in the name of an unused one keeps it from being a token."""
    vocab: dict[str, int] = json.loads(tokenizer.to_json())["model"]["vocab"]
    return [*sorted(vocab, key=vocab.__getitem__), *(f"<unused {n}>" for n in range(len(vocab), size))]


# ---- what a user needs ----


def _about(model: TransformerNMT, source: str, int8: bool) -> dict[str, Any]:
    import ctranslate2

    config, (_, tokenizer) = model.config, model.tokenizers
    names = _names(tokenizer, config["tgt_vocab_size"])
    never = [PAD, BOS, *range(len(tokenizer), config["tgt_vocab_size"])]
    return {
        "format": FORMAT,
        "source": source,
        "class": type(model).__name__,
        "attention_zoo": __version__,
        "ctranslate2": ctranslate2.__version__,
        "weights": "int8" if int8 else "float32",
        "parameters": sum(p.numel() for p in model.parameters()),
        "config": config,
        "search": {
            "length_penalty": config["length_penalty"],  # of ((5 + n) / 6) ** alpha
            "max_length": {"per_source_token": PER_SOURCE_TOKEN, "more": MORE},
            "max_source_tokens": model.max_source_tokens,
        },
        "translate_batch": {
            "beam_size": config["beam_size"],
            "num_hypotheses": config["beam_size"],
            "length_penalty": config["length_penalty"] * PENALTY,
            "patience": PATIENCE,
            "return_scores": True,
            "disable_unk": True,
            "suppress_sequences": [[names[token]] for token in never],
        },
    }


def _compare(model: TransformerNMT, folder: Path) -> None:
    """Raises ValueError unless CTranslate2 computes torch's log-probabilities."""
    from ctranslate2 import Translator

    config, random = model.config, np.random.default_rng(0)
    names = [_names(x, config[f"{side}_vocab_size"]) for x, side in zip(model.tokenizers, ("src", "tgt"))]
    src, tgt = (random.integers(EOS + 1, len(side), 7) if len(side) > EOS + 1 else np.full(7, UNK) for side in names)
    translator = Translator(os.fspath(folder), compute_type="float32", intra_threads=1)
    texts = [[side[token] for token in row] for side, row in zip(names, (src, tgt), strict=True)]
    found = translator.score_batch(texts[:1], texts[1:])[0].log_probs
    with torch.no_grad():
        memory, state = model.encode(torch.tensor([[*src, EOS]]), torch.tensor([len(src) + 1]))
        readouts, _ = model.decode(torch.tensor([[BOS, *tgt]]), memory, state)
        log_probs = model.embeddings.logits(readouts)[0].log_softmax(-1)
    expected = log_probs[torch.arange(len(tgt) + 1), torch.tensor([*tgt, EOS])]
    difference = (torch.tensor(found) - expected).abs().max().item()
    if not difference <= TOLERANCE:  # nor NaN
        raise ValueError(
            f"{WEIGHTS}: log-probabilities differ from torch by {difference:.1e}; at most {TOLERANCE:.0e} is allowed"
        )
