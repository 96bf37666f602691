"""`zoo publish --all`, and what a user without the weights then does: load, `zoo download`, `zoo cache`. The Hub is a
server on the loopback device.
"""

import json
import shutil
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import pytest
import torch
from hub_server import Client, sha256

import zoo
from zoo import registry
from zoo.bundles import pins
from zoo.bundles.files import config_text
from zoo.cli import main
from zoo.commands.publish import package

SMALL, LARGE = "toy.v2", "toy.v10"  # in the order of `zoo list`


@pytest.fixture
def client(remote, tmp_path, toy_registry):
    """A user of a zoo of two weights."""
    return Client(remote, tmp_path / "home")


@pytest.fixture
def fetching(client):
    """The same, with both weights on the Hub and none in the installation."""
    found = {}
    for name in (SMALL, LARGE):
        tree = package(name, f"me/{name}").files
        repo = client.hub.add(f"me/{name}")
        found[name] = pins.Pin(f"me/{name}", repo.commit(tree))
        client.hub.lfs |= {sha256(data): data for data in tree.values()}
    pins.write(registry.PINS, found)
    shutil.move(registry.BUNDLED, registry.BUNDLED.parent / "clone")
    return client


def typed(client, *steps, **environment):
    """Runs command lines in one process, one after the other; a step may also be a function.

    Returns:
        For each command line its exit code, and the lines of its two outputs.
    """

    def run():
        found = []
        for step in steps:
            if callable(step):
                step()
                continue
            with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
                code = main(step.split(" "))
            found.append((code, out.getvalue().splitlines(), err.getvalue().splitlines()))
        return found

    result = client(run, **environment)
    assert result.code == 0, result.err
    return result.value


def prints(ended):
    """The output of a command that succeeded, and said nothing else."""
    code, out, err = ended
    assert code == 0 and err == [], ended
    return out


def fails(ended):
    """The last line on standard error of a command that ended with exit code 2; the earlier ones."""
    code, _, (*earlier, line) = ended
    assert code == 2 and line.startswith("zoo: error: "), ended
    return line.removeprefix("zoo: error: "), earlier


def pinned():
    return json.loads(registry.PINS.read_text())


def clone(name):
    """Where the weights are that the installation lacks."""
    return registry.BUNDLED.parent / "clone" / name


def commits(remote):
    return {name: len(repo.commits) for name, repo in remote.repos.items()}


# ---- zoo publish --all ----


def test_publish_all_writes_the_pins(remote, client):
    first, again = typed(client, "publish --all me", "publish --all me")
    sources = {name: f"me/{name}@{remote.repos[f'me/{name}'].main}" for name in (SMALL, LARGE)}
    ending = ["", f"2 of 2 weights are on the Hub; their pins are in {registry.PINS}"]
    assert pinned() == sources
    assert prints(first) == [*(f"{name}: published as hf-hub:{sources[name]}" for name in sources), *ending]
    assert prints(again) == [*(f"{name}: unchanged at hf-hub:{sources[name]}" for name in sources), *ending]
    assert commits(remote) == {f"me/{SMALL}": 2, f"me/{LARGE}": 2}  # that of the creation, and ours
    card = remote.repos[f"me/{SMALL}"].tree["README.md"].decode()
    assert "model-index:\n- name: toy.v2\n" in card and "type: accuracy\n" in card and "# Toy ß" in card


@pytest.mark.parametrize("way", ["cut off", pytest.param("killed", marks=pytest.mark.slow)])
def test_publish_all_resumes(remote, client, way):
    if way == "killed":
        remote.fault(f"POST .*/{LARGE}/commit/", before=client.kill)
        assert client.zoo("publish", "--all", "me").code == -9
    else:
        remote.fault(f"GET .*/{LARGE}", status=500, times=1000)
        (ended,) = typed(client, "publish --all me", HF_HUB_ETAG_TIMEOUT="1")
        line, earlier = fails(ended)
        assert line.startswith(f"cannot publish to me/{LARGE}: the Hub answered 500") and earlier == []
    assert list(pinned()) == [SMALL]
    remote.faults.clear()
    (again,) = typed(client, "publish --all me")
    first, second, *_ = prints(again)
    assert first.startswith(f"{SMALL}: unchanged at ")
    # whether the killed one had gone through, or not
    assert second.startswith((f"{LARGE}: published as ", *[f"{LARGE}: unchanged at "] * (way == "killed")))
    assert commits(remote) == {f"me/{SMALL}": 2, f"me/{LARGE}": 2} and pinned().keys() == {SMALL, LARGE}


def test_one_bad_weight_does_not_lose_the_others(remote, client, tmp_path):
    pins.write(registry.PINS, {SMALL: pins.Pin("me/earlier", "a" * 40)})
    (registry.BUNDLED / SMALL / "words.json").write_text("other words")
    mine = tmp_path / "mine.json"
    for_me, for_all = typed(client, f"publish --all me --pins {mine}", "publish --all me")
    line, earlier = fails(for_all)
    assert line == "1 of 2 weights could not be published; see above; run it again to resume"
    assert len(earlier) == 1 and earlier[0].startswith(f"zoo: {SMALL}: ") and "words.json is damaged" in earlier[0]
    assert for_me[0] == 2 and [*json.loads(mine.read_text())] == [LARGE]  # another file knows nothing of an earlier pin
    assert pinned() == {SMALL: f"me/earlier@{'a' * 40}", LARGE: f"me/{LARGE}@{remote.repos[f'me/{LARGE}'].main}"}


def test_publish_all_shows_first(remote, client):
    first, second, _, last = prints(*typed(client, "publish --all me --dry-run"))
    assert remote.requests == [] and not registry.PINS.exists()
    assert first.startswith(f"{SMALL}: ") and first.endswith(f" bytes for me/{SMALL}") and LARGE in second
    assert last == "nothing was uploaded (--dry-run)"


def test_publish_all_needs_a_token_and_a_network(remote, client):
    line, earlier = fails(*typed(client, "publish --all me", HF_TOKEN=""))
    assert line.startswith("cannot publish: the token is missing or not valid; log in with") and earlier == []
    line, earlier = fails(*typed(client, "publish --all me", HF_HUB_OFFLINE="1"))
    assert line == "cannot publish: HF_HUB_OFFLINE is set; unset it" and earlier == []
    assert remote.repos == {} and not registry.PINS.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--all", "me/x"], "--all needs the name of a user or an organisation on the Hub; got 'me/x'"),
        (["--all", ""], "zoo publish needs either SOURCE and ORG/REPO, or --all ORG"),
        (["toy.v2", "--all", "me"], "zoo publish needs either SOURCE and ORG/REPO, or --all ORG"),
        (["toy.v2"], "zoo publish needs either SOURCE and ORG/REPO, or --all ORG"),
        (["toy.v2", "me/x", "--pins", "x.json"], "--pins is for --all"),
    ],
)
def test_what_to_publish(arguments, message, capsys):
    assert main(["publish", *arguments]) == 2
    assert capsys.readouterr().err == f"zoo: error: {message}\n"


# ---- zoo.load ----


def test_a_weight_is_fetched_at_its_pin(fetching, remote):
    def load():
        return {key: tensor.numpy() for key, tensor in zoo.load(LARGE).state_dict().items()}

    repo = remote.repos[f"me/{LARGE}"]
    repo.commit(repo.tree | {"config.json": b"{}"})  # later, on main
    result = fetching(load)
    assert result.code == 0, result.err
    want = zoo.load(f"local-dir:{clone(LARGE)}").state_dict()
    assert all(torch.equal(torch.from_numpy(result.value[key]), tensor) for key, tensor in want.items())
    before = len(remote.requests)
    assert fetching(load, HF_HUB_OFFLINE="1").code == 0 and len(remote.requests) == before


def test_the_registry_says_what_the_commit_must_hold(fetching, remote):
    """Whoever controls the repository or the pin cannot change the weights of a name."""
    pins.write(registry.PINS, {LARGE: pins.Pin(f"me/{SMALL}", remote.repos[f"me/{SMALL}"].main)})
    *_, line = fails(*typed(fetching, f"predict {LARGE} a"))[0].split(": ", 1)
    assert "its sha256 is" in line and "it was fetched twice, so the repository itself is damaged" in line


def test_the_list_says_where_weights_are(fetching, capsys):
    shutil.copytree(clone(LARGE), registry.BUNDLED / LARGE)
    for found, said in [({}, "not here"), ({SMALL: pins.Pin("me/x", "a" * 40)}, "on the Hub")]:
        pins.write(registry.PINS, found)
        assert main(["list"]) == 0
        assert [line.split("  ")[-2].strip() for line in capsys.readouterr().out.splitlines()[1:]] == [said, "0.0 MB"]


# ---- zoo download ----


def test_download(fetching, remote):
    shutil.copytree(clone(SMALL), registry.BUNDLED / SMALL)
    first, again = typed(fetching, "download all", f"download {LARGE} {LARGE} {SMALL}")
    commit = remote.repos[f"me/{LARGE}"].main
    here = f"{SMALL}     0.0 MB  already here  {registry.BUNDLED / SMALL}"
    fetched = f"{LARGE}    0.0 MB  fetched       {fetching.cache}/models--me--{LARGE}/snapshots/{commit}"
    assert prints(first) == [here, fetched]
    assert prints(again) == [fetched.replace("fetched     ", "already here"), here]
    offline = prints(*typed(fetching, f"download hf-hub:me/{LARGE}@{commit}", HF_HUB_OFFLINE="1"))
    assert len(offline) == 1 and "already here" in offline[0]


def test_download_verifies(fetching, remote):
    shutil.copytree(clone(SMALL), registry.BUNDLED / SMALL)
    weights = registry.BUNDLED / SMALL / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    one, both = typed(fetching, f"download {SMALL}", f"download {SMALL} {LARGE}")
    line, earlier = fails(one)
    assert "model.safetensors is damaged or was changed" in line and earlier == []
    line, earlier = fails(both)
    assert line == "1 of 2 weights could not be fetched; see above" and "model.safetensors is damaged" in earlier[0]
    assert both[1][0].startswith(f"{LARGE}    0.0 MB  fetched ")


def test_download_mistakes_fetch_nothing(fetching, remote):
    unknown, beside, form, nowhere = typed(
        fetching,
        f"download {LARGE} toy.v3",
        "download all toy.v3",
        f"download {LARGE} hf-hub:me/x",
        lambda: pins.write(registry.PINS, {}),
        f"download {LARGE}",
    )
    assert fails(unknown) == fails(beside) == ("unknown model 'toy.v3'; nearest: toy.v2, toy.v10", [])
    assert "expected hf-hub:ORG/REPO@REVISION" in fails(form)[0]
    assert fails(nowhere)[0].startswith(f"{LARGE} is neither in this installation nor on the Hub yet; clone")
    assert remote.requests == []


def test_download_of_what_is_not_published(fetching, remote):
    pins.write(registry.PINS, {})
    one, both = typed(
        fetching,
        lambda: shutil.copytree(clone(SMALL), registry.BUNDLED / SMALL),
        "download all",
        lambda: shutil.rmtree(registry.BUNDLED),
        "download all",
    )
    line, (earlier,) = fails(one)
    assert line == "1 of 2 weights could not be fetched; see above" and len(one[1]) == 1
    assert earlier.startswith(f"zoo: {LARGE} is neither in this installation nor on the Hub yet; clone")
    assert fails(both)[0].startswith(f"{SMALL}, {LARGE} are neither in this installation nor on the Hub yet; clone")
    assert remote.requests == []


def test_download_without_a_network(fetching, remote):
    line, earlier = fails(*typed(fetching, "download all", HF_HUB_OFFLINE="1"))
    assert line.startswith(f"me/{SMALL} at revision ") and "not in the cache and HF_HUB_OFFLINE is set" in line
    assert earlier == [] and remote.requests == []
    line, earlier = fails(*typed(fetching, "download all", HF_ENDPOINT="http://127.0.0.1:9", HF_HUB_ETAG_TIMEOUT="1"))
    assert "http://127.0.0.1:9 cannot be reached" in line and earlier == []


# ---- zoo cache ----


def table(*rows):
    width = max(len(name) for name, _ in rows)
    return [f"{name:{width}}  {size / 1e6:7.1f} MB" for name, size in rows]


def test_cache(fetching, remote):
    folders = {name: fetching.cache / f"models--me--{name}" for name in (LARGE, SMALL)}
    there = []
    empty, nothing, _, full, removed, rest, absent, unknown = typed(
        fetching,
        "cache",
        "cache clear",
        "download all",
        "cache",
        lambda: there.append(folders[LARGE].exists() and folders[SMALL].exists()),
        f"cache clear {SMALL}",
        "cache",
        f"cache clear {SMALL}",
        f"cache clear {LARGE} toy.v3",
    )
    assert prints(empty) == [f"{fetching.cache}", "holds no weights of attention-zoo"]
    assert prints(nothing) == [f"{fetching.cache} holds no weights of attention-zoo; nothing was removed"]
    size = {name: sum(file.stat().st_size for file in clone(name).iterdir()) for name in folders}
    assert prints(full) == [f"{fetching.cache}", *table(*size.items(), ("total", sum(size.values())))]
    assert prints(removed) == table((f"removed {SMALL}", size[SMALL]), ("freed", size[SMALL]))
    assert prints(rest) == [f"{fetching.cache}", *table((LARGE, size[LARGE]), ("total", size[LARGE]))]
    assert prints(absent) == [f"{SMALL} is not in the cache"]
    assert fails(unknown) == ("unknown model 'toy.v3'; nearest: toy.v2, toy.v10", [])
    assert folders[LARGE].exists() and not folders[SMALL].exists()


def test_the_cache_of_others_stays(fetching, remote):
    """Other models and data sets, one with a config.json, and what somebody else put into the folder."""
    remote.add("me/bert").commit({"config.json": b'{"model_type": "bert"}', "model.safetensors": b"x" * 99})
    remote.lfs[sha256(b"x" * 99)] = b"x" * 99
    (fetching.cache / "datasets--me--data" / "snapshots" / ("a" * 40)).mkdir(parents=True)
    (fetching.cache / "notes.txt").write_text("mine")

    def there():
        return {path for path in fetching.cache.rglob("*") if ".locks" not in path.parts}

    def fetch():
        from huggingface_hub import snapshot_download

        snapshot_download("me/bert")

    typed(fetching, fetch)
    before = there()
    assert any(path.name == "model.safetensors" for path in before)
    _, full, cleared, empty = typed(fetching, "download all", "cache", "cache clear", "cache")
    assert len(prints(full)) == 4 and len(prints(cleared)) == 3
    assert prints(empty)[1:] == ["holds no weights of attention-zoo"] and there() == before


def test_weights_of_a_class_that_is_not_here(fetching, remote):
    """The cache shows what to import, and can be cleared of them."""
    config = config_text("their_module.Model", {}, {"model.safetensors": sha256(b"x" * 99)})
    commit = remote.add("me/theirs").commit({"config.json": config.encode(), "model.safetensors": b"x" * 99})
    remote.lfs[sha256(b"x" * 99)] = b"x" * 99

    def fetch():
        from huggingface_hub import snapshot_download

        snapshot_download("me/theirs")

    name = f"hf-hub:me/theirs@{commit}"
    full, removed, empty = typed(fetching, fetch, "cache", f"cache clear {name}", "cache")
    assert prints(full)[-1] == (f"{name} is of a class of its author, their_module.Model: load it with --import MODULE")
    assert prints(full)[1].startswith(f"{name} ") and prints(removed)[0].startswith(f"removed {name}")
    assert prints(empty)[1:] == ["holds no weights of attention-zoo"]


def test_weights_of_another_commit_and_damaged_ones_can_be_cleared(fetching, remote):
    source = f"hf-hub:me/{SMALL}@{remote.repos[f'me/{SMALL}'].main}"

    def damage():
        (config,) = fetching.cache.glob(f"models--me--{LARGE}/snapshots/*/config.json")
        config.resolve().write_text("{")

    _, full, cleared, rest, empty = typed(
        fetching,
        "download all",
        damage,
        lambda: pins.write(registry.PINS, {LARGE: pins.Pin(f"me/{LARGE}", "a" * 40)}),  # as in a later version
        "cache",
        f"cache clear {source}",
        "cache clear",
        "cache",
    )
    other = f"hf-hub:me/{LARGE}@{remote.repos[f'me/{LARGE}'].main}"
    assert [line.split()[0] for line in prints(full)[1:]] == [other, source, "total"]
    assert prints(cleared)[0].startswith(f"removed {source} ")
    assert prints(rest)[0].startswith(f"removed {other} ")
    assert prints(empty)[1:] == ["holds no weights of attention-zoo"]
