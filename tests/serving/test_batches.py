"""`zoo serve`: what waits together is answered together, and nobody suffers from others."""

import json
import logging
from concurrent.futures import ThreadPoolExecutor

from serving_fakes import DOCUMENT, QUESTIONS, TEXTS, in_one_round, loaded, near, recorded, without


def test_what_waits_is_answered_together(api, monkeypatch):
    calls = recorded(api, monkeypatch)
    sent = in_one_round(api, *({"text": text} for text in TEXTS))
    assert [sorted(items) for items, _ in calls] == [sorted(TEXTS)]
    assert sorted((number, status, together) for number, status, _, together in sent) == [(n, 200, 6) for n in range(6)]
    for number, _, content, _ in sent:
        assert content["text"] == api.form.model.translate(TEXTS[number]).text


def test_a_batch_has_a_size(api, monkeypatch):
    calls = recorded(api, monkeypatch)
    sent = in_one_round(api, *({"texts": TEXTS[:3]} for _ in range(5)))
    assert [len(items) for items, _ in calls] == [8, 7]  # a request may be answered in two batches
    want = [found.text for found in api.form.model.translate(TEXTS[:3])]
    assert [[found["text"] for found in content["results"]] for _, _, content, _ in sent] == [want] * 5


def test_only_the_same_options_share_a_batch(api, monkeypatch):
    calls = recorded(api, monkeypatch)
    requests = [
        {"text": "a"}, {"text": "bad", "beam_size": 2}, {"text": "film", "beam_size": 5, "attention": True}, {"text": "it", "beam_size": 2}
    ]  # fmt: skip
    sent = in_one_round(api, *requests)
    assert sorted((sorted(items), options["beam_size"]) for items, options in calls) == [
        (["a", "film"], 5),
        (["bad", "it"], 2),
    ]
    for number, _, content, _ in sent:
        fields = requests[number]
        assert content["text"] == api.form.model.translate(fields["text"], beam_size=fields.get("beam_size")).text
        assert ("attention" in content) == ("attention" in fields)


def test_a_wrong_request_is_answered_before_the_batch_and_not_part_of_it(api, monkeypatch):
    calls = recorded(api, monkeypatch)
    sent = in_one_round(api, {"text": "a"}, {"text": ""}, {"txt": "a"}, {"text": "film"})
    assert [sorted(items) for items, _ in calls] == [["a", "film"]]
    assert [(number, status) for number, status, *_ in sent] == [(1, 422), (2, 400), (0, 200), (3, 200)]


def test_what_fails_in_a_batch_is_answered_one_by_one(api, monkeypatch, caplog):
    errors = {"bad": RuntimeError("of the model\nits secrets"), "it": ValueError("not this\nword")}
    calls = recorded(api, monkeypatch, errors)
    with caplog.at_level(logging.ERROR):
        sent = in_one_round(api, *({"text": text} for text in ("a", "bad", "film", "it")))
    sent.sort()
    assert [sorted(items) for items, _ in calls] == [["a", "bad", "film", "it"], ["a"], ["bad"], ["film"], ["it"]]
    assert [(number, status) for number, status, *_ in sent] == [(0, 200), (1, 500), (2, 200), (3, 422)]
    assert sent[0][2]["text"] == api.form.model.translate("a").text
    assert sent[1][2] == {"detail": "the model failed on this request; see the server's log"}
    assert sent[3][2] == {"detail": "not this word"}
    assert "its secrets" in caplog.text  # in the log, not in the answer


def test_a_mistake_of_ours_stops_nobody(api, monkeypatch, caplog):
    item = api.form.item
    monkeypatch.setattr(api.form, "item", lambda value, name: item(value, name) if value != "bad" else 1 / 0)
    sent = in_one_round(api, {"text": "bad"}, {"text": "a"})
    assert [(number, status) for number, status, *_ in sent] == [(0, 500), (1, 200)]
    assert "ZeroDivisionError" in caplog.text and "Zero" not in sent[0][2]["detail"]


def test_good_and_wrong_requests_at_the_same_time(translator):
    wrong = [
        (b'{"text": "a', 400), (b'{"text": ""}', 422), (b'{"txt": "a"}', 400), (b'{"text": "a", "beam_size": 0}', 400),
        (b"\xff", 400), (b'{"text": "' + b"a " * 20_000 + b'"}', 413), (b'{"text": "' + b"a " * 13 + b'"}', 422),
    ]  # fmt: skip
    good = [{"text": text, "beam_size": beam, "attention": beam == 3} for text in TEXTS for beam in (1, 3, 5)] * 2
    requests = [(json.dumps(fields).encode(), 200) for fields in good]
    for n, request in enumerate(wrong * 3):
        requests.insert(n * 2, request)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(translator.send, [body for body, _ in requests]))
    assert [answer.status for answer in answers] == [status for _, status in requests]
    model, sizes = translator.api.form.model, []
    for (body, status), answer in zip(requests, answers):
        if status != 200:
            assert (
                list(answer.body) == ["detail"]
                and "\n" not in answer.body["detail"]
                and "X-Batch-Size" not in answer.headers
            )
            continue
        fields = json.loads(body)
        want = model.translate(fields["text"], beam_size=fields["beam_size"]).to_dict()
        assert answer.body == near(
            want if fields["attention"] else {key: want[key] for key in ("text", "score", "confidence", "warnings")}
        )
        sizes.append(int(answer.headers["X-Batch-Size"]))
    assert max(sizes) > 1 and max(sizes) <= 8


# ---- language models and readers ----


def test_completions_share_a_batch_if_all_their_options_are_the_same(folders, monkeypatch):
    api = loaded(folders["language_model"])
    calls = recorded(api, monkeypatch)
    requests = [
        {"text": "a"}, {"text": "it is", "temperature": 0.5}, {"text": "film", "perplexity": True}, {"text": "bad", "attention": True},
        {"text": "", "temperature": 0.5}, {"text": "it", "temperature": 0.6}, {"text": "good", "perplexity": True, "max_words": 20},
    ]  # fmt: skip
    sent = in_one_round(api, *requests)
    sent.sort()
    assert sorted(sorted(items) for items, _ in calls) == [["", "it is"], ["a", "bad"], ["film", "good"], ["it"]]
    assert [(number, status, together) for number, status, _, together in sent] == [
        (n, 200, 1 if n == 5 else 2) for n in range(7)
    ]
    for n in (0, 2, 3, 6):
        assert sent[n][2]["text"] == api.form.model.complete(requests[n]["text"]).text


def test_rules_that_no_text_can_obey(folders):
    """A dead end of one text is no reason to leave the others of its batch without an answer."""
    api = loaded(folders["language_model"])
    api.form.model.complete("a")
    hard = {"no_repeat_ngram": 1, "min_words": 50, "max_words": 50}
    for search in ({}, {"beam_size": 1}, {"temperature": 1}):
        sent = sorted(in_one_round(api, {"text": "a", **hard, **search}, {"text": "a", **search}))
        assert [(number, status) for number, status, *_ in sent] == [(0, 422), (1, 200)]
        assert sent[0][2] == {"detail": "no words can follow under these rules; lower min_words or no_repeat_ngram"}


def test_a_wrong_question_is_not_part_of_the_batch(folders, monkeypatch):
    api = loaded(folders["reader"])
    calls = recorded(api, monkeypatch)
    wrong = [
        {"document": DOCUMENT, "query": "Who ran ?"},
        {"document": DOCUMENT, "query": "XXXXX", "candidates": ["Eve"]},
    ]
    requests = (
        {"question": QUESTIONS[0]},
        {"question": wrong[0]},
        {"questions": [QUESTIONS[1], wrong[1]]},
        {"questions": QUESTIONS[1:]},
    )
    sent = in_one_round(api, *requests)
    assert [len(items) for items, _ in calls] == [3]
    assert [(number, status, together) for number, status, _, together in sorted(sent)] == [
        (0, 200, 3),
        (1, 422, 0),
        (2, 422, 0),
        (3, 200, 3),
    ]
    assert sent[1][2]["detail"].startswith("question 2: none of the candidates is in the document")


def test_good_and_wrong_requests_of_a_language_model_and_a_reader(language_model, reader):
    """Both servers at once."""
    options = [{}, {"beam_size": 1}, {"max_words": 4, "perplexity": True}]
    texts = [({"text": text, **more}, 200) for text in [*TEXTS, ""] for more in options]
    texts += [
        ({"text": "a", "max_words": 0}, 400),
        ({"text": "a " * 13}, 422),
        ({"txt": "a"}, 400),
        ({"text": {"a": "b"}}, 400),
    ] * 2
    asked = [({"question": question}, 200) for question in QUESTIONS * 6]
    asked += [
        ({"question": "a"}, 400),
        ({"question": {"document": DOCUMENT, "query": "a"}}, 422),
        ({"question": {"doc": "a"}}, 400),
    ] * 2
    requests = [(client, *request) for client, found in ((language_model, texts), (reader, asked)) for request in found]
    requests = [request for n in range(7) for request in requests[n::7]]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda request: request[0].send(json.dumps(request[1])), requests))
    assert [answer.status for answer in answers] == [status for _, _, status in requests]
    sizes = {language_model: [], reader: []}
    for (client, fields, status), answer in zip(requests, answers):
        model = client.api.form.model
        if status != 200:
            assert list(answer.body) == ["detail"] and "\n" not in answer.body["detail"]
            continue
        sizes[client].append(int(answer.headers["X-Batch-Size"]))
        if client is reader:
            want = model.answer(
                fields["question"]["document"], fields["question"]["query"], fields["question"].get("candidates")
            )
            assert answer.body["answer"] == want.answer and answer.body["probabilities"] == near(
                want.to_dict()["probabilities"]
            )
        else:
            want = model.complete(fields["text"], **without(fields, "text", "perplexity"))
            assert answer.body["text"] == want.text and ("perplexity" in answer.body) == ("perplexity" in fields)
    assert all(1 < max(found) <= 8 for found in sizes.values())
