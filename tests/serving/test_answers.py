"""`zoo serve`: answers equal the direct call."""

import base64
import json

import pytest
import torch
from captions_fakes import picture
from serving_fakes import IMAGES, QUESTIONS, TEXTS, build, in_base64, loaded, near, serving, without

from zoo.models.key_value_predict_lm import KeyValuePredictLM
from zoo.results.captioning import Caption
from zoo.results.translation import Translation
from zoo.serving.base import Form
from zoo.serving.images import Decoder

OF_A_TEXT = ("text", "score", "confidence", "warnings")


def test_translations_are_those_of_the_model(translator):
    model = translator.api.form.model
    want = [found.to_dict() for found in model.translate(TEXTS[:4])]
    assert translator.ask(text=TEXTS[0]) == near({key: want[0][key] for key in OF_A_TEXT})
    assert translator.ask(texts=TEXTS[:4], attention=True) == {"results": near(want)}
    one = model.translate(TEXTS[4], beam_size=3, n_best=2, length_penalty=0.0).to_dict()
    got = translator.ask(text=TEXTS[4], beam_size=3, n_best=2, length_penalty=0, attention=True)
    assert got == near(one) and len(got["n_best"]) == 2 and got["text"] != model.translate(TEXTS[4]).text


def test_documents_are_classified_as_by_the_model(documents):
    want = documents.api.form.model.classify("A good film. It is bad.").to_dict()
    got = documents.ask(text="A good film. It is bad.", attention=True)
    assert got == near(want) and len(got["sentences"]) == 2
    assert documents.ask(text="A good film. It is bad.") == near(
        {k: want[k] for k in ("label", "labels", "probabilities", "confidence", "warnings")}
    )


def test_pairs_are_compared_as_by_the_model(folders):
    with serving(folders["pairs"]) as client:
        pairs = [["a film", "it is bad"], ["good", "bad"]]
        want = [found.to_dict() for found in client.api.form.model.classify([tuple(pair) for pair in pairs])]
        assert client.ask(pairs=pairs, attention=True) == {"results": near(want)}
        assert client.ask(pair=pairs[1], attention=True) == near(want[1])
        assert client.get("/info").body["model"]["fields"] == ["pair", "pairs", "attention"]
        for pair, message in [
            ("a film", 'pair must be a list of two strings; got "a film"'),
            (["a"], "pair must be a list of two strings; got a list of 1"),
            (["a", 1], "text 2 of pair must be a string; got 1"),
        ]:
            answer = client.send(json.dumps({"pair": pair}))
            assert (answer.status, answer.body) == (400, {"detail": message})
        assert (
            client.send(json.dumps({"pairs": [["a", "a"], ["a", " "]]}))
            .body["detail"]
            .startswith("text 2 of pair 2 is empty")
        )
        assert client.send(json.dumps({"text": "a"})).status == 400


def test_images_are_captioned_as_by_the_model(captioner):
    model = captioner.api.form.model
    want = [found.to_dict() for found in model.caption(IMAGES)]
    assert captioner.ask(images=[in_base64(image) for image in IMAGES], attention=True) == {"results": near(want)}
    wrapped = base64.encodebytes(IMAGES[1]).decode()  # lines of 76 characters
    assert captioner.ask(image=wrapped) == near({key: want[1][key] for key in OF_A_TEXT})
    assert captioner.send(IMAGES[2], Content_Type="image/png").body == near({key: want[2][key] for key in OF_A_TEXT})
    best = model.caption(IMAGES[0], beam_size=4, n_best=3).to_dict()
    assert captioner.ask(image=in_base64(IMAGES[0]), beam_size=4, n_best=3)["n_best"] == near(best["n_best"])


def test_a_large_photo_waits_as_the_small_image_that_the_model_sees(captioner):
    (pixels,) = Decoder(captioner.api.facts()["transform"]).pixels([(picture(5, 300, 200), "image")])
    assert len(pixels) == 6 * 6 * 3
    task = captioner.api.form
    assert task.run([pixels])[0].to_dict() == task.model.caption(picture(5, 300, 200)).to_dict()


def test_hypotheses_that_do_not_exist_are_left_out():
    nothing = ("", -float("inf"))
    result = Translation("a", -1.0, [], [], None, [("a", -1.0), nothing])
    assert Form(None, 0).shown(result, attention=False)["n_best"] == [{"text": "a", "score": -1.0}]
    caption = Caption("a", -1.0, [], torch.zeros(0, 2, 2), [("a", -1.0), nothing])
    assert caption.to_dict()["n_best"] == [{"text": "a", "score": -1.0}]


# ---- language models ----

COMPLETION = ("tokens", "given", "attention")  # sent with "attention" only


def test_texts_are_completed_as_by_the_model(language_model):
    texts = [TEXTS[0], "", "it is\na good", TEXTS[4]]
    want = [found.to_dict() for found in language_model.api.form.model.complete(texts)]
    assert language_model.ask(text=TEXTS[0]) == near(without(want[0], *COMPLETION))
    assert language_model.ask(texts=texts, attention=True) == {"results": near(want)}
    assert language_model.ask(text="")["text"] == want[1]["continuation"] != ""


@pytest.mark.parametrize(
    "options",
    [
        {"max_words": 3}, {"min_words": 9, "beam_size": 1}, {"beam_size": 1}, {"length_penalty": 0}, {"no_repeat_ngram": 2},
        {"allow_unk": True}, {"n_best": 3, "beam_size": 7, "max_words": 4},
    ],
    ids=str,
)  # fmt: skip
def test_options_of_a_completion_act_as_in_the_model(language_model, options):
    model = language_model.api.form.model
    assert language_model.ask(text="a good", **options) == near(
        without(model.complete("a good", **options).to_dict(), *COMPLETION)
    )
    assert language_model.ask(text="a good", **options) != near(
        without(model.complete("a good").to_dict(), *COMPLETION)
    )


def test_what_is_drawn_is_drawn_as_by_the_model(language_model):
    """With one generator of random numbers for both; more can be drawn than a beam holds."""
    options = {"temperature": 0.7, "top_k": 3, "n_best": 8, "max_words": 6, "min_words": 2}
    torch.manual_seed(5)
    want = language_model.api.form.model.complete("a good", **options)
    torch.manual_seed(5)
    got = language_model.ask(text="a good", **options)
    assert got == near(without(want.to_dict(), *COMPLETION)) and len({entry["text"] for entry in got["n_best"]}) > 2
    assert language_model.ask(text="a good", **options) != got


def test_the_perplexity_of_what_was_given(language_model):
    model, texts = language_model.api.form.model, ["a film\nit is bad", "", " \n ", TEXTS[0]]
    plain = language_model.ask(texts=texts)["results"]
    got = language_model.ask(texts=texts, perplexity=True)["results"]
    assert [without(found, "perplexity") for found in got] == near(plain)
    want = model.perplexity(texts)
    assert [found["perplexity"] for found in got] == [
        pytest.approx(want[0], rel=1e-3),
        None,
        None,
        pytest.approx(want[3], rel=1e-3),
    ]
    assert "perplexity" not in plain[0] and "perplexity" not in language_model.ask(text="a", perplexity=False)
    assert language_model.ask(text=texts[3], perplexity=True, attention=True)["given"] == 4


def test_a_model_without_attention_shows_none(tmp_path):
    model = KeyValuePredictLM(**{**KeyValuePredictLM.tiny, "attention": "none"}).eval()
    model.tokenizer = build("language_model").tokenizer
    with serving(f"local-dir:{model.save_pretrained(tmp_path / 'plain')}") as client:
        assert client.ask(text="a", attention=True)["attention"] is None


def test_every_start_draws_other_texts(folders):
    drawn = []
    for _ in range(2):
        torch.manual_seed(0)  # what a new process begins with
        api = loaded(folders["language_model"])
        drawn.append(api.form.run(["a"], temperature=1.0, n_best=8)[0].n_best)
    assert drawn[0] != drawn[1] and api.facts()["model"]["task"] == "language modelling"


# ---- readers ----

READING = ("document", "weights", "query", "query_weights")  # sent with "attention" only


def test_questions_are_answered_as_by_the_model(reader):
    model = reader.api.form.model
    want = [model.answer(q["document"], q["query"], q.get("candidates")).to_dict() for q in QUESTIONS]
    assert [reader.ask(question=question) for question in QUESTIONS] == [
        near(without(found, *READING)) for found in want
    ]
    assert reader.ask(questions=QUESTIONS, attention=True) == {"results": near(want)}
    assert want[0]["answer"] in reader.ask(question=QUESTIONS[0])["probabilities"]
    got = reader.ask(question=QUESTIONS[1])
    assert list(got["probabilities"]) == ["dog", "Ann", "Bob"] and got["answer"] == "Ann"
