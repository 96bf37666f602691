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
            "config.json": "f80bec53aa03a80a12fff5fed7b335453134d80e7386c3301c84326f932b9962",
            "golden.safetensors": "f16eecb671335142a181581184fc2e770ba8435f1eed7cee6d67236781679443",
            "labels.json": "af627d94d1fc9a7755724d00679fac41a46acc82013e7588bc0e3c07dbfd9cfb",
            "model.safetensors": "a2932e21dc49f6b86699dff010a7276af0f19d86d841c3930b2cb2d44fb4ea4b",
            "tokenizer.json": "3f4636d662c9fa8c7e41bad76aac637116dd45859751a160894e2f9ac68ecbd4",
        },
    ),
    Entry(
        "attention_over_attention.cbtlike_cn",
        "zoo.models.attention_over_attention.AttentionOverAttentionReader",
        {
            "config.json": "d3c59f1d2887e3de2dd5c3455bddbb7f51c685a8e0102fcc7cf35c36595c5369",
            "golden.safetensors": "83f159ec80d2033574048f360ff6014a2493d3cbe39cd53c256fbbf8b041f98a",
            "model.safetensors": "531e7b8ae553168b7affe561183389e0420bd0549e71ff1969c113ebd040f7a5",
            "tokenizer.json": "e2763f53f670581212b157021ace7acbc69bd71852fc49fabb9c63f3d469190d",
        },
    ),
    Entry(
        "attention_over_attention.cbtlike_ne",
        "zoo.models.attention_over_attention.AttentionOverAttentionReader",
        {
            "config.json": "437cb1a78b73faab40a08bd79547ca6028144131c1cbd849bccb3c0e2944a8c0",
            "golden.safetensors": "7ea2a04069969735c1887578e57b49a527b2348a840ca410c430199594584e46",
            "model.safetensors": "603a2986d9d97bfbad8ec5dd2d0d0190a0654919a9cd564a6bb54a20e8c71dd3",
            "tokenizer.json": "e2763f53f670581212b157021ace7acbc69bd71852fc49fabb9c63f3d469190d",
        },
    ),
    Entry(
        "bahdanau.multi30k_en_de",
        "zoo.models.bahdanau.BahdanauNMT",
        {
            "config.json": "fa602e9fef3891b739ad106f284753764a471aeee5d73321fae28d9aad30acf7",
            "golden.safetensors": "939e0e0abc89711986eaa7761c256413ef5f3680fd7dc6fb1d84f3528433cdce",
            "model.safetensors": "874bbd8ffb88657742ce70396f412b7fd89c9142cc3f2e9d002c78986aa73929",
            "tokenizer.json": "88bdce467cdfb1b6425ba35fc8f6f035a5659d34496ba0bd53f1e8c5b47a1fca",
        },
    ),
    Entry(
        "han.imdb",
        "zoo.models.han.HAN",
        {
            "config.json": "8d6b6a02f47bcb1933637c3312583416b231b6cafe35cb4a6eca5022f6afc3a5",
            "golden.safetensors": "fbafc44e0efde7be0410673a297a6ed338e85aa9244b2af32da24eadd78659bf",
            "labels.json": "af627d94d1fc9a7755724d00679fac41a46acc82013e7588bc0e3c07dbfd9cfb",
            "model.safetensors": "56be4e3f8dde02c543094157dd0010b83224cce4a232a7644c1e2f4d60375a9d",
            "tokenizer.json": "3f4636d662c9fa8c7e41bad76aac637116dd45859751a160894e2f9ac68ecbd4",
        },
    ),
    Entry(
        "han.reuters",
        "zoo.models.han.HAN",
        {
            "config.json": "45c12fcb3ca9b57cefd6ffc597d20e07a287d43ad9c284a73a5ef4ab57ff66a1",
            "golden.safetensors": "d5c97aaa62a45fad6e173c5c907ba2dcc52a9410e7716938f3f7d366318b4f89",
            "labels.json": "c6ae04965a14a0096737de9710ee201b9adf73cd1c53414e2eeea3b2f3daebb4",
            "model.safetensors": "63d785e40ee28040f8a1133b8e0ef83fe0a70db441984374a4efadc97d79da10",
            "tokenizer.json": "1f1d491f6e560233f339d93c7a370dc5169e8b1e95ccbc8ba7a7331b3f06e608",
        },
    ),
    Entry(
        "key_value.multi30k_en_de",
        "zoo.models.key_value_nmt.KeyValueNMT",
        {
            "config.json": "f14931a9f77f306f0ed5687663c291d59dbfaddb5ddecbf14d315d1cd7c92578",
            "golden.safetensors": "f985e4aa7f533d1e200a1d14944beca2178473d639c0877b8fab731a5c2d0d32",
            "model.safetensors": "de8f4f58f8cd94a964324146c9197110a2672eb5a93c00bae6ebf8de6f2ef8e2",
            "tokenizer.json": "88bdce467cdfb1b6425ba35fc8f6f035a5659d34496ba0bd53f1e8c5b47a1fca",
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
            "config.json": "64e16ce3d17d48c556c29b84d7d8cab40a9fc5279d0824cd11f888b0a70e3a4b",
            "golden.safetensors": "e405574c99613de52ef69e681d89401ac6157ea568bffd617cdfebff9db87f94",
            "model.safetensors": "1f88a8da25242af96180fe9b1a0e50166f2ed8a37efecaa89b42f0974ac3e78b",
            "tokenizer.json": "88bdce467cdfb1b6425ba35fc8f6f035a5659d34496ba0bd53f1e8c5b47a1fca",
        },
    ),
    Entry(
        "luong_general.multi30k_en_de",
        "zoo.models.luong.LuongNMT",
        {
            "config.json": "5c7d37a02feb5ea7f91f0ef7ba7fed6840f107c499cd7c6c18694f925fe95a06",
            "golden.safetensors": "4f544ed4ff9ae662b818b274a5d72af3195f389b3c9a0f2af6632697ca29f8a3",
            "model.safetensors": "ee491c94c14ccfdb3fa2f236deb80a9705ce20d667d3f0b2996fb9d6ade4b729",
            "tokenizer.json": "88bdce467cdfb1b6425ba35fc8f6f035a5659d34496ba0bd53f1e8c5b47a1fca",
        },
    ),
    Entry(
        "luong_general.tatoeba_de_en",
        "zoo.models.luong.LuongNMT",
        {
            "config.json": "4e813fcf7828bfaff860f81ea3fba18f43fa7fc4fb2c86f55bb66f19c38a87dc",
            "golden.safetensors": "2445856c83ec0aa49d79b6284c5c8dd3395041a48f2cffe0e311526cac8e2f82",
            "model.safetensors": "6be17947a023e47ec917042ffa922b82968bb2a911fd160520aa2e959c29a348",
            "tokenizer.json": "f1da40697f0bb4e209f5e7ed078cd6f4a76bb7a48e6e45b1a77f1a72530dee4d",
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
            "config.json": "be774b3f63e42bfc66652b07d34382a00d54d12c15550daf5f868a455a9ef8be",
            "golden.safetensors": "83b53995867719f19ff60f511b1fb5014207f4a97ce9ddbc470e950476e9076b",
            "labels.json": "af627d94d1fc9a7755724d00679fac41a46acc82013e7588bc0e3c07dbfd9cfb",
            "model.safetensors": "71f74b59f63cd95bb3eefb37c178a237997560f4039d50a32c7afa6fcf67f7a3",
            "tokenizer.json": "6ac6f01a979986885dc02c5aee8d52eaa9f49c071c9f22eb6ebd24364f1b4295",
        },
    ),
    Entry(
        "structured_self_attention.sick",
        "zoo.models.structured_self_attention.StructuredSelfAttention",
        {
            "config.json": "2c9783774287e50c25721af42d029ced7cf8be86a773888b0dc76d23f92f05cc",
            "golden.safetensors": "a05bc7d72228bddb38121c45d3dd9bc9e8235ecc422c4598cebe61defbc73ca5",
            "labels.json": "117cd30a94c3b68f28a6306d596a81c242112a9599a4ce7c28e9244777c4a4e0",
            "model.safetensors": "42f11b8e5c560072e27c9797bd4d4d49c1402be211f020b14b81e7b3dde7e389",
            "tokenizer.json": "93da75b23df65ec66bfac37e576fc283cbbd10b22479a8875e80c9523d8b452a",
        },
    ),
    Entry(
        "structured_self_attention.sst2",
        "zoo.models.structured_self_attention.StructuredSelfAttention",
        {
            "config.json": "0e65a9fc91f90ccff596ec3f6b7452f7cd9921b26749664162db6b5dc6d0e680",
            "golden.safetensors": "755a7b75b53eda59dcbbc4318b158918086dffd2902c5bbda0243f38c46ffea9",
            "labels.json": "af627d94d1fc9a7755724d00679fac41a46acc82013e7588bc0e3c07dbfd9cfb",
            "model.safetensors": "84cdd53bf29c001ad2ee1f89faddbe1ed777159869c10bfd07df48991c1f18dc",
            "tokenizer.json": "fb03f19c8cf2891f64116c7dc4e9633803f35ccda7f5d5d9161847ec6b3b26c5",
        },
    ),
    Entry(
        "structured_self_attention.trec6",
        "zoo.models.structured_self_attention.StructuredSelfAttention",
        {
            "config.json": "1e6e7d649b1282253061f9430eab015f90af7ce67d8ac14b5c64944be8ec9231",
            "golden.safetensors": "7e9b68750bde78a3591e9558e8006429b49823f9237e3db7a9641e9fb95283af",
            "labels.json": "e6fb15b60d5810ed2f0781f9a92b6baa2c71b7aeaf4a5e446fbc322791dc236d",
            "model.safetensors": "515f5e40c961302cc237645cfffbdc372470fb36819e24b5164e188653b96bf2",
            "tokenizer.json": "58e6f4cb41937a056c4573d5a30b944b7246d4c65ae5f09fea5d0a2edd513f97",
        },
    ),
    Entry(
        "transformer_tiny.multi30k_en_de",
        "zoo.models.transformer.TransformerNMT",
        {
            "config.json": "0ffbc0a2d62c92f5db84e1f97b44fe5ef712df797cb294615956afc351739699",
            "golden.safetensors": "5e30aaf5a65abc56523f57bf4a32cda8380e403e1a7d778712911a7f4c18424e",
            "model.safetensors": "88fd1c6564d49a490091bff7f9ea529468093a6ac9a425e293e3e7c1c60c1bcc",
            "tokenizer.json": "39aa46ec8da95747633c289c1e1151b2869ea0734814255944fa4974c7b84885",
        },
    ),
    Entry(
        "tutorial_location.tatoeba_fra_en",
        "zoo.models.tutorial_attention.TutorialAttentionNMT",
        {
            "config.json": "a036c99f676809b518e72e83c16e2209274200bd3c93617f472749c10d506509",
            "golden.safetensors": "33d8f0f3a53315ed8a7037409b12dcfba3be4fc92b1b1971093f884fe6aac9f3",
            "model.safetensors": "2544ca66d540357f5cb19544439502eca461ef790b701ea94c9ac8c8e79bde71",
            "tokenizer.src.json": "394e18c842f6ae62030e689e3f23d50958feed55c6625dd58e99cfc1cd6fc968",
            "tokenizer.tgt.json": "8ba7a987d60ece0d607ac1ab9eeefdb16b085d755ce81b63e09fa1b0f61beeec",
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
