"""Pretrained attention models by name: the public names, and for editors which class each weight has.

`tests/test_types.py` compares this file with the registry, and prints what belongs here.
"""

from typing import Any, Literal, overload

from zoo.bundles.files import BundleError, DamagedError, FetchError, MisfitError
from zoo.explanations import faithfulness
from zoo.extensions import register_attention, register_normalization, register_score
from zoo.models.attention_classifier import AttentionClassifier
from zoo.models.attention_over_attention import AttentionOverAttentionReader
from zoo.models.bahdanau import BahdanauNMT
from zoo.models.han import HAN
from zoo.models.key_value_nmt import KeyValueNMT
from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.models.luong import LuongNMT
from zoo.models.seq2seq import Seq2SeqNMT
from zoo.models.show_attend_tell import ShowAttendTell
from zoo.models.structured_self_attention import StructuredSelfAttention
from zoo.models.transformer import TransformerNMT
from zoo.models.tutorial_attention import TutorialAttentionNMT
from zoo.registry import list_models, register
from zoo.results.several import page
from zoo.tasks.base import ZooModule
from zoo.utils.continuous_cache import ContinuousCache
from zoo.utils.version import __version__

__all__ = [
    "BundleError",
    "ContinuousCache",
    "DamagedError",
    "FetchError",
    "MisfitError",
    "__version__",
    "faithfulness",
    "list_models",
    "load",
    "page",
    "register",
    "register_attention",
    "register_normalization",
    "register_score",
]

@overload
def load(
    name: Literal["attention_classifier_local_p.imdb"], overrides: dict[str, Any] | None = None
) -> AttentionClassifier: ...
@overload
def load(
    name: Literal["attention_over_attention.cbtlike_cn", "attention_over_attention.cbtlike_ne"],
    overrides: dict[str, Any] | None = None,
) -> AttentionOverAttentionReader: ...
@overload
def load(name: Literal["bahdanau.multi30k_en_de"], overrides: dict[str, Any] | None = None) -> BahdanauNMT: ...
@overload
def load(name: Literal["han.imdb", "han.reuters"], overrides: dict[str, Any] | None = None) -> HAN: ...
@overload
def load(name: Literal["key_value.multi30k_en_de"], overrides: dict[str, Any] | None = None) -> KeyValueNMT: ...
@overload
def load(name: Literal["key_value_predict.ptb"], overrides: dict[str, Any] | None = None) -> KeyValuePredictLM: ...
@overload
def load(
    name: Literal[
        "luong_concat_no_feed.multi30k_en_de",
        "luong_dot.dates",
        "luong_dot_no_feed.multi30k_en_de",
        "luong_general.multi30k_cs_en",
        "luong_general.multi30k_de_en",
        "luong_general.multi30k_de_fr",
        "luong_general.multi30k_en_cs",
        "luong_general.multi30k_en_de",
        "luong_general.multi30k_en_fr",
        "luong_general.multi30k_fr_de",
        "luong_general.multi30k_fr_en",
        "luong_general.tatoeba_de_en",
        "luong_local_m_no_feed.multi30k_en_de",
        "luong_local_p_no_feed.multi30k_en_de",
        "luong_location_no_feed.multi30k_en_de",
        "luong_scaled_dot_no_feed.multi30k_en_de",
        "luong_textbook.dates",
    ],
    overrides: dict[str, Any] | None = None,
) -> LuongNMT: ...
@overload
def load(name: Literal["seq2seq.multi30k_en_de"], overrides: dict[str, Any] | None = None) -> Seq2SeqNMT: ...
@overload
def load(
    name: Literal[
        "show_attend_tell_hard.flickr8k", "show_attend_tell_hard_paper.flickr8k", "show_attend_tell_soft.flickr8k"
    ],
    overrides: dict[str, Any] | None = None,
) -> ShowAttendTell: ...
@overload
def load(
    name: Literal[
        "structured_self_attention.imdb",
        "structured_self_attention.sick",
        "structured_self_attention.sst2",
        "structured_self_attention.trec6",
    ],
    overrides: dict[str, Any] | None = None,
) -> StructuredSelfAttention: ...
@overload
def load(
    name: Literal["transformer_128.multi30k_en_de", "transformer_tiny.multi30k_en_de"],
    overrides: dict[str, Any] | None = None,
) -> TransformerNMT: ...
@overload
def load(
    name: Literal["tutorial_location.tatoeba_fra_en"], overrides: dict[str, Any] | None = None
) -> TutorialAttentionNMT: ...
@overload
def load(name: str, overrides: dict[str, Any] | None = None) -> ZooModule: ...
