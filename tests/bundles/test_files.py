"""Folders of weights from strangers: each is loaded as what it says it is, or refused in one line, soon, and in little
memory.
"""

import inspect
import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import bundle_corpus
import pytest
import tokenizers
import torch
from bundle_corpus import (
    CASES,
    CONFIG,
    LABELS,
    MEMORY,
    SECONDS,
    TEXTS,
    WEIGHTS,
    attempt,
    bit_flips,
    harm,
    mutants,
    same,
    seal,
    use,
    write,
)
from forks import Fork
from model_cases import CASES as MODELS
from model_cases import build
from safetensors.torch import load, save

import zoo
from zoo.bundles.skeleton import check_types, skeleton
from zoo.cli import main
from zoo.models.han import HAN
from zoo.models.luong import LuongNMT
from zoo.models.show_attend_tell import ShowAttendTell
from zoo.text import Tokenizer
from zoo.utils import strict_json
from zoo.utils.strict_json import digest


@pytest.fixture(scope="module")
def good():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield bundle_corpus.bundles()
    torch.set_num_threads(threads)


@pytest.mark.parametrize(("file", "what"), [("onnx.json", "ONNX graphs"), ("ctranslate2.json", "a Transformer for CT")])
def test_exports_are_told_from_weights(tmp_path, file, what):
    for name in (file, "config.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(zoo.MisfitError, match=f"is not a folder of weights: it holds {what}"):
        zoo.load(f"local-dir:{tmp_path}")


@pytest.mark.parametrize("name", ["translator", "classifier", "document", "captioner", "writer", "reader"])
def test_what_is_spoilt_below_loads_before(good, name, tmp_path):
    model = zoo.load(f"local-dir:{write(good[name], tmp_path)}")
    assert harm(model, good[name]) is None and len(use(model)) == 2


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "_"))
def test_spoilt_bundle(good, case, tmp_path):
    found = attempt(case.write(good, tmp_path / "bundle"))
    assert found["model"] is None, "it loads"
    assert found["error"] == case.kind.__name__ and case.says in found["message"]
    assert found["message"].isprintable() and len(found["message"]) < 600 + len(str(tmp_path))
    assert found["seconds"] < SECONDS and found["bytes"] < MEMORY


def test_corpus_is_large_and_its_names_differ():
    names = [case.name for case in CASES]
    assert len(names) >= 200 and len(set(names)) == len(names)


@pytest.mark.integration
@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited by what Linux offers")
def test_spoilt_bundles_do_nothing_but_fail(tmp_path):
    """In a process that cannot get more memory and notes programs, connections, pickles and files opened elsewhere.

    Besides the list and some mutants: each whole number of each class of the zoo set to a billion.
    """
    run = Fork(bundle_corpus.main, [str(tmp_path), "--mutants", "50"]).wait()
    assert run.code == 0, run.output[-2000:]
    limits, *found = [json.loads(line) for line in run.output.splitlines() if line.startswith("{")]
    for done in (
        "open /etc/passwd",
        f"open {tmp_path}/new",
        "pickle.find_class",
        "os.system",
    ):  # what the process did on purpose
        assert any(done in seen for seen in limits["did"])
    assert limits["refused"]
    assert len(found) > len(CASES) + 150
    for one in found:
        assert one["did"] == [] and not one.get("harm"), f"{one['name']}: {one.get('harm') or one['did']}"
        assert one["seconds"] < SECONDS and one["bytes"] < MEMORY, one["name"]
    assert all(one["error"] == case.kind.__name__ for one, case in zip(found, CASES)), (
        "refused for another reason, e.g. lack of memory"
    )
    assert not Path(bundle_corpus.MARK).exists()


def test_at_the_command_line(good, tmp_path, capsys):
    for base, name in [("document", LABELS), ("translator", WEIGHTS)]:
        folder, says = write(good[base] | {name: b"[]"}, tmp_path), f"{name} is damaged or was changed"
        assert main(["predict", f"local-dir:{folder}", "Two dogs."]) == 2
        out, error = capsys.readouterr()
        assert out == "" and error.startswith("zoo: error: ") and says in error and error.count("\n") == 1


def test_random_mutants(good, tmp_path):
    _check_mutants(good, tmp_path, 300, seed=0)


@pytest.mark.slow
def test_many_random_mutants(good, tmp_path):
    _check_mutants(good, tmp_path, 10_000, seed=1)


def _check_mutants(good, folder, count, seed):
    """Each is refused, or does no harm (see `bundle_corpus.harm`); damage without fitting hashes is always refused."""
    loaded = 0
    for n, (base, sealed, done, files) in enumerate(islice(mutants(good, seed), count)):
        found = attempt(write(files, folder))
        name = f"mutant {n} of seed {seed}, {base}, {done}: "
        assert found["seconds"] < SECONDS and found["bytes"] < MEMORY, name
        if found["model"] is None:
            assert found["message"].isprintable(), name
        else:
            loaded += 1
            assert (wrong := harm(found["model"], files)) is None, name + wrong
            assert sealed or same(files, good[base]), name + "loads, although its hashes do not fit"
    assert 0.05 * count < loaded < 0.5 * count  # else they are too wild, or too tame


@pytest.mark.parametrize("count", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_every_changed_bit_is_seen(good, count, tmp_path):
    """In every file; nothing but the stored hashes and the digest protects against them."""
    for base, where, files in islice(bit_flips(good, seed=0), count):
        found = attempt(write(files, tmp_path))
        assert found["model"] is None, f"{where} of {base} is not seen"


# ---- what is allowed ----


def test_settings_may_differ_if_the_hashes_fit(good, tmp_path):
    config = json.loads(good["translator"][CONFIG])
    config["init_args"] |= {"dropout": 0.25, "beam_size": 2, "length_penalty": 1}  # 1 is a number as well
    model = zoo.load(f"local-dir:{write(seal(good['translator'] | {CONFIG: json.dumps(config).encode()}), tmp_path)}")
    assert model.config["beam_size"] == 2 and model.dropout.p == 0.25 and model.config["length_penalty"] == 1


def test_a_config_without_digest_is_taken_as_it_is(good, tmp_path):
    """What older versions saved, and what people edit."""
    config = json.loads(good["translator"][CONFIG])
    del config["digest"]
    config["init_args"]["beam_size"] = 3
    assert (
        zoo.load(f"local-dir:{write(good['translator'] | {CONFIG: json.dumps(config).encode()}, tmp_path)}").config[
            "beam_size"
        ]
        == 3
    )


def test_the_advice_for_a_changed_config_works(good, tmp_path):
    config = json.loads(good["translator"][CONFIG])
    config["init_args"]["beam_size"] = 3
    folder = write(good["translator"] | {CONFIG: json.dumps(config).encode()}, tmp_path)
    with pytest.raises(zoo.BundleError, match='If the change is yours, make the digest empty: "digest": ""$'):
        zoo.load(f"local-dir:{folder}")
    text = (folder / CONFIG).read_text(encoding="utf-8").replace(config["digest"], "")
    (folder / CONFIG).write_text(text, encoding="utf-8")
    assert zoo.load(f"local-dir:{folder}").config["beam_size"] == 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_load_as_fp32(good, dtype, tmp_path):
    tensors = {name: t.to(dtype) for name, t in load(good["document"][WEIGHTS]).items()}
    model = zoo.load(f"local-dir:{write(seal(good['document'] | {WEIGHTS: save(tensors)}), tmp_path)}")
    for name, t in model.state_dict().items():
        assert t.dtype == torch.float32 and torch.equal(t, tensors[name].float())


def test_files_that_config_does_not_list_are_left_alone(good, tmp_path):
    folder = write(good["document"], tmp_path)
    (folder / "README.md").write_bytes(b"\xff")
    (folder / "modeling_evil.py").write_text("raise SystemExit")
    (folder / "pipe").symlink_to("/dev/zero")
    assert len(use(zoo.load(f"local-dir:{folder}"))) == 2


def test_labels_of_a_new_head_that_was_not_trained(good, tmp_path):
    model = zoo.load(f"local-dir:{write(good['document'], tmp_path / 'old')}", {"num_classes": 4})
    assert model.label_names is None and model.classifier.weight.isfinite().all()
    again = zoo.load(f"local-dir:{model.save_pretrained(tmp_path / 'new')}")
    assert again.label_names is None and again.config["num_classes"] == 4


def test_overrides_are_checked_as_well(good, tmp_path):
    source = f"local-dir:{write(good['document'], tmp_path)}"
    for overrides, message in [
        ({"dropout": "0.3"}, "dropout must be a number up to 2,147,483,647; got '0.3'"),
        ({"dropout": 1.5}, r"HAN cannot be built with these arguments: dropout must be in \[0, 1\); got 1.5"),
        ({"word_layers": 10**9}, "HAN cannot be built with these arguments: they ask for more than 2,000 tensors"),
    ]:
        with pytest.raises(ValueError, match=message) as error:
            zoo.load(source, overrides)
        assert not isinstance(error.value, zoo.BundleError)  # the folder is not at fault
    assert zoo.load(source, {"dropout": 0.5}).config["dropout"] == 0.5


def test_an_image_size_may_be_overridden(good, tmp_path):
    model = zoo.load(f"local-dir:{write(good['captioner'], tmp_path)}", {"image_size": 10})
    assert model.transform.size == 10 and len(use(model)) == 2


# ---- where the files are ----


def _cached(files, root, shared):
    """The layout of the cache of the Hub: links into the blobs of the repository, or from there into those of all
    repositories.
    """
    repository = root / "models--me--toy"
    folder, blobs = repository / "snapshots" / ("a" * 40), repository / "blobs"
    folder.mkdir(parents=True)
    blobs.mkdir()
    for n, (name, content) in enumerate(files.items()):
        blob = blobs / f"{n:040}"
        (folder / name).symlink_to(Path("..", "..", "blobs", blob.name))
        if shared:
            store = root / "blobs" / f"{n:02}" / f"{n:064}"
            store.parent.mkdir(parents=True)
            store.write_bytes(content)
            blob.symlink_to(Path("..", "..", "blobs", store.parent.name, store.name))
        else:
            blob.write_bytes(content)
    return folder


@pytest.mark.parametrize("shared", [False, True])
def test_links_of_the_cache_of_the_hub_are_followed(good, shared, tmp_path):
    folder = _cached(good["document"], tmp_path / "hub", shared)
    assert len(use(zoo.load(f"local-dir:{folder}"))) == 2


def test_other_links_of_such_a_layout_are_not(good, tmp_path):
    folder = _cached(good["document"], tmp_path / "hub", shared=False)
    blob = (folder / LABELS).resolve()
    blob.rename(tmp_path / "labels.json")
    blob.symlink_to(tmp_path / "labels.json")
    with pytest.raises(
        zoo.MisfitError, match="labels.json is a link to .*, outside the folder; put the file itself there"
    ):
        zoo.load(f"local-dir:{folder}")


def test_the_folder_itself_may_be_a_link(good, tmp_path):
    write(good["document"], tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert len(use(zoo.load(f"local-dir:{tmp_path / 'link'}"))) == 2


@pytest.mark.parametrize("path", ["/no/such/folder", "~no-such-user/x", "x" * 5000, "a\0b", ""])
def test_no_such_folder(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(zoo.DamagedError, match="is not a folder of weights: it has no config.json"):
        zoo.load(f"local-dir:{path}")


def test_a_class_refuses_the_bundle_of_another(good, tmp_path):
    with pytest.raises(zoo.MisfitError, match="holds a zoo.models.han.HAN, not a zoo.models.luong.LuongNMT"):
        LuongNMT.from_pretrained(write(good["document"], tmp_path))


# ---- the parts ----


def test_arguments_are_checked_against_the_signature():
    class Odd:
        def __init__(self, sizes: list[int], pair: tuple[int, float], many: tuple[str, ...] | None = None):
            """Forms that no model uses yet."""

    for good_ones in (
        {"sizes": [1, 2], "pair": [1, 0.5]},
        {"sizes": [], "pair": [1, 2], "many": ["a"]},
        {"many": None},
    ):
        check_types(Odd, good_ones)
    for wrong, message in [
        ({"sizes": [1, "2"]}, "sizes must be a list of a whole number .*; got \\[1, '2'\\]"),
        ({"sizes": 3}, "sizes must be a list"),
        ({"pair": [1]}, "pair must be a list of a whole number .* and a number"),
        ({"pair": [0.5, 1]}, "pair must be a list"),
        ({"many": [1]}, "many must be a list of text or null"),
    ]:
        with pytest.raises(ValueError, match=message):
            check_types(Odd, wrong)


def test_every_argument_of_every_model_is_checked():
    for cls in dict.fromkeys(case.values[0] for case in MODELS):
        config = build(cls).config
        check_types(cls, config)
        for name, value in config.items():
            with pytest.raises(ValueError, match=f"{name} must be "):
                check_types(cls, {name: {"_target_": value}})


@pytest.mark.parametrize(("cls", "options"), MODELS)
def test_a_skeleton_has_the_shapes_of_the_model_and_no_memory(cls, options):
    """Of every model of the zoo; that it becomes the same model is tested with all others by test_common.py."""
    random = torch.get_rng_state()
    model = build(cls, **options)
    torch.set_rng_state(random)
    found = skeleton(cls, model.config)
    assert torch.equal(torch.get_rng_state(), random)  # loading draws no random numbers
    assert {n: (t.shape, t.dtype) for n, t in found.state_dict().items()} == {
        n: (t.shape, t.dtype) for n, t in model.state_dict().items()
    }
    assert all(t.is_meta for t in found.state_dict().values()) and found.device.type == "meta"


def test_what_needs_its_own_numbers_is_built_for_real(tmp_path):
    """A buffer that is not saved, and a tensor that is neither parameter nor buffer."""
    folder = write(bundle_corpus.saved(HAN(**HAN.tiny)), tmp_path)

    def positions(self, *args, **kwargs):
        init(self, *args, **kwargs)
        self.register_buffer("positions", torch.arange(3.0), persistent=False)
        self.scales = torch.ones(2)

    init = HAN.__init__
    positions.__signature__ = inspect.signature(init)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HAN, "__init__", positions)
        model = HAN.from_pretrained(folder)
    assert model.positions.tolist() == [0, 1, 2] and model.scales.tolist() == [1, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backbone", "layer"), [("resnet18", "layer4"), ("regnet_x_400mf", "trunk_output"), ("swin_v2_t", "permute")]
)
def test_networks_of_torchvision(backbone, layer, tmp_path):
    """Their constructors compute with tensors, and their forward passes with buffers."""
    model = ShowAttendTell(**ShowAttendTell.tiny | {"backbone": backbone, "layer": layer, "image_size": 64}).eval()
    again = ShowAttendTell.from_pretrained(model.save_pretrained(tmp_path / "bundle"))
    batch = model.example_batch(2)
    with torch.no_grad():
        assert torch.equal(model(batch.images, batch.captions)[0], again(batch.images, batch.captions)[0])


def test_hooks_of_loading_are_gone_afterwards(good, tmp_path):
    for case in (CASES[0], next(case for case in CASES if case.name == "layers a billion")):
        attempt(case.write(good, tmp_path / "bundle"))
        shutil.rmtree(tmp_path / "bundle")
    modules = torch.nn.modules.module
    assert not modules._global_parameter_registration_hooks and not modules._global_buffer_registration_hooks
    assert not torch.nn.Linear(2, 2).weight.is_meta


def test_threads_do_not_disturb_each_other(good, tmp_path):
    """One of them loads while the other builds models of its own."""
    source, real = f"local-dir:{write(good['document'], tmp_path)}", []
    with ThreadPoolExecutor(2) as pool:
        loads = [pool.submit(zoo.load, source) for _ in range(20)]
        while not all(load.done() for load in loads):
            real.append(HAN(**HAN.tiny))
    assert real and not any(t.is_meta for model in real for t in model.state_dict().values())
    for model in (done.result() for done in loads):
        assert model.embedding.weight.isfinite().all()
        assert model.device.type == model._device.type == "cpu"


def test_strict_json():
    assert strict_json.loads('{"a": [1, 2.5, "\\ud83d\\ude00", null]}', 0) == {"a": [1, 2.5, "😀", None]}
    for text, message in [
        ('{"a": 1, "a": 2}', "a key occurs twice"),
        ('\ufeff{"a": 1}', "begins with a byte order mark; leave that out"),
        (f'{{"a": {"9" * 5000}}}', "a number of 5,000 digits is not allowed"),
        ("[NaN]", "NaN is not allowed"),
        ("[1e400]", "1e400 is not allowed: it is infinite"),
        ('["\\ud800"]', "half of a surrogate pair"),
        ("[" * 60_000, "nested too deeply"),
        (" " * 70_000, "70,000 characters are too many for 0 entries"),
    ]:
        with pytest.raises(ValueError, match=message):
            strict_json.loads(text, 0)
    assert strict_json.loads(" " * 70_000 + "1", 100) == 1


def test_strict_json_counts_levels_the_same_on_each_python():
    deepest = strict_json.DEEPEST
    for open_, close in ("[]", ('{"a":', "}")):
        whole = [open_ * n + "1" + close * n for n in (deepest, deepest + 1)]
        strict_json.loads(whole[0], 0)
        with pytest.raises(ValueError, match="nested too deeply"):
            strict_json.loads(whole[1], 0)
    beside = [[]] * 3 * deepest
    assert strict_json.loads(json.dumps(beside), 0) == beside
    words = ["[" * 2 * deepest, '\\"' + "[{" * deepest, "\\"]  # brackets inside of texts are none
    assert strict_json.loads(json.dumps(words), 0) == words


def test_digest_depends_on_the_content_alone():
    config = {"class_path": "a", "init_args": {"x": 1, "y": 0.5}, "sha256": {}}
    again = {"sha256": {}, "init_args": {"y": 0.5, "x": 1}, "class_path": "a"}
    assert digest(config) == digest(again) != digest({**config, "init_args": {"x": 1, "y": 0.25}})


def test_words_are_taken_from_a_file_and_nothing_else(good):
    """A tokenizer is put together anew; what the library would read from the same text can differ in nothing."""
    for files in good.values():
        for name, content in files.items():
            if name.startswith("tokenizer"):
                ours, theirs = Tokenizer.from_json(content.decode()), tokenizers.Tokenizer.from_str(content.decode())
                assert json.loads(ours.to_json()) == json.loads(theirs.to_str())


def test_numbers_that_are_no_words_are_passed_over(good):
    """A model may have more rows than its tokenizer has words."""
    for files in good.values():
        for name, content in files.items():
            if name.startswith("tokenizer"):
                tokenizer = Tokenizer.from_json(content.decode())
                ids = tokenizer.encode(TEXTS[0])
                assert tokenizer.decode([*ids, 999]) == tokenizer.decode(ids)
                assert tokenizer.tokens([999]) == ["<unk>"]


def test_weights_that_give_no_numbers(good, tmp_path):
    """Finite, but too large to compute with."""
    huge = {name: torch.full_like(t, 3e38) for name, t in load(good["translator"][WEIGHTS]).items()}
    model = zoo.load(f"local-dir:{write(seal(good['translator'] | {WEIGHTS: save(huge)}), tmp_path)}")
    with pytest.raises(ValueError, match="the model computes NaN instead of probabilities: its weights are too large"):
        model.translate(TEXTS)
