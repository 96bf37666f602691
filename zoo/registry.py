"""The table of pretrained weights, and `load`, which turns one of its names into a model.

The only file that knows the names. A name is `<architecture>.<dataset>[_<pair or size>]`; scores, licence and data
set of a weight live in its card, model_cards/<name>.md.
"""

import importlib
import re
import reprlib
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo import hub

if TYPE_CHECKING:  # importing torch here would make `zoo list` slow
    from zoo.module import ZooModule


@dataclass(frozen=True)
class Entry:
    """One pretrained weight.

    Attributes:
        name: What `zoo.load` is given.
        class_path: Dotted path of the model class, inside `zoo.models`.
        sha256: File name -> hash of each file (`hub.file_hashes` prints them); nothing unlisted is read.
        repo_id: `ORG/REPO` on the Hugging Face Hub; None: bundled under zoo/weights/<name>/.
        revision: Full commit id in that repository.
    """

    name: str
    class_path: str
    sha256: dict[str, str]
    repo_id: str | None = None
    revision: str | None = None

    def __post_init__(self) -> None:
        for file, digest in self.sha256.items():
            if not re.fullmatch("[0-9a-f]{64}", digest):
                raise ValueError(f"{self.name}: sha256 of {file} must be 64 hex digits; got '{digest}'")
        if self.repo_id is None and self.revision is not None:
            raise ValueError(f"{self.name}: a revision needs a repo_id")
        if self.repo_id is not None and not re.fullmatch("[0-9a-f]{40}", self.revision or ""):
            raise ValueError(f"{self.name}: revision must be a full commit id of 40 hex digits; got '{self.revision}'")


def _table(*entries: Entry) -> dict[str, Entry]:
    table: dict[str, Entry] = {}
    for entry in entries:
        if entry.name in table:
            raise ValueError(f"'{entry.name}' is in the registry twice")
        table[entry.name] = entry
    return table


TABLE: dict[str, Entry] = _table(
    Entry(
        "attention_classifier_local_p.imdb",
        "zoo.models.attention_classifier.AttentionClassifier",
        {
            "config.json": "f2878d465b808ccaa5063a89294103e281ef09be15563f582cfd3e9f76151849",
            "golden.safetensors": "f16eecb671335142a181581184fc2e770ba8435f1eed7cee6d67236781679443",
            "labels.json": "af627d94d1fc9a7755724d00679fac41a46acc82013e7588bc0e3c07dbfd9cfb",
            "model.safetensors": "a2932e21dc49f6b86699dff010a7276af0f19d86d841c3930b2cb2d44fb4ea4b",
            "tokenizer.json": "48b99be784c881341203cf51aca1002b37fa63d50f856bcde29fbd51fdd0fa64",
        },
    ),
    Entry(
        "attention_over_attention.cbtlike_cn",
        "zoo.models.attention_over_attention.AttentionOverAttentionReader",
        {
            "config.json": "2d126fe3174a46e5929fec09e8008965424017ac1ba212d50cf1f77f79c49cf6",
            "golden.safetensors": "83f159ec80d2033574048f360ff6014a2493d3cbe39cd53c256fbbf8b041f98a",
            "model.safetensors": "531e7b8ae553168b7affe561183389e0420bd0549e71ff1969c113ebd040f7a5",
            "tokenizer.json": "6c37acfb2763e858e013438fe575032d614842fa5a5203786c802994ef392e9f",
        },
    ),
    Entry(
        "attention_over_attention.cbtlike_ne",
        "zoo.models.attention_over_attention.AttentionOverAttentionReader",
        {
            "config.json": "67e71aff7c4bbbb2088ce990573d186f0da6e87d6e0f294acc88261ad067c107",
            "golden.safetensors": "7ea2a04069969735c1887578e57b49a527b2348a840ca410c430199594584e46",
            "model.safetensors": "603a2986d9d97bfbad8ec5dd2d0d0190a0654919a9cd564a6bb54a20e8c71dd3",
            "tokenizer.json": "6c37acfb2763e858e013438fe575032d614842fa5a5203786c802994ef392e9f",
        },
    ),
    Entry(
        "bahdanau.multi30k_en_de",
        "zoo.models.bahdanau.BahdanauNMT",
        {
            "config.json": "5e55d4fffc4f577d4e32f135d8905075760a271f7b4f920f311b8f6bf89d07da",
            "golden.safetensors": "939e0e0abc89711986eaa7761c256413ef5f3680fd7dc6fb1d84f3528433cdce",
            "model.safetensors": "874bbd8ffb88657742ce70396f412b7fd89c9142cc3f2e9d002c78986aa73929",
            "tokenizer.json": "add23c78ac6bbd50c5cfe742bfb92a98f13c6f94c4b5e3d87eb144ca29004af1",
        },
    ),
    Entry(
        "han.imdb",
        "zoo.models.han.HAN",
        {
            "config.json": "307417561ad836f3b6e437e952257baefc83fd0cd6373acf78d440ee2f9f244c",
            "golden.safetensors": "fbafc44e0efde7be0410673a297a6ed338e85aa9244b2af32da24eadd78659bf",
            "labels.json": "af627d94d1fc9a7755724d00679fac41a46acc82013e7588bc0e3c07dbfd9cfb",
            "model.safetensors": "56be4e3f8dde02c543094157dd0010b83224cce4a232a7644c1e2f4d60375a9d",
            "tokenizer.json": "48b99be784c881341203cf51aca1002b37fa63d50f856bcde29fbd51fdd0fa64",
        },
    ),
    Entry(
        "han.reuters",
        "zoo.models.han.HAN",
        {
            "config.json": "9784d035571ff42e6fee4043bfc15aab11dff16e5a88af3bf4eefdeb9cd01c6c",
            "golden.safetensors": "d5c97aaa62a45fad6e173c5c907ba2dcc52a9410e7716938f3f7d366318b4f89",
            "labels.json": "c6ae04965a14a0096737de9710ee201b9adf73cd1c53414e2eeea3b2f3daebb4",
            "model.safetensors": "63d785e40ee28040f8a1133b8e0ef83fe0a70db441984374a4efadc97d79da10",
            "tokenizer.json": "a3d6b33d34ecef876f141757427decfee886e6f72ed039cb3e888cdf5d5aea13",
        },
    ),
    Entry(
        "key_value.multi30k_en_de",
        "zoo.models.key_value_nmt.KeyValueNMT",
        {
            "config.json": "a34d0538565d4bd82e907f29523a2823ee9d61bdf93b025dcfd04b2a50311fb7",
            "golden.safetensors": "f985e4aa7f533d1e200a1d14944beca2178473d639c0877b8fab731a5c2d0d32",
            "model.safetensors": "de8f4f58f8cd94a964324146c9197110a2672eb5a93c00bae6ebf8de6f2ef8e2",
            "tokenizer.json": "add23c78ac6bbd50c5cfe742bfb92a98f13c6f94c4b5e3d87eb144ca29004af1",
        },
    ),
    Entry(
        "key_value_predict.ptb",
        "zoo.models.key_value_predict_lm.KeyValuePredictLM",
        {
            "config.json": "4d7b369dbcf8d8b7e15adb5fd50da0b0a7820ed315930f41881ad56b6cdade54",
            "golden.safetensors": "d0a39fa4f83cd08a3f54c438392a6c1083d28c2c1e1c7b7cf0fa4a603c9d6523",
            "model.safetensors": "48efcede35c420054488634beb0d4132b50b085a99cd9e0cdf4cf51888e9f9ed",
            "tokenizer.json": "bc3b98b845a73e101b70cf849a1f054fde62d8685332667d7e0e397ca5db68a0",
        },
    ),
    Entry(
        "luong_dot.dates",
        "zoo.models.luong.LuongNMT",
        {
            "config.json": "67a3e36fbc01b8337c372a6afcc7fcb047c68d98859baa22656dc4f8d0436031",
            "golden.safetensors": "8706fcdbc70c96e727c39c2cbbab57fa4ffd460e93c47802e4c4093bfd31ed3d",
            "model.safetensors": "2a1ec2386acbf801ca0a447d6c74d56f981748523e7c540f4f78fea83e686bd1",
            "tokenizer.src.json": "81941175a3b06e95b08fafbbf1ca25ddf1cab409be9c9d7f239ff07681762409",
            "tokenizer.tgt.json": "9182bed047416d5c1ff8a52d357f1ad7247e4059b0fbec52a6f4a2a10cf16ada",
        },
    ),
    Entry(
        "luong_general.multi30k_de_en",
        "zoo.models.luong.LuongNMT",
        {
            "config.json": "088f405226acb688cca41c423331ac5303ade4426bc1d8428526519816dc7d8d",
            "golden.safetensors": "e405574c99613de52ef69e681d89401ac6157ea568bffd617cdfebff9db87f94",
            "model.safetensors": "1f88a8da25242af96180fe9b1a0e50166f2ed8a37efecaa89b42f0974ac3e78b",
            "tokenizer.json": "add23c78ac6bbd50c5cfe742bfb92a98f13c6f94c4b5e3d87eb144ca29004af1",
        },
    ),
    Entry(
        "luong_general.multi30k_en_de",
        "zoo.models.luong.LuongNMT",
        {
            "config.json": "92df0c2033052d306a437dc8090b471f18fa8a381afe53230fd73befc6f5f269",
            "golden.safetensors": "4f544ed4ff9ae662b818b274a5d72af3195f389b3c9a0f2af6632697ca29f8a3",
            "model.safetensors": "ee491c94c14ccfdb3fa2f236deb80a9705ce20d667d3f0b2996fb9d6ade4b729",
            "tokenizer.json": "add23c78ac6bbd50c5cfe742bfb92a98f13c6f94c4b5e3d87eb144ca29004af1",
        },
    ),
    Entry(
        "luong_general.tatoeba_de_en",
        "zoo.models.luong.LuongNMT",
        {
            "config.json": "319bcbcc5cfb28e14be4ced02345caa0604f19d4403d3c381c103b84cd6638a0",
            "golden.safetensors": "2445856c83ec0aa49d79b6284c5c8dd3395041a48f2cffe0e311526cac8e2f82",
            "model.safetensors": "6be17947a023e47ec917042ffa922b82968bb2a911fd160520aa2e959c29a348",
            "tokenizer.json": "468d09e5ea7594c0f916352f7689e797c531a95b84ee729e7f9c2c7e1ea4a3b1",
        },
    ),
    Entry(
        "luong_textbook.dates",
        "zoo.models.luong.LuongNMT",
        {
            "config.json": "b6289b482a27d93cfed460fd9127b9732bcd566819e22bf30c11120a6b6e09f5",
            "golden.safetensors": "b8eee5adf092dfc3ba9effeed57682b6bf7b7b147012dd883c092a3f134bd79e",
            "model.safetensors": "9b66269ab078926f1d079915e66cb749f12914a1bc2f62b3aa7a000cdf6fd26a",
            "tokenizer.src.json": "81941175a3b06e95b08fafbbf1ca25ddf1cab409be9c9d7f239ff07681762409",
            "tokenizer.tgt.json": "9182bed047416d5c1ff8a52d357f1ad7247e4059b0fbec52a6f4a2a10cf16ada",
        },
    ),
    Entry(
        "show_attend_tell_hard.flickr8k",
        "zoo.models.show_attend_tell.ShowAttendTell",
        {
            "config.json": "80b3b3f1055f53eb9bf37d29fcb39f19b4eee0648f04492fcd4421651221cc04",
            "golden.safetensors": "02e2015da6411742cb7d9202c36ac55d5514ccdb01e40179c8fec3c825b64047",
            "model.safetensors": "7a03232c4433df57bc75aa9bd9029bd6b3cec2eff8c7e2283b2042d4264fd6bf",
            "preprocessing.json": "663054e81dfea6671e1b4b6b9b946b1efe871a59f91c59a79446caea011fad12",
            "tokenizer.json": "329e46710eb8a9730612bd426995b700cc98048ce91e2c43f859b720567967ec",
        },
    ),
    Entry(
        "show_attend_tell_soft.flickr8k",
        "zoo.models.show_attend_tell.ShowAttendTell",
        {
            "config.json": "2180836a4c37ae5e130c89ed045caa4270a443d5fe859e2ff27b3a10894afce0",
            "golden.safetensors": "f2ea45cc58e306c9308615d6b942de6167ce4eb286b9278b0766acba869e9ff5",
            "model.safetensors": "571c0cb31340a61a4e232f8a15e6941b18b18b20990fe0566d6f102ec9da82c7",
            "preprocessing.json": "663054e81dfea6671e1b4b6b9b946b1efe871a59f91c59a79446caea011fad12",
            "tokenizer.json": "329e46710eb8a9730612bd426995b700cc98048ce91e2c43f859b720567967ec",
        },
    ),
    Entry(
        "structured_self_attention.imdb",
        "zoo.models.structured_self_attention.StructuredSelfAttention",
        {
            "config.json": "ab72e1afb05c8d4761598f29544b202499cc12f3a0381e89a56c1f7178e8b1cb",
            "golden.safetensors": "83b53995867719f19ff60f511b1fb5014207f4a97ce9ddbc470e950476e9076b",
            "labels.json": "af627d94d1fc9a7755724d00679fac41a46acc82013e7588bc0e3c07dbfd9cfb",
            "model.safetensors": "71f74b59f63cd95bb3eefb37c178a237997560f4039d50a32c7afa6fcf67f7a3",
            "tokenizer.json": "a5aa5ce75e696d5c834ff2e4e3daa16d45eb3df15be2bb713ebccb05d6e71862",
        },
    ),
    Entry(
        "structured_self_attention.sick",
        "zoo.models.structured_self_attention.StructuredSelfAttention",
        {
            "config.json": "15b1d053ecc483374861ae790ec06813156b5bc15bf01b3237138b5276ff0fa7",
            "golden.safetensors": "a05bc7d72228bddb38121c45d3dd9bc9e8235ecc422c4598cebe61defbc73ca5",
            "labels.json": "117cd30a94c3b68f28a6306d596a81c242112a9599a4ce7c28e9244777c4a4e0",
            "model.safetensors": "42f11b8e5c560072e27c9797bd4d4d49c1402be211f020b14b81e7b3dde7e389",
            "tokenizer.json": "6dd79bea7ad28a432111bf969a6877fe7d7a0a85dddc10075b02b809b6a5a41f",
        },
    ),
    Entry(
        "structured_self_attention.sst2",
        "zoo.models.structured_self_attention.StructuredSelfAttention",
        {
            "config.json": "6a2653556eaf541a0bb1ee19c549ae8b15b88b02f239ec984594c285fd66bf49",
            "golden.safetensors": "755a7b75b53eda59dcbbc4318b158918086dffd2902c5bbda0243f38c46ffea9",
            "labels.json": "af627d94d1fc9a7755724d00679fac41a46acc82013e7588bc0e3c07dbfd9cfb",
            "model.safetensors": "84cdd53bf29c001ad2ee1f89faddbe1ed777159869c10bfd07df48991c1f18dc",
            "tokenizer.json": "8688c456713d376b5d7f530579b8f2b91308638ddb425fc4c09f62c26fdcedae",
        },
    ),
    Entry(
        "structured_self_attention.trec6",
        "zoo.models.structured_self_attention.StructuredSelfAttention",
        {
            "config.json": "f61b48788e61208e037d2a618542f5c3b30bb405c83a373d6b5a590bd5a1e26e",
            "golden.safetensors": "7e9b68750bde78a3591e9558e8006429b49823f9237e3db7a9641e9fb95283af",
            "labels.json": "e6fb15b60d5810ed2f0781f9a92b6baa2c71b7aeaf4a5e446fbc322791dc236d",
            "model.safetensors": "515f5e40c961302cc237645cfffbdc372470fb36819e24b5164e188653b96bf2",
            "tokenizer.json": "3a24d7cedd5fb43c741fcbcffb1111bbcb1dd1cd6bf96efa79f70e296134e68f",
        },
    ),
    Entry(
        "transformer_tiny.multi30k_en_de",
        "zoo.models.transformer.TransformerNMT",
        {
            "config.json": "68f4b82d35d5702d7b95c66b1562e9aa3ca04e08222658620c44e44800a18de9",
            "golden.safetensors": "5e30aaf5a65abc56523f57bf4a32cda8380e403e1a7d778712911a7f4c18424e",
            "model.safetensors": "88fd1c6564d49a490091bff7f9ea529468093a6ac9a425e293e3e7c1c60c1bcc",
            "tokenizer.json": "3dfb1b2dda3a8642e24f2f39b840674f694d1e8fc265566630a36bac5b57c0ee",
        },
    ),
    Entry(
        "tutorial_location.tatoeba_fra_en",
        "zoo.models.tutorial_attention.TutorialAttentionNMT",
        {
            "config.json": "34d5631b45ffce9ef8d21d61e57af324460f58f9d37eb1731d6238a1e7a49add",
            "golden.safetensors": "33d8f0f3a53315ed8a7037409b12dcfba3be4fc92b1b1971093f884fe6aac9f3",
            "model.safetensors": "2544ca66d540357f5cb19544439502eca461ef790b701ea94c9ac8c8e79bde71",
            "tokenizer.src.json": "0ef781ed71ddefadbefe267e36019b06cada90b0b379dd12222c39ebdc0b093e",
            "tokenizer.tgt.json": "f683d0864ea7aafab0a0026d4854239e56c568bbba37877efe472fe4844db4dc",
        },
    ),
)


def list_models(pattern: str = "*") -> list[str]:
    """The names that match a shell pattern, e.g. `"luong*"`, in natural order (size 2 before size 10)."""
    names = [name for name in TABLE if fnmatchcase(name, pattern)]
    return sorted(names, key=lambda name: [int(p) if p.isdecimal() else p for p in re.split(r"(\d+)", name)])


def entry(name: str) -> Entry:
    """The entry of a name.

    Raises:
        ValueError: No such name; the message holds the three nearest.
    """
    if name not in TABLE:
        nearest = get_close_matches(name, TABLE, n=3, cutoff=0)
        folder = f"; for the folder of that name: local-dir:{name}" if Path(name).is_dir() else ""
        raise ValueError(f"unknown model '{name}'; nearest: {', '.join(nearest) or 'none, the registry is empty'}{folder}")
    return TABLE[name]


def load(name: str, overrides: dict[str, Any] | None = None) -> "ZooModule":
    """Loads a pretrained model, on the CPU and in eval mode, after checking every file.

    Args:
        name: A name of `list_models()`, or `local-dir:PATH`, or `hf-hub:ORG/REPO@REVISION`.
        overrides: Arguments of the model to change, e.g. `{"dropout": 0.3}`. Modules that the class lists in `heads`
            are re-initialised where that changes their shape, with a warning; any other misfit raises.

    Raises:
        BundleError: The files are missing, damaged or do not fit the class.
        ValueError: Unknown name, or an override that the model does not have.
    """
    if name.startswith("local-dir:"):
        folder = hub.local_dir(name.removeprefix("local-dir:"))
        class_path = hub.read_config(folder)["class_path"]
    elif name.startswith("hf-hub:"):
        folder = hub.download(*hub.split_source(name.removeprefix("hf-hub:")))
        class_path = hub.read_config(folder)["class_path"]
    else:
        found = entry(name)
        class_path = found.class_path
        if found.repo_id is None:
            folder = hub.bundled(name, found.sha256)
        else:
            folder = hub.download(found.repo_id, found.revision, list(found.sha256))
            hub.verify(folder, found.sha256)
    return model_class(class_path).from_pretrained(folder, overrides)


def model_class(class_path: str) -> type["ZooModule"]:
    """The class of a dotted path, which must lie in `zoo.models`: a downloaded file never chooses other code."""
    if not (class_path.startswith("zoo.models.") and re.fullmatch(r"[a-zA-Z0-9_.]{1,200}", class_path)):
        raise hub.MisfitError(f"class_path must lie in zoo.models; got {reprlib.repr(class_path)}")
    module, _, name = class_path.rpartition(".")
    try:
        cls = getattr(importlib.import_module(module), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise hub.MisfitError(f"this version of attention-zoo has no {class_path}") from error
    if not (isinstance(cls, type) and hasattr(cls, "from_pretrained") and cls.__module__ == module and name[0] != "_"):
        raise hub.MisfitError(f"{class_path} is not a model")
    return cls
