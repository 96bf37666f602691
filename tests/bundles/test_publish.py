"""Publishing to a Hub and loading from it: a real client against a server on the loopback device, with faults."""

import errno
import json
import os
import random
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import yaml
from fakes import Toy
from hub_server import READER, Client, Fault, Hub, git_oid, sha256

import zoo
from zoo import cli, registry
from zoo.bundles import hub, pins
from zoo.bundles.card import generated_card, is_marked, split_card
from zoo.bundles.publish import publish
from zoo.bundles.waiting import explained
from zoo.commands import cards
from zoo.commands.publish import package
from zoo.layers.attention import NORMALIZATIONS
from zoo.models.luong import LuongNMT

NAME = "luong_dot.dates"
REPO = "me/dates"
PNG = b"\x89PNG\r\n\x1a\n and so on"
BUNDLE = [
    "calibration.json",
    "config.json",
    "golden.safetensors",
    "model.safetensors",
    "tokenizer.src.json",
    "tokenizer.tgt.json",
]


@pytest.fixture
def client(remote, tmp_path):
    return Client(remote, tmp_path / "home")


@pytest.fixture
def folder(tmp_path):
    """Weights as a user has them: without a card."""
    return shutil.copytree(registry.BUNDLED / NAME, tmp_path / "weights")


@pytest.fixture
def other(folder):
    """The same architecture with other weights."""
    model = zoo.load(NAME)
    with torch.no_grad():
        next(model.parameters()).add_(1)
    return model.save_pretrained(folder.parent / "other")


def fails(result):
    """The one line on standard error of a command that ended with exit code 2."""
    assert result.code == 2, (result.code, result.err)
    line = result.err.splitlines()[-1]
    assert line.startswith("zoo: error: ")
    return line.removeprefix("zoo: error: ")


def state(source):
    """Loads a model; its weights in a form that leaves the process."""
    return {name: t.numpy() for name, t in zoo.load(source).state_dict().items()}


def same(found, model):
    expected = model.state_dict()
    assert found.keys() == expected.keys()
    return all(torch.equal(torch.from_numpy(found[name]), t) for name, t in expected.items())


def whole(tree):
    """Whether a revision is as one call of `publish` made it: each file as its manifest says, and no other."""
    listed = json.loads(tree["manifest.json"])["files"]
    assert all(listed[name]["size"] == len(tree[name]) for name in listed if name in tree)
    return {name: file["sha256"] for name, file in listed.items()} == {
        name: sha256(data) for name, data in tree.items() if name not in ("manifest.json", ".gitattributes")
    }


def sent(remote, what):
    return [request for request in remote.requests if re.search(what, request)]


# ---- publishing ----


def test_round_trip(remote, client):
    result = client.zoo("publish", NAME, REPO)
    repo = remote.repos[REPO]
    assert result.code == 0, result.err
    assert result.out.splitlines() == [
        f"published {REPO} as commit {repo.main}",
        f'zoo.load("hf-hub:{REPO}@{repo.main}")',
    ]
    assert len(repo.commits) == 2 and len(sent(remote, "POST .*/commit/")) == 1  # that of the creation, and ours
    assert sorted(repo.tree) == [
        ".gitattributes",
        "README.md",
        *BUNDLE[:3],
        "luong_dot.dates.png",
        "manifest.json",
        *BUNDLE[3:],
    ]
    assert whole(repo.tree)
    assert all(repo.tree[name] == (registry.BUNDLED / NAME / name).read_bytes() for name in BUNDLE)

    loaded = client(lambda: state(f"hf-hub:{REPO}@{repo.main}"))
    assert loaded.code == 0, loaded.err
    assert same(loaded.value, zoo.load(NAME))
    predicted = client.zoo("predict", f"hf-hub:{REPO}@main", "tuesday july 8 2008")
    assert predicted.out == "2008-07-08\n", predicted.err


def test_dry_run_contacts_nothing(remote, client, capsys):
    result = client.zoo("publish", NAME, REPO, "--dry-run")
    assert result.code == 0 and remote.requests == []
    lines = result.out.splitlines()
    for name in BUNDLE:
        data = (registry.BUNDLED / NAME / name).read_bytes()
        assert any(line.split() == [name, f"{len(data):,}", sha256(data)[:12]] for line in lines)
    assert "library_name: attention-zoo" in lines and lines[-1] == "nothing was uploaded (--dry-run)"

    client.zoo("publish", NAME, REPO)
    size = sum(len(data) for name, data in remote.repos[REPO].tree.items() if name != ".gitattributes")
    assert f"total {size:,}".split() in [line.split() for line in lines]


def test_publishing_twice_makes_no_second_commit(remote, client):
    first, second = client.zoo("publish", NAME, REPO), client.zoo("publish", NAME, REPO)
    unchanged = first.out.replace(f"published {REPO} as commit", f"nothing has changed since {REPO} commit")
    assert second.code == 0 and second.out == unchanged != first.out
    assert len(remote.repos[REPO].commits) == 2


def test_files_of_an_earlier_version_go_and_those_of_others_stay(remote, client, other):
    client.zoo("publish", NAME, REPO)
    repo = remote.repos[REPO]
    repo.commit(repo.tree | {"notes.txt": b"mine"})
    client.zoo("publish", str(other), REPO)  # without golden output and picture
    assert not {"golden.safetensors", "luong_dot.dates.png"} & repo.tree.keys()
    assert repo.tree["notes.txt"] == b"mine" and repo.tree["config.json"] == (other / "config.json").read_bytes()


@pytest.mark.parametrize("flag", [[], ["--private"]])
def test_private(remote, client, folder, flag):
    assert client.zoo("publish", str(folder), REPO, *flag).code == 0
    assert remote.repos[REPO].private == bool(flag)
    assert remote.created[0].get("visibility") == ("private" if flag else None)


def test_private_does_not_mean_an_existing_public_repository(remote, client, folder):
    repo = remote.add(REPO)
    before = repo.main
    message = fails(client.zoo("publish", str(folder), REPO, "--private"))
    assert "me/dates exists and is public; make it private in its settings first" in message
    assert repo.main == before


def test_push_to_hub(remote, client, toy_in_zoo):
    def push():
        torch.manual_seed(1)
        done = Toy(hidden=5).push_to_hub(
            "me/toy", private=True, commit_message="Second try", card="---\nlicense: mit\n---\n# Mine\n"
        )
        return done.commit, done.source

    pushed = client(push)
    assert pushed.code == 0, pushed.err
    repo = remote.repos["me/toy"]
    assert pushed.value == (repo.main, f"hf-hub:me/toy@{repo.main}") and repo.private
    torch.manual_seed(1)
    assert same(client(lambda: state(pushed.value[1])).value, Toy(hidden=5))
    front, prose = split_card(repo.tree["README.md"].decode(), "card")
    assert front["license"] == "mit" and front["library_name"] == "attention-zoo" and prose == "# Mine\n"
    assert "golden.safetensors" in repo.tree

    repo.commit(repo.tree | {"README.md": b"something else"})
    client(push)
    assert repo.tree["README.md"].endswith(b"# Mine\n")  # a given card is always sent


# ---- what is refused ----


def test_other_files_are_not_published(remote, client, folder):
    (folder / "train.py").touch()
    (folder / "pytorch_model.bin").touch()
    message = fails(client.zoo("publish", str(folder), REPO))
    assert message == f"{folder} holds files that are not published: pytorch_model.bin, train.py; move them elsewhere"
    assert remote.requests == []


def test_no_pickle_even_if_the_configuration_lists_it(remote, client, folder):
    (folder / "model.pkl").write_bytes(b"x")
    config = json.loads((folder / "config.json").read_text())
    config["sha256"]["model.pkl"] = sha256(b"x")
    del config["digest"]
    (folder / "config.json").write_text(json.dumps(config))
    assert "files of a kind that is not published: model.pkl" in fails(
        client.zoo("publish", f"local-dir:{folder}", REPO)
    )

    repo = remote.add(REPO)
    repo.commit({file.name: file.read_bytes() for file in folder.iterdir()})
    result = client.zoo("predict", f"hf-hub:{REPO}@main", "x")
    assert "file names must end in .json, .safetensors, .txt; got model.pkl" in fails(result)
    assert not sent(remote, "model.pkl")


def test_damaged_weights_are_not_published(remote, client, folder):
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    assert "model.safetensors is damaged or was changed" in fails(client.zoo("publish", str(folder), REPO))
    assert remote.requests == []


def test_weights_that_compute_something_else_are_not_published(remote, client, folder, other):
    shutil.copy(folder / "golden.safetensors", other)
    assert "the weights do not give the 'logits' that was saved with them" in fails(
        client.zoo("publish", str(other), REPO)
    )
    golden = folder / "golden.safetensors"
    whole = golden.read_bytes()
    golden.write_bytes(whole[:-8])
    assert "golden.safetensors is damaged or was changed" in fails(client.zoo("publish", str(folder), REPO))
    config = json.loads((folder / "config.json").read_text())
    del config["digest"], config["sha256"]["golden.safetensors"]  # as earlier versions wrote it
    (folder / "config.json").write_text(json.dumps(config))
    for content, message in [
        (whole[:-8], "golden.safetensors is damaged"),
        (b"\xff" * 7 + whole, "golden.safetensors is damaged: its header would be larger than 1 MB"),
        (whole + bytes(2**24), "golden.safetensors is larger than 16 MB"),
    ]:
        golden.write_bytes(content)
        assert message in fails(client.zoo("publish", str(folder), REPO))
    golden.unlink()
    golden.symlink_to(other / "golden.safetensors")
    assert "golden.safetensors is a link to" in fails(client.zoo("publish", str(folder), REPO))
    assert remote.requests == []


@pytest.mark.parametrize(
    ("source", "repo", "message"),
    [
        ("luong_dot.date", REPO, "unknown model 'luong_dot.date'; nearest: luong_dot.dates"),
        ("/no/such/folder", REPO, "/no/such/folder is not a folder of weights"),
        (NAME, "dates", "the repository must be ORG/REPO, e.g. my-name/my-model; got 'dates'"),
        (NAME, "me/../dates", "the repository must be ORG/REPO"),
        (NAME, "me/x--y", "Cannot have -- or .. in repo_id: 'me/x--y'"),
        (NAME, "me/x.git", "cannot end by '.git': 'me/x.git'"),
    ],
)
def test_bad_arguments(client, source, repo, message):
    assert message in fails(client.zoo("publish", source, repo, "--dry-run"))


@pytest.mark.parametrize(
    "text", ["---\r\nlicense: mit\r\n---\r\n# Mine\r\n", "\ufeff---\nlicense: mit\n---\n# Mine\n"], ids=["crlf", "bom"]
)
def test_a_card_of_another_editor(text):
    assert split_card(text, "README.md") == ({"license": "mit"}, "# Mine\n")


def test_card_without_front_matter(client, folder):
    (folder / "README.md").write_text("# Mine")
    assert "README.md must start with YAML front matter" in fails(client.zoo("publish", str(folder), REPO, "--dry-run"))
    assert "the scores of a card must be a list; got 3" in _card(client, folder, b"---\nscores: 3\n---\n# Mine\n")
    assert "README.md is not UTF-8 text" in _card(client, folder, "---\nname: a\n---\n# Für mich\n".encode("latin-1"))
    (folder / "README.md").write_text("---\nscores: [5]\n---\n# Mine\n")
    assert "must have metric, value and split; got 5" in fails(client.zoo("publish", str(folder), REPO, "--dry-run"))


def _card(client, folder, content):
    (folder / "README.md").write_bytes(content)
    return fails(client.zoo("publish", str(folder), REPO, "--dry-run"))


SECRET = b"-----BEGIN PRIVATE KEY-----"


@pytest.mark.parametrize(
    "name", ["figure.png", "README.md", "config.json", "model.safetensors", "golden.safetensors", "tokenizer.src.json"]
)
@pytest.mark.parametrize("way", ["link", "pipe", "folder", "gone"])
def test_nothing_outside_the_folder_is_sent(folder, tmp_path, name, way):
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Mine\n\n![how](figure.png)\n")
    (folder / "figure.png").write_bytes(PNG)
    (tmp_path / "secret").write_bytes(PNG + SECRET if name == "figure.png" else SECRET)
    assert "figure.png" in package(str(folder), REPO).files
    (folder / name).unlink()
    if way == "link":
        (folder / name).symlink_to(tmp_path / "secret")
    elif way == "pipe":
        os.mkfifo(folder / name)
    elif way == "folder":
        (folder / name).mkdir()
    elif name == "README.md":
        return  # it need not be there
    if (name, way) == ("figure.png", "gone"):
        with pytest.raises(ValueError, match="README.md shows figure.png, which .* lacks; add it, or remove its line"):
            package(str(folder), REPO)
        return
    says = {"link": "is a link to .*secret, outside the folder", "gone": f"{name} missing|it has no {name}"}
    with pytest.raises(zoo.BundleError, match=says.get(way, "is not a regular file")):
        package(str(folder), REPO)


def test_what_was_checked_is_what_is_sent(folder):
    """Whatever becomes of the files between the check and the sending."""
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Mine\n\n![how](figure.png)\n")
    (folder / "figure.png").write_bytes(PNG)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    found = package(str(folder), REPO)
    for file in folder.iterdir():
        file.write_bytes(SECRET)
    assert {name: found.files[name] for name in [*BUNDLE, "figure.png"]} == {
        name: before[name] for name in [*BUNDLE, "figure.png"]
    }
    assert not any(SECRET in content for content in found.files.values())


def test_a_picture_is_a_picture(folder):
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Mine\n\n![how](figure.png)\n")
    (folder / "figure.png").write_bytes(SECRET)
    with pytest.raises(zoo.MisfitError, match="figure.png, which the card shows, is not a PNG or JPEG picture"):
        package(str(folder), REPO)
    (folder / "figure.png").write_bytes(PNG + bytes(2**24))
    with pytest.raises(zoo.MisfitError, match="figure.png is larger than 16 MB"):
        package(str(folder), REPO)


def test_cards_that_take_long_to_read(folder):
    for front, says in [("[" * 20_000, "nested too deeply"), ("# " + "x" * 70_000, "may have 65,536 characters")]:
        (folder / "README.md").write_text(f"---\na: {front}\n---\n# Mine\n")
        with pytest.raises(ValueError, match=says):
            package(str(folder), REPO)


def test_help_has_an_example(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["publish", "--help"])
    assert end.value.code == 0 and "example:\n  zoo publish " in capsys.readouterr().out


# ---- cards ----


@pytest.mark.parametrize("name", ["structured_self_attention.sst2", NAME])
def test_the_card_says_the_scores_in_the_words_of_the_hub(name):
    from huggingface_hub import ModelCard
    from huggingface_hub.repocard_data import model_index_to_eval_results

    bundle = package(name, REPO)
    card, prose = cards.read_card(name)
    data = ModelCard(bundle.files["README.md"].decode()).data
    assert (data.library_name, data.pipeline_tag, data.license, data.language) == (
        "attention-zoo",
        card["pipeline_tag"],
        card["license"],
        card["language"],
    )
    assert all(" " not in dataset for dataset in data.datasets or [])
    found = [
        (r.dataset_split, r.metric_type, r.metric_value, (r.metric_args or {}).get("signature"))
        for r in data.eval_results
    ]
    assert found == [(s["split"], s["metric"], s["value"], s.get("signature")) for s in card["scores"]]
    index = yaml.safe_load(bundle.files["README.md"].decode().split("---\n")[1])["model-index"]
    assert model_index_to_eval_results(index)[0] == name
    assert prose in bundle.files["README.md"].decode()


def test_scores_are_also_evaluation_results():
    from huggingface_hub import parse_eval_result_entries

    name = "structured_self_attention.sst2"
    file = package(name, REPO).files[".eval_results/sst2.yaml"]
    entries = parse_eval_result_entries(yaml.safe_load(file))
    assert [(e.dataset_id, e.task_id, e.value) for e in entries] == [
        ("sst2", f"{s['split']}_{s['metric']}", s["value"]) for s in cards.read_card(name)[0]["scores"]
    ]


def test_generated_card(remote, client, folder):
    client.zoo("publish", str(folder), REPO)
    card = remote.repos[REPO].tree["README.md"]
    text = card.decode()
    assert is_marked(card) and "A `LuongNMT` of attention-zoo with 208,664 parameters" in text
    assert f'zoo.load("hf-hub:{REPO}@main")' in text and '| `score` | `"dot"` |' in text
    front, _ = split_card(text, "card")
    assert front["pipeline_tag"] == "translation" and "model-index" not in front and "license" not in front


class OfAUser(LuongNMT):
    """A class that `zoo.load` finds only after this module is imported."""


def test_generated_card_names_the_modules_of_its_author(monkeypatch):
    loads = "```python\nimport zoo\n{}\nload\n"
    line = f"import {__name__}  # of the author: without it the weights cannot be loaded\n"
    assert loads.format(line) in generated_card(OfAUser(**LuongNMT.tiny), "load", "mine")
    ours = LuongNMT(**LuongNMT.tiny)
    assert loads.format("") in generated_card(ours, "load", "ours")
    monkeypatch.setitem(NORMALIZATIONS, "of_a_user", lambda scores, mask: scores)
    ours.config["normalize"] = "of_a_user"
    assert loads.format(line) in generated_card(ours, "load", "ours")
    monkeypatch.setattr(OfAUser, "__module__", "__main__")
    assert "import zoo\n# first define and register" in generated_card(OfAUser(**LuongNMT.tiny), "load", "mine")


def test_info_shows_the_card_on_the_hub(remote, client, folder):
    repo = remote.add(REPO)
    repo.commit({"README.md": "# Mine ß\n\x1b[31mred\n".encode()})
    result = client.zoo("info", f"hf-hub:{REPO}@main")
    assert (result.code, result.out) == (0, "# Mine ß\n?[31mred\n"), "no control of the terminal is a stranger's"
    assert client.zoo("info", f"hf-hub:{REPO}@{repo.main}", HF_HUB_OFFLINE="1").out == result.out, "from the cache"
    result = client.zoo("info", "hf-hub:me/nothing@main")
    assert result.code == 2 and "there is no such repository" in result.err
    client.zoo("publish", str(folder), "me/dates2")
    tree = {name: data for name, data in remote.repos["me/dates2"].tree.items() if name != "README.md"}
    remote.repos["me/dates2"].commit(tree)
    assert "A `LuongNMT` of attention-zoo with 208,664 parameters" in client.zoo("info", "hf-hub:me/dates2@main").out


def test_a_card_that_people_wrote_is_kept(remote, client, folder):
    repo = remote.add(REPO)
    repo.commit(repo.tree | {"README.md": b"# By hand\n"})
    result = client.zoo("publish", NAME, REPO)
    assert result.code == 0 and "kept the README.md of me/dates" in result.out and "--replace-card" in result.out
    assert repo.tree["README.md"] == b"# By hand\n" and whole(repo.tree) and "luong_dot.dates.png" not in repo.tree

    assert "kept" not in client.zoo("publish", NAME, REPO, "--replace-card").out
    assert is_marked(repo.tree["README.md"]) and "luong_dot.dates.png" in repo.tree

    assert "kept" not in client.zoo("publish", str(folder), REPO).out  # nobody has changed it: one of ours for another
    assert b"generated from the files alone" in repo.tree["README.md"]
    changed = repo.tree["README.md"].replace(b"# dates", b"# My dates")
    repo.commit(repo.tree | {"README.md": changed})
    assert "kept" in client.zoo("publish", str(folder), REPO).out and repo.tree["README.md"] == changed


def test_pictures_of_a_card_that_is_kept_stay(remote, client, folder):
    """Those that are there as they are, and one that is missing is sent."""
    client.zoo("publish", NAME, REPO)
    repo, picture = remote.repos[REPO], "luong_dot.dates.png"
    changed = repo.tree["README.md"].replace(b"\n# ", b"\n# My ", 1)
    repo.commit(repo.tree | {"README.md": changed, picture: PNG})
    for source in (NAME, str(folder)):
        assert "kept" in client.zoo("publish", source, REPO).out
        assert repo.tree["README.md"] == changed and repo.tree[picture] == PNG
    repo.commit({name: data for name, data in repo.tree.items() if name != picture})
    assert "kept" in client.zoo("publish", NAME, REPO).out
    assert repo.tree[picture] == (cards.CARDS / picture).read_bytes() and whole(repo.tree)


def test_card_in_the_folder_is_sent_as_it_is(remote, client, folder):
    card = "---\nlibrary_name: mine\nlicense: mit\ndatasets: dates\n---\n# Mine\n\n![how](how.png)\n"
    (folder / "README.md").write_text(card)
    (folder / "how.png").write_bytes(PNG)
    assert client.zoo("publish", str(folder), REPO).code == 0
    tree = remote.repos[REPO].tree
    assert tree["how.png"] == PNG and tree["README.md"].endswith(card.encode().split(b"---\n")[2])
    assert not is_marked(tree["README.md"])
    front, _ = split_card(tree["README.md"].decode(), "card")
    assert front["license"] == "mit" and front["datasets"] == ["dates"]


# ---- when publishing goes wrong ----


def test_change_in_the_meantime(remote, client, folder):
    repo = remote.add(REPO)
    remote.fault("POST .*/commit/", before=lambda: repo.commit(repo.tree | {"notes.txt": b"theirs"}))
    message = fails(client.zoo("publish", str(folder), REPO))
    assert message.startswith("cannot publish to me/dates: somebody changed it in the meantime, nothing was published")
    assert sorted(repo.tree) == [".gitattributes", "notes.txt"]
    assert client.zoo("publish", str(folder), REPO).code == 0 and "notes.txt" in repo.tree


def impatient(*arguments):
    """The command line without the pauses of the client between its attempts."""
    time.sleep = lambda seconds: None
    return cli.main(list(arguments))


def test_cut_upload_publishes_nothing(remote, client, folder):
    repo = remote.add(REPO)
    before = repo.main
    remote.fault("PUT /storage/", cut=0, times=1000)
    result = client(lambda: impatient("publish", str(folder), REPO))
    assert result.value == 2 and "cannot publish to me/dates" in result.err and "Traceback" not in result.err
    assert repo.main == before and len(sent(remote, "PUT /storage/")) > 5  # it was tried again before
    remote.faults[0].times = 2
    assert client(lambda: impatient("publish", str(folder), REPO)).value == 0  # a passing trouble
    assert whole(repo.tree)


def test_lost_answer(remote, client, folder):
    """The commit is made and its answer does not arrive: the next call finds it done."""
    repo = remote.add(REPO)
    remote.fault("POST .*/commit/", cut=-1)
    message = fails(client.zoo("publish", str(folder), REPO))
    assert "cannot be reached" in message and "publishing again is safe" in message
    done = repo.main
    assert whole(repo.tree)
    line = client.zoo("publish", str(folder), REPO).out.splitlines()[0]
    assert line == f"nothing has changed since {REPO} commit {done}"


def test_file_left_out_by_the_hub(remote, client, folder):
    remote.add(REPO, ignored=("tokenizer.src.json",))
    message = fails(client.zoo("publish", str(folder), REPO))
    assert "lacks or alters tokenizer.src.json; a .gitignore there may leave files out" in message


@pytest.mark.parametrize(
    ("token", "repo", "message"),
    [
        (
            "",
            "me/new",
            "cannot publish to me/new: the token is missing or not valid; log in with `hf auth login` or set HF_TOKEN",
        ),
        ("hf_nonsense", "me/new", "cannot publish to me/new: the token is missing or not valid"),
        (
            READER,
            "me/new",
            "the token does not allow it (This token has no write permissions); use one that may write to me",
        ),
        (
            READER,
            REPO,
            "the token does not allow it (This token has no write permissions); use one that may write to me",
        ),
        (
            None,
            "others/new",
            'the token does not allow it (You don\'t have the rights to create a model under the namespace "others")',
        ),
    ],
)
def test_tokens(remote, client, folder, token, repo, message):
    before = remote.add(REPO).main
    result = client.zoo("publish", str(folder), repo, **({} if token is None else {"HF_TOKEN": token}))
    assert message in fails(result)
    assert list(remote.repos) == [REPO] and remote.repos[REPO].main == before


def kills(remote, client, folder, other, count, seed):
    """Publishes two versions in turn; kills the client at a random request, while it is sent or when it was served."""
    old, new = package(str(folder), REPO), package(str(other), REPO)
    assert client(lambda: publish(old)).code == 0
    repo, first = remote.repos[REPO], len(remote.requests)
    assert client(lambda: publish(new)).code == 0
    requests = len(remote.requests) - first
    generator, torn, through, killed = random.Random(seed), 0, 0, 0
    for _ in range(count):
        old, new = new, old
        position, moment, seen, before = (
            generator.randrange(requests),
            generator.choice(["before", "after"]),
            [],
            repo.tree,
        )

        def maybe(seen=seen, position=position):
            if len(seen) == position:
                client.kill()
            seen.append(1)

        remote.lfs.clear()  # else there would be nothing to upload,
        shutil.rmtree(client.cache)  # nor to read
        remote.faults[:] = [Fault("", times=10**6, **{moment: maybe})]
        killed += client(lambda: publish(new)).code == -9
        time.sleep(0.05)  # the server may still be busy with what it was sent
        remote.faults.clear()
        torn += not whole(repo.tree)
        through += repo.tree != before
        assert client(lambda: publish(new)).code == 0 and whole(repo.tree)
        assert repo.tree["model.safetensors"] == new.files["model.safetensors"]
    return {"requests": requests, "killed": killed, "had gone through": through, "torn": torn}


@pytest.mark.integration
def test_killed_publishing_leaves_the_old_or_the_new_version(remote, client, folder, other):
    found = kills(remote, client, folder, other, 4, seed=1)
    assert found["torn"] == 0 and found["killed"] == 4, found


@pytest.mark.slow
def test_killed_publishing_fifty_times(remote, client, folder, other):
    found = kills(remote, client, folder, other, 50, seed=2)
    print(found)
    assert found["torn"] == 0 and found["killed"] == 50 and found["had gone through"] >= 1, found


# ---- loading ----


@pytest.fixture
def published(remote):
    """A repository with the weights, put there without a client; its source by commit."""
    return put(remote)


def put(remote):
    bundle = package(NAME, REPO)
    tree = bundle.files
    listed = {name: {"sha256": sha256(data), "size": len(data)} for name, data in tree.items()}
    repo = remote.add(REPO)
    repo.commit(tree | {"manifest.json": json.dumps({"files": listed}).encode(), "evil.pkl": b"x", "big.json": b"{}"})
    remote.lfs |= {sha256(data): data for data in tree.values()}
    return f"hf-hub:{REPO}@{repo.main}"


def no_sockets():
    """From here on the process cannot even look for a host."""
    import socket

    def refuse(*arguments, **settings):
        raise AssertionError("the network was used")

    socket.socket.connect = socket.getaddrinfo = refuse


def test_only_what_is_needed_is_fetched(remote, client, published):
    assert client(lambda: state(published)).code == 0
    fetched = {path.name for path in client.cache.glob("models--me--dates/snapshots/*/*")}
    assert fetched == {*BUNDLE, "manifest.json"} - {"golden.safetensors"}
    assert not sent(remote, "evil.pkl|big.json|README|golden")


def test_second_load_needs_no_network(remote, client, published):
    assert client(lambda: state(published)).code == 0
    before = len(remote.requests)

    def load():
        no_sockets()
        return state(published)

    again = client(load)
    assert again.code == 0, again.err
    assert same(again.value, zoo.load(NAME)) and len(remote.requests) == before


def test_offline_mode(remote, client, published):
    branch = f"hf-hub:{REPO}@main"
    missing = "me/dates at revision main is not in the cache and HF_HUB_OFFLINE is set"
    assert missing in fails(client.zoo("predict", branch, "x", HF_HUB_OFFLINE="1"))
    assert client(lambda: state(branch)).code == 0
    before = len(remote.requests)
    for source in (branch, published):
        assert client(lambda source=source: (no_sockets(), state(source)), HF_HUB_OFFLINE="1").code == 0
    assert len(remote.requests) == before
    message = fails(client.zoo("publish", NAME, REPO, HF_HUB_OFFLINE="1"))
    assert message == "cannot publish to me/dates: HF_HUB_OFFLINE is set; unset it"


def test_unreachable_hub(remote, client, published):
    assert client(lambda: state(f"hf-hub:{REPO}@main")).code == 0
    remote.stop()
    try:
        result = client.zoo("predict", "hf-hub:me/new@main", "x")
        message = fails(result)
        assert (
            message.startswith("cannot fetch me/new at revision main from the Hugging Face Hub: ")
            and remote.url in message
        )
        assert "cannot be reached: [Errno 111] Connection refused; check the network and HF_ENDPOINT" in message
        assert "local-dir:PATH" in message and result.seconds < 5
        assert "cannot publish to me/new: " in fails(client.zoo("publish", NAME, "me/new"))

        cached = client(lambda: state(f"hf-hub:{REPO}@main"))
        assert cached.code == 0 and cached.seconds < 5
        assert f"using commit {published[-40:]} of the cache" in cached.err
        assert client(lambda: state(published)).code == 0
    finally:
        remote.start()


def test_hub_that_does_not_answer(remote, client, published):
    remote.fault("", times=1000, delay=60.0)
    result = client.zoo("predict", published, "x")
    assert (
        "no answer in 3.5 s; on a slow connection set HF_HUB_ETAG_TIMEOUT to more seconds" in fails(result)
        and result.seconds < 5
    )


def test_hub_with_a_lasting_trouble(remote, client, published):
    remote.fault("", times=1000, status=503)
    result = client.zoo("predict", published, "x", HF_HUB_ETAG_TIMEOUT="1")
    assert "the Hub answered 503 (as the test wants it); try again later" in fails(result) and result.seconds < 3
    assert len(remote.requests) > 1


QUICK = {"HF_HUB_ETAG_TIMEOUT": "1", "HF_HUB_DOWNLOAD_TIMEOUT": "1"}


def each_at_once(folder, requests, fault, run):
    """How a command ends when the answer to each of some requests is `fault`; each has its own Hub and client, as they
    do little but wait.
    """

    def one(number, request):
        with Hub() as remote:
            remote.fault(request, times=1000, **fault)
            return run(remote, Client(remote, folder / f"home{number}"))

    with ThreadPoolExecutor(len(requests)) as pool:
        return list(pool.map(one, range(len(requests)), requests))


@pytest.mark.integration
@pytest.mark.parametrize(
    "fault",
    [
        {"status": 429, "retry_after": 3600},
        {"status": 503, "retry_after": 3600},
        {"delay": 60.0},
        {"portal": True},
        {"drip": 0.3},
    ],
    ids=["429", "503", "silent", "portal", "drip"],
)
def test_patience_is_bounded(tmp_path, fault):
    """Whatever the Hub, or what stands before it, answers to a request while weights are fetched."""
    requests = ["GET /api/models/.*/revision", "GET .*/config.json", "GET /storage/"]
    if "drip" not in fault:  # the answer to HEAD has no body
        requests.append("HEAD .*/config.json")

    def run(remote, client):
        patience = {} if "portal" in fault else QUICK  # a portal answers at once, on a busy machine not within QUICK
        return remote.url, client.zoo("predict", put(remote), "x", **patience)

    for request, (url, result) in zip(requests, each_at_once(tmp_path, requests, fault, run), strict=True):
        message = fails(result)
        assert result.seconds < 20 and message.count("\n") == 0 and "Traceback" not in result.err, request
        if "portal" in fault and request.startswith("GET /api"):
            assert (
                f"{url} cannot be reached: the answer is not the Hub's; does this network require a login on a web page "
                "first?" in message
            )
        elif fault.keys() & {"delay", "drip"}:
            assert "no answer in 1 s" in message or "no progress in 1 s" in message or "cannot be reached" in message


PUBLISHING = [
    "GET /api/models/me/dates",
    "POST /api/repos",
    "POST .*/preupload/",
    "PUT /storage/",
    "POST .*/commit/",
    "GET .*/tree/",
]


@pytest.mark.integration
@pytest.mark.parametrize(
    "fault", [{"status": 429, "retry_after": 3600}, {"delay": 60.0}, {"portal": True}], ids=["429", "silent", "portal"]
)
def test_patience_of_publishing_is_bounded(tmp_path, folder, fault):
    def run(remote, client):
        return client.zoo("publish", str(folder), REPO, **QUICK)

    for request, result in zip(PUBLISHING, each_at_once(tmp_path, PUBLISHING, fault, run), strict=True):
        message = fails(result)
        assert result.seconds < 20 and REPO in message and "Traceback" not in result.err, request


def test_slow_transfer(remote, client, published):
    """It takes longer than the limit for a standstill, but something arrives all the time."""
    size = len(remote.repos[REPO].tree["model.safetensors"])
    remote.fault("GET /storage/", drip=0.2, drop=size // 10)
    loaded = client(lambda: state(published), HF_HUB_DOWNLOAD_TIMEOUT="1")
    assert loaded.code == 0, loaded.err
    assert loaded.seconds > 2 and same(loaded.value, zoo.load(NAME))


def test_two_processes_fetch_the_same(remote, client, published, tmp_path):
    """The second one waits for the first one's file, longer than the limit for a standstill, and fetches nothing."""
    second = Client(remote, tmp_path / "second")
    settings = {"HF_HOME": str(client.home), "HF_HUB_DOWNLOAD_TIMEOUT": "2"}
    size = len(remote.repos[REPO].tree["model.safetensors"])
    remote.fault("GET /storage/", drip=0.2, drop=size // 20)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(client, lambda: state(published), **settings)
        while not sent(remote, "GET /storage/"):
            assert not first.done(), first.result().err
            time.sleep(0.01)
        waited = pool.submit(second, lambda: state(published), **settings).result()
        assert first.result().code == 0, first.result().err
    assert waited.code == 0, waited.err
    assert waited.seconds > 2 and same(waited.value, zoo.load(NAME)) and len(sent(remote, "GET /storage/")) == 1


def test_too_large_weights_are_not_fetched(remote, client, published):
    """By what config.json says, whatever the Hub says about their size."""
    repo = remote.repos[REPO]
    large = repo.tree["model.safetensors"] + bytes(10 * 2**20)
    remote.lfs[sha256(large)] = large
    repo.commit(repo.tree | {"model.safetensors": large})
    message = fails(client.zoo("predict", f"hf-hub:{REPO}@main", "x"))
    assert "model.safetensors is larger than 2.59 MB, the limit" in message
    assert not sent(remote, "model.safetensors|storage")

    remote.fault("GET /storage/", times=1000, more=50 * 2**20)
    remote.fault("GET .*/config.json", times=1000, more=50 * 2**20)
    for pattern in ("model.safetensors", "config.json"):
        result = client.zoo("predict", published, "x")
        message = fails(result)
        assert f"{pattern} is larger than" in message and result.seconds < 20
        remote.faults[1].times, remote.faults[0].times = 1000, 0
        shutil.rmtree(client.cache)


def test_model_that_asks_for_much_is_not_fetched(remote, client, published):
    """A config.json by which any size would do; its model is never built."""
    repo = remote.repos[REPO]
    config = json.loads(repo.tree["config.json"])
    del config["digest"]
    for name, value, says in [
        ("encoder_layers", 10**9, "more than 2,000 tensors"),
        ("dropout", "x", "dropout must be a number"),
    ]:
        changed = {**config, "init_args": {**config["init_args"], name: value}}
        tree = {k: v for k, v in repo.tree.items() if k != "manifest.json"}
        repo.commit(tree | {"config.json": json.dumps(changed).encode()})
        assert says in fails(client.zoo("predict", f"hf-hub:{REPO}@main", "x"))
    assert not sent(remote, "model.safetensors|storage")


def test_passing_trouble(remote, client, published):
    remote.fault("GET /api/models/me/dates/revision", status=500)
    remote.fault("GET /storage/", cut=100_000)
    loaded = client(lambda: state(published))
    assert loaded.code == 0, loaded.err
    assert same(loaded.value, zoo.load(NAME)) and remote.faults[1].times == 0


@pytest.mark.parametrize(
    ("settings", "token", "revision", "message"),
    [
        (
            None,
            "",
            "main",
            "there is no such repository, or it is private and the token may not see it; check the name, and log in",
        ),
        ({"private": True}, "", "main", "there is no such repository, or it is private and the token may not see it"),
        ({}, "hf_nonsense", "main", "the token is missing or not valid; log in with `hf auth login` or set HF_TOKEN"),
        ({"gated": True}, READER, "main", "it is gated; ask for access at http://127.0.0.1:"),
        ({}, READER, "v9", "it has no revision v9; give a commit id, tag or branch that it has"),
        ({}, READER, "0" * 40, f"it has no revision {'0' * 40}"),
        ({}, READER, "main", "me/dates at revision main is not a repository of this package: it has no config.json"),
    ],
)
def test_refused(remote, client, settings, token, revision, message):
    if settings is not None:
        repo = remote.add(REPO, **settings)
        repo.commit({"config.json": b"{}"} if settings.get("gated") else {"model.bin": b""})
    result = client.zoo("predict", f"hf-hub:{REPO}@{revision}", "x", HF_TOKEN=token)
    assert message in fails(result) and result.seconds < 5


def test_trouble_on_this_side_is_not_blamed_on_the_hub(remote, client, published):
    client.home.mkdir()
    client.cache.write_text("no folder")
    message = fails(client.zoo("predict", published, "x"))
    assert "cannot fetch me/dates" in message and "Not a directory" in message and "cannot be reached" not in message


def test_full_disk(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    says = f"cannot fetch it: no space is left in {tmp_path}; free some, or set HF_HOME to a folder on another disk"
    with pytest.raises(hub.FetchError, match=re.escape(says)), explained("cannot fetch it", REPO, "main"):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_token_with_an_impossible_character(remote, client, published):
    message = fails(client.zoo("predict", published, "x", HF_TOKEN="hf_é"))
    assert "the token has 'é', a character that no token has; log in with `hf auth login` or set HF_TOKEN" in message


def test_oversize_text_is_not_fetched(remote, client, published, monkeypatch):
    repo = remote.repos[REPO]
    repo.commit(repo.tree | {"tokenizer.src.json": bytes(2000)})
    published = f"hf-hub:{REPO}@{repo.main}"
    monkeypatch.setattr(hub, "MAX_TEXT_BYTES", 1500)
    message = fails(client.zoo("predict", published, "x"))
    assert "tokenizer.src.json is larger than " in message
    assert not sent(remote, "GET .*tokenizer")


def test_tag(remote, client, published):
    def tag():
        from huggingface_hub import HfApi

        api = HfApi()
        api.create_tag(REPO, tag="v1.0")
        api.create_branch(REPO, branch="next")
        return [branch.name for branch in api.list_repo_refs(REPO).branches]

    assert client(tag).code == 0
    for revision in ("v1.0", "next", published[-40:]):
        assert client(lambda revision=revision: state(f"hf-hub:{REPO}@{revision}")).code == 0


def test_damage_on_the_way_is_mended_once(remote, client, published):
    remote.fault("GET /storage/", flip=True)
    loaded = client(lambda: state(published))
    assert loaded.code == 0, loaded.err
    assert "model.safetensors is damaged" in loaded.err and "fetching it again" in loaded.err
    assert same(loaded.value, zoo.load(NAME))


def test_damage_at_the_source_is_found(remote, client, published):
    remote.fault("GET /storage/", flip=True, times=1000)
    message = fails(client.zoo("predict", published, "x"))
    assert re.search(
        r"model.safetensors is damaged or was changed: its sha256 is \w{64}, not \w{64} as \w+.json says; it was fetched twice",
        message,
    )
    assert "the repository itself is damaged" in message


def test_damage_in_the_cache(remote, client, published):
    assert client(lambda: state(published)).code == 0
    snapshot = next(client.cache.glob("models--me--dates/snapshots/*"))
    for name in ("model.safetensors", "config.json", "manifest.json", "tokenizer.src.json"):
        file = (snapshot / name).resolve()
        data = file.read_bytes()
        file.write_bytes(data[:-20] + b"#" + data[-19:])
        message = fails(client.zoo("predict", published, "x", HF_HUB_OFFLINE="1"))
        assert (
            name in message
            and "it cannot be fetched again" in message
            and "`hf cache rm model/me/dates` removes it" in message
        )
        mended = client(lambda: state(published))
        assert mended.code == 0, mended.err
        assert (snapshot / name).read_bytes() == data and same(mended.value, zoo.load(NAME))


def test_file_changed_on_the_hub_by_hand(remote, client, published):
    repo = remote.repos[REPO]
    config = json.loads(repo.tree["config.json"])
    config["init_args"]["beam_size"] = 1
    repo.commit(repo.tree | {"config.json": json.dumps(config).encode()})
    message = fails(client.zoo("predict", f"hf-hub:{REPO}@main", "x"))
    assert "config.json is damaged" in message and "its digest does not match" in message
    del config["digest"]
    repo.commit(repo.tree | {"config.json": json.dumps(config).encode()})
    message = fails(client.zoo("predict", f"hf-hub:{REPO}@main", "x"))
    assert "config.json is damaged" in message and "as manifest.json says; it was fetched twice" in message
    repo.commit({name: data for name, data in repo.tree.items() if name != "manifest.json"})
    assert client(lambda: state(f"hf-hub:{REPO}@main")).code == 0  # a repository need not have one


def test_manifest_of_another_form(remote, client, published):
    repo = remote.repos[REPO]
    repo.commit(repo.tree | {"manifest.json": b'{"files": {"config.json": 5}}'})
    assert "manifest.json must hold" in fails(client.zoo("predict", f"hf-hub:{REPO}@main", "x"))
    assert client.zoo("publish", NAME, REPO).code == 0 and whole(
        {k: v for k, v in repo.tree.items() if k not in ("evil.pkl", "big.json")}
    )


def test_links_stay_inside_the_cache(remote, client, published, tmp_path):
    assert client(lambda: state(published)).code == 0
    file = next(client.cache.glob("models--me--dates/snapshots/*/tokenizer.src.json"))
    shutil.copy(file, tmp_path / "elsewhere.json")
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere.json")
    message = fails(client.zoo("predict", published, "x"))
    assert f"{file} is a link to {tmp_path / 'elsewhere.json'}, outside the cache; delete it and load again" in message
    file.unlink()
    assert client(lambda: state(published)).code == 0


def test_registered_weight_on_the_hub(remote, client, published, monkeypatch, tmp_path):
    """What the table does with a weight that is too large to be bundled."""
    monkeypatch.setitem(registry.TABLE, "far.away", registry.Entry("far.away", registry.entry(NAME).sha256))
    monkeypatch.setattr(registry, "PINS", tmp_path / "pins.json")
    pins.write(registry.PINS, {"far.away": pins.Pin(REPO, published[-40:])})
    assert same(client(lambda: state("far.away")).value, zoo.load(NAME))
    assert client.zoo("publish", NAME, "me/copy").code == 0


def test_server_names_contents_as_git_does():
    assert git_oid(b"hello\n") == "ce013625030ba8dba906f756967f9e9ca394464a"
