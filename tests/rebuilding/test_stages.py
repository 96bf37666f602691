"""The stages of a recipe are read and checked before anything runs."""

import pytest
import yaml
from rebuild_cases import rebuild
from safetensors import safe_open

from zoo import registry
from zoo.bundles.files import WEIGHTS
from zoo.commands.recipes import find
from zoo.rebuilding.stages import filled, read_stages

SCRATCH = {"class_path": "zoo.models.luong.LuongNMT"}
LOADED = {"class_path": "zoo.load", "init_args": {"name": "luong_dot.dates"}}


@pytest.fixture
def recipe(tmp_path):
    """Writes a recipe with stages, next to one that trains from scratch and one that starts from a weight."""

    def write(stages, model=LOADED):
        for name, kind in (("scratch", SCRATCH), ("loaded", LOADED)):
            (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({"model": kind}))
        file = tmp_path / "own.yaml"
        file.write_text(yaml.safe_dump({"model": model, **({"stages": stages} if stages is not None else {})}))
        return file

    return write


def test_a_recipe_without_stages_is_one_fit(recipe):
    (stage,) = read_stages(recipe(None))
    assert (stage.kind, stage.name, stage.recipe.name, stage.uses) == ("fit", "weight", "own.yaml", ())
    assert stage.what == "fit own"


def test_stages_know_what_they_use(recipe):
    stages = read_stages(
        recipe(
            [
                {"fit": "scratch", "to": "first"},
                {"prepare": "awk '{print $1}' {first}/config.json > a; cp a b", "to": ["a", "b"]},
                {"translate": "b", "by": ["first", "luong_dot.dates"], "to": "pairs"},
                {"from": "first", "settings": {"data.extra": ["{pairs}", {"also": "{a}"}]}, "to": "second"},
                {"average": ["first", "second", "luong_dot.dates"]},
            ]
        )
    )
    assert [(stage.name, stage.uses, stage.weights) for stage in stages] == [
        ("first", (), ()),
        ("a", ("first",), ()),
        ("pairs", ("first", "b"), ("luong_dot.dates",)),
        ("second", ("first", "pairs", "a"), ()),
        ("weight", ("first", "second"), ("luong_dot.dates",)),
    ]
    assert [stage.what for stage in stages] == [
        "fit scratch",
        "prepare a, b",
        "translate b by first, luong_dot.dates",
        "fit own from first",
        "average first, second, luong_dot.dates",
    ]


def test_one_model_translates_too(recipe):
    alone = {"translate": "lines", "by": "luong_dot.dates", "length_penalties": [1.0], "to": "pairs"}
    stages = read_stages(recipe([LINES, alone, FIRST]))
    assert (stages[1].uses, stages[1].weights) == (("lines",), ("luong_dot.dates",))
    assert stages[1].given["by"] == ["luong_dot.dates"] and stages[1].what == "translate lines by luong_dot.dates"


def test_models_classify_lines(recipe):
    stages = read_stages(recipe([LINES, {"classify": "lines", "by": ["han.imdb"], "to": "table"}, FIRST]))
    assert (stages[1].uses, stages[1].weights) == (("lines",), ("han.imdb",))
    assert stages[1].what == "classify lines by han.imdb"


def test_an_encoder_only_classifies(recipe):
    teacher = {"encoder": {"epochs": 2}, "to": "teacher"}
    stages = read_stages(recipe([LINES, teacher, {"classify": "lines", "by": "teacher", "to": "table"}, FIRST]))
    assert stages[2].uses == ("teacher", "lines") and stages[1].what == "fine-tune a sentence encoder"
    assert stages[1].makes == "encoder" and "own" not in stages[1].definition({})


def test_models_predict_the_training_text(recipe):
    stages = read_stages(
        recipe([FIRST, {"predict": "train", "by": ["first", "key_value_predict.ptb"], "to": "soft"}, {}])
    )
    assert (stages[1].uses, stages[1].weights) == (("first",), ("key_value_predict.ptb",))
    assert stages[1].what == "predict train by first, key_value_predict.ptb" and stages[1].makes == "file"


def test_models_write_text(recipe):
    more = {"sample": 4000000, "by": ["key_value_predict.ptb"], "to": "more"}
    soft = {"predict": "train", "by": "key_value_predict.ptb", "extra_text": "more", "to": "soft"}
    stages = read_stages(recipe([more, soft, FIRST]))
    assert stages[0].what == "sample 4,000,000 words by key_value_predict.ptb"
    assert (stages[1].uses, stages[1].weights) == (("more",), ("key_value_predict.ptb",))


def test_lines_are_varied_crossed_and_paired(recipe):
    both = {"prepare": "echo > lines; echo > vectors", "to": ["lines", "vectors"]}
    vary = {"vary": "lines", "vectors": "vectors", "to": "more"}
    cross, pair = {"cross": "more", "count": 9, "to": "crossed"}, {"pair": "crossed", "to": "pairs"}
    stages = read_stages(recipe([both, vary, cross, pair, FIRST]))
    assert stages[1].uses == ("lines", "vectors") and stages[1].what == "vary lines"
    assert stages[2].uses == ("more",) and stages[2].what == "cross more"
    assert stages[3].uses == ("crossed",) and stages[3].what == "pair crossed"


def test_stages_of_another_recipe_stand_in_their_place(recipe, tmp_path):
    own = [{"stages": "loaded", "up_to": "b"}, {"from": "second"}]
    theirs = [{"stages": "scratch", "up_to": "first"}, {"from": "first", "to": "second"}, {**LINES, "to": ["a", "b"]}]
    file = recipe(own)
    for name, model, listed in (("loaded", LOADED, theirs), ("scratch", SCRATCH, [{"to": "first"}, {"to": "unused"}])):
        (tmp_path / f"{name}.yaml").write_text(
            yaml.safe_dump({"model": model, "stages": [*listed, {"to": "their_last"}]})
        )
    stages = read_stages(file)
    assert [stage.name for stage in stages] == ["first", "second", "a", "weight"]
    assert [stage.recipe.stem for stage in stages] == ["scratch", "loaded", "loaded", "own"]
    assert [stage.uses for stage in stages] == [(), ("first",), (), ("second",)]
    assert [stage.definition({}) for stage in stages[:2]] == [
        stage.definition({}) for stage in read_stages(tmp_path / "loaded.yaml")[:2]
    ]


def test_a_teacher_of_another_recipe_learns_the_data_of_that_one(recipe, tmp_path):
    predict = {"predict": "train", "by": "key_value_predict.ptb", "to": "soft"}
    theirs = {"model": SCRATCH, "data": {"class_path": "zoo.data.TREC"}, "stages": [TEACHER, predict, FIRST]}
    file, other = recipe([{"stages": "scratch", "up_to": "soft"}, {"to": "x"}]), tmp_path / "scratch.yaml"
    other.write_text(yaml.safe_dump(theirs))
    teacher, soft, _ = read_stages(file)
    assert teacher.recipe == soft.recipe == other
    assert [stage.definition({})["data"] for stage in (teacher, soft)] == [theirs["data"]] * 2


def test_recipes_do_not_take_stages_in_a_circle(recipe, tmp_path):
    file = recipe([{"stages": "loaded", "up_to": "x"}, FIRST])
    (tmp_path / "loaded.yaml").write_text(
        yaml.safe_dump({"model": LOADED, "stages": [{"stages": "own", "up_to": "x"}]})
    )
    with pytest.raises(
        ValueError, match=r"own\.yaml, stage 1: .*loaded\.yaml, stage 1: stages: own\.yaml takes stages"
    ):
        read_stages(file)


def test_only_names_in_braces_are_replaced():
    assert filled({"x": ["{a} {print $1} {b}", 1]}, {"a": "/A"}) == {"x": ["/A {print $1} {b}", 1]}


FIRST = {"fit": "scratch", "to": "first"}
TEACHER = {"encoder": {}, "to": "teacher"}
LINES = {"prepare": "echo > lines", "to": ["lines"]}
WRONG = {  # what the message says -> stages
    "`stages:` must be a list of stages": "fit",
    "`stages:` must be a list of stages, each": [],
    "stage 2: 'form' is no key of a fit; allowed: fit, from, settings, checkpoint, export, int8, to": [
        FIRST,
        {"form": "first"},
    ],
    "stage 1: 'by' is no key of an average; allowed: average, int8, to": [
        {"average": ["x", "y"], "by": 1, "to": "z"},
        FIRST,
    ],
    "stage 1: it has no name; give to: NAME": [{"fit": "scratch"}, FIRST],
    "stage 1: a name has letters, digits": [{"fit": "scratch", "to": "../x"}],
    "stage 2: there are two stages named 'first'": [FIRST, FIRST],
    "stage 1: a fit has one name; got a, b": [{"fit": "scratch", "to": ["a", "b"]}],
    "stage 1: fit: there is no recipe": [{"fit": "absent"}],
    "stage 2: from: scratch.yaml trains a model from scratch": [FIRST, {"fit": "scratch", "from": "first"}],
    "stage 2: there is no stage 'frist' and no weight of `zoo list`; earlier stages are first": [
        FIRST,
        {"from": "frist"},
    ],
    "stage 1: there is no stage 'x', and it is the first": [{"settings": {"data.extra": "{x}"}}],
    "stage 1: it needs 'last', which is not made before it": [{"from": "last", "to": "a"}, {"from": "a", "to": "last"}],
    "stage 1: it needs 'b', which is not made": [{"prepare": "cat {b} > a", "to": "a"}, {**LINES, "to": "b"}, FIRST],
    "stage 2: 'lines' is a file, and a weight is needed": [LINES, {"from": "lines"}],
    "stage 2: 'first' is a weight, and a file is needed": [
        FIRST,
        {"translate": "first", "by": ["first"] * 2, "to": "x"},
    ],
    "stage 1: settings must be like {data.seed: 2}; got 3": [{"settings": 3}],
    "a setting is like trainer.max_epochs, as `zoo fit --help` names them; got '--trainer.max_epochs'": [
        {"settings": {"--trainer.max_epochs": 1}}
    ],
    "stage 1: trainer.default_root_dir is set by `zoo rebuild` itself": [
        {"settings": {"trainer.default_root_dir": "x"}}
    ],
    "stage 1: checkpoint must be 'best' or 'last'; got 'first'": [{"checkpoint": "first"}],
    "stage 1: export must be like {beam_size: 2}; got 2": [{"export": 2}],
    "stage 1: stages of another recipe are {stages: RECIPE, up_to: NAME}; got the keys stages, to": [
        {"stages": "scratch", "to": "x"}
    ],
    "stage 1: stages: there is no recipe": [{"stages": "absent", "up_to": "x"}, FIRST],
    "stage 1: scratch.yaml has no stage 'x'; its stages are none with a name": [
        {"stages": "scratch", "up_to": "x"},
        FIRST,
    ],
    "stage 1: int8 must be true or false; got 8": [{"int8": 8}],
    "stage 1: a stage has export or int8, not both": [{"int8": True, "export": {"beam_size": 2}}],
    "stage 2: average needs two weights or more": [FIRST, {"average": "first"}],
    "stage 1: prepare must be lines for bash": [{"prepare": ["ls"], "to": "x"}, FIRST],
    "stage 2: translate needs a model under by": [LINES, {"translate": "lines", "by": [], "to": "x"}],
    "stage 2: classify needs a model under by": [LINES, {"classify": "lines", "to": "x"}],
    "stage 1: predict needs a model under by": [{"predict": "train", "to": "x"}, FIRST],
    "stage 1: predict must be 'train', the training text of this recipe; got 'lines'": [
        {"predict": "lines", "by": "han.imdb", "to": "x"},
        FIRST,
    ],
    "stage 1: epochs must be a whole number, at least 1; got 0": [{"encoder": {"epochs": 0}, "to": "x"}, FIRST],
    "stage 1: label_smoothing must be a number, from 0 to 1; got 2": [
        {"encoder": {"label_smoothing": 2}, "to": "x"},
        FIRST,
    ],
    "stage 2: count must be a whole number, at least 1; got 0": [LINES, {"cross": "lines", "count": 0, "to": "x"}],
    "stage 2: copies must be a whole number, at least 1; got 'ten'": [
        LINES,
        {"vary": "lines", "vectors": "lines", "copies": "ten", "to": "x"},
    ],
    "stage 2: min_probability must be a number, from 0 to 1; got '0.6'": [
        LINES,
        {"classify": "lines", "by": "han.imdb", "min_probability": "0.6", "to": "x"},
    ],
    "stage 2: beam_size must be a whole number, at least 1; got True": [
        LINES,
        {"translate": "lines", "by": "luong_dot.dates", "beam_size": True, "to": "x"},
    ],
    "stage 1: sample must be a number of words, at least 1; got 'many'": [
        {"sample": "many", "by": "han.imdb", "to": "x"},
        FIRST,
    ],
    "stage 1: sample needs a model under by": [{"sample": 9, "to": "x"}, FIRST],
    "stage 1: there is no stage 'y', and it is the first": [
        {"predict": "train", "by": "han.imdb", "extra_text": "y", "to": "x"},
        FIRST,
    ],
    "stage 2: 'beam_size' is no key of a classify; allowed: classify, by, min_probability, to": [
        LINES,
        {"classify": "lines", "by": "han.imdb", "beam_size": 2, "to": "x"},
    ],
    "stage 2: 'lines' is a file, and a weight or an encoder is needed": [
        LINES,
        {"classify": "lines", "by": "lines", "to": "x"},
    ],
    "stage 2: 'teacher' is an encoder, and a weight is needed": [TEACHER, {"from": "teacher"}],
    "stage 1: encoder must be settings like {epochs: 3}, of epochs, lr, batch_size, label_smoothing, longest, seed; got 'epoch'": [
        {"encoder": {"epoch": 1}, "to": "x"},
        FIRST,
    ],
    "stage 1: encoder must be settings like {epochs: 3}, of epochs, lr, batch_size, label_smoothing, longest, seed; got 3": [
        {"encoder": 3, "to": "x"},
        FIRST,
    ],
    "stage 2: vary needs vectors: a file of word vectors": [LINES, {"vary": "lines", "to": "x"}, FIRST],
    "stage 3: 'first' is a weight, and a file is needed": [
        LINES,
        FIRST,
        {"vary": "lines", "vectors": "first", "to": "x"},
    ],
    "the last stage must make a weight: a fit or an average; it is an encoder": [TEACHER],
    "stage 2: length_penalties must be one for each of 2 models; got [1]": [
        LINES,
        {"translate": "lines", "by": ["luong_dot.dates"] * 2, "length_penalties": [1], "to": "x"},
    ],
    "the last stage must make a weight: a fit or an average; it is a prepare": [LINES],
}


@pytest.mark.parametrize("said", WRONG)
def test_wrong_stages_end_with_one_line(said, recipe, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = recipe(WRONG[said])
    assert rebuild(file) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"zoo: error: {file}") and said in line
    assert not (tmp_path / "runs").exists(), "nothing ran"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["luong_dot.date"], "there is no recipe 'luong_dot.date'; nearest: luong_dot.dates"),
        (["absent.yaml"], "absent.yaml"),
        (["luong_dot.dates", "--root", "absent"], "--root absent: no such folder"),
        (["luong_dot.dates", "--trainer.max_epochs"], "--trainer.max_epochs needs a value"),
        (["luong_dot.dates", "more"], "'more' is neither an option nor the value of one"),
        (["luong_dot.dates", "--ckpt_path", "last"], "ckpt_path is set by `zoo rebuild` itself"),
    ],
)
def test_a_wrong_command_line_ends_with_one_line(arguments, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert rebuild(*arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.parametrize("name", registry.list_models())
def test_the_recipe_of_each_weight_has_right_stages(name):
    last = read_stages(find(name))[-1]
    assert last.makes == "weight"
    with safe_open(registry.BUNDLED / name / WEIGHTS, "pt") as file:
        in_8_bits = any(key.endswith(".scale") for key in file.keys())  # noqa: SIM118
    assert last.given.get("int8", False) == in_8_bits, "it is stored as the recipe says"


def test_the_list(capsys, tmp_path):
    assert rebuild("structured_self_attention.sick", "--list", "--output", tmp_path / "out") == 0
    assert capsys.readouterr().out.splitlines() == [
        "captions             fit reference_structured_self_attention.caption_pairs  to do",
        "mixed                fit structured_self_attention.sick from captions       to do",
        "sentences            prepare sentences, held_out                            to do",
        "paired               pair sentences                                         to do",
        "pairs                prepare pairs                                          to do",
        "teacher1             fine-tune a sentence encoder                           to do",
        "teacher2             fine-tune a sentence encoder                           to do",
        "teacher3             fine-tune a sentence encoder                           to do",
        "labelled.tsv         classify pairs by teacher1, teacher2, teacher3         to do",
        "captions.en          prepare captions.en, snli                              to do",
        "similar_captions     pair captions.en                                       to do",
        "others               prepare others                                         to do",
        "labelled_others.tsv  classify others by teacher1, teacher2, teacher3        to do",
        "weight               fit structured_self_attention.sick from mixed          to do",
    ]
    assert not (tmp_path / "out").exists()
