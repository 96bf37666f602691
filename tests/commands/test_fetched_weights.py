"""`zoo publish --all`, and what a user without the weights then does: load, `zoo download`, `zoo cache`. The Hub is a
server on the loopback device.
"""

import json
import shutil

import pytest
import torch
from hub_server import READER, Client, Hub

import zoo
from zoo import registry
from zoo.bundles import hub, pins

SMALL, LARGE = "toy.v2", "toy.v10"  # in the order of `zoo list`


@pytest.fixture(scope="module")
def server():
    with Hub() as server:
        yield server


@pytest.fixture
def remote(server):
    """The Hub, empty."""
    server.reset()
    return server


@pytest.fixture
def client(remote, tmp_path, toy_registry):
    """A user of a zoo of two weights."""
    return Client(remote, tmp_path / "home")


@pytest.fixture
def fetching(client):
    """The same, with both weights on the Hub and none in the installation."""
    result = client.zoo("publish", "--all", "me")
    assert result.code == 0, result.err
    shutil.rmtree(client.cache)
    shutil.move(registry.BUNDLED, registry.BUNDLED.parent / "clone")
    client.hub.requests.clear()
    return client


def fails(result):
    """The last line on standard error of a command that ended with exit code 2; the earlier ones."""
    assert result.code == 2, (result.code, result.out, result.err)
    *earlier, line = result.err.splitlines()
    assert line.startswith("zoo: error: ") and "Traceback" not in result.err
    return line.removeprefix("zoo: error: "), earlier


def pinned():
    return json.loads(registry.PINS.read_text())


def commits(remote):
    return {name: len(repo.commits) for name, repo in remote.repos.items()}


# ---- zoo publish --all ----


def test_publish_all_writes_the_pins(remote, client):
    result = client.zoo("publish", "--all", "me")
    assert result.code == 0, result.err
    sources = {name: f"me/{name}@{remote.repos[f'me/{name}'].main}" for name in (SMALL, LARGE)}
    assert pinned() == sources
    assert result.out.splitlines() == [
        *(f"{name}: published as hf-hub:{source}" for name, source in sources.items()),
        "",
        f"2 of 2 weights are on the Hub; their pins are in {registry.PINS}",
    ]
    card = remote.repos[f"me/{SMALL}"].tree["README.md"].decode()
    assert "model-index:\n- name: toy.v2\n" in card and "type: accuracy\n" in card and "# Toy ß" in card

    again = client.zoo("publish", "--all", "me")
    assert again.code == 0 and again.out.count("unchanged at hf-hub:me/toy.v") == 2 and pinned() == sources
    assert commits(remote) == {f"me/{SMALL}": 2, f"me/{LARGE}": 2}  # that of the creation, and ours


@pytest.mark.parametrize("way", ["killed", "cut off"])
def test_publish_all_resumes(remote, client, way):
    on_way = {"before": client.kill} if way == "killed" else {"status": 500, "times": 1000}
    remote.fault(f"POST .*/{LARGE}/commit/", **on_way)
    result = client.zoo("publish", "--all", "me", HF_HUB_ETAG_TIMEOUT="1", HF_HUB_DOWNLOAD_TIMEOUT="1")
    if way == "killed":
        assert result.code == -9
    else:
        line, earlier = fails(result)
        assert line.startswith(f"cannot publish to me/{LARGE}: ") and earlier == []
    assert list(pinned()) == [SMALL]
    remote.faults.clear()
    again = client.zoo("publish", "--all", "me")
    assert again.code == 0, again.err
    first, second = again.out.splitlines()[:2]
    assert first.startswith(f"{SMALL}: unchanged at ") and second.startswith(f"{LARGE}: published as ")
    assert commits(remote) == {f"me/{SMALL}": 2, f"me/{LARGE}": 2} and pinned().keys() == {SMALL, LARGE}


def test_one_bad_weight_does_not_lose_the_others(remote, client):
    pins.write(registry.PINS, {SMALL: pins.Pin("me/earlier", "a" * 40)})
    (registry.BUNDLED / SMALL / "words.json").write_text("other words")
    line, earlier = fails(client.zoo("publish", "--all", "me"))
    assert line == "1 of 2 weights could not be published; see above; run it again to resume"
    assert len(earlier) == 1 and earlier[0].startswith(f"zoo: {SMALL}: ") and "words.json is damaged" in earlier[0]
    assert pinned() == {SMALL: f"me/earlier@{'a' * 40}", LARGE: f"me/{LARGE}@{remote.repos[f'me/{LARGE}'].main}"}


def test_pins_of_another_file(client, tmp_path):
    assert client.zoo("publish", "--all", "me", "--pins", str(tmp_path / "mine.json")).code == 0
    assert not registry.PINS.exists() and len(json.loads((tmp_path / "mine.json").read_text())) == 2


def test_publish_all_shows_first(remote, client):
    result = client.zoo("publish", "--all", "me", "--dry-run")
    assert result.code == 0 and remote.requests == [] and not registry.PINS.exists()
    first, second, _, last = result.out.splitlines()
    assert first.startswith(f"{SMALL}: ") and first.endswith(f" bytes for me/{SMALL}") and LARGE in second
    assert last == "nothing was uploaded (--dry-run)"


def test_publish_all_needs_a_token_and_a_network(remote, client):
    line, earlier = fails(client.zoo("publish", "--all", "me", HF_TOKEN=""))
    assert line.startswith("cannot publish: the token is missing or not valid; log in with") and earlier == []
    line, earlier = fails(client.zoo("publish", "--all", "me", HF_HUB_OFFLINE="1"))
    assert line == "cannot publish: HF_HUB_OFFLINE is set; unset it" and earlier == []
    line, earlier = fails(client.zoo("publish", "--all", "me", HF_TOKEN=READER))
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
def test_what_to_publish(client, remote, arguments, message):
    assert fails(client.zoo("publish", *arguments)) == (message, [])
    assert remote.requests == []


# ---- zoo.load ----


def test_a_weight_is_fetched_at_its_pin(fetching, remote):
    def load():
        return {key: tensor.numpy() for key, tensor in zoo.load(LARGE).state_dict().items()}

    repo = remote.repos[f"me/{LARGE}"]
    repo.commit(repo.tree | {"config.json": b"{}"})  # later, on main
    result = fetching(load)
    assert result.code == 0, result.err
    want = zoo.load(f"local-dir:{registry.BUNDLED.parent / 'clone' / LARGE}").state_dict()
    assert all(torch.equal(torch.from_numpy(result.value[key]), tensor) for key, tensor in want.items())
    before = len(remote.requests)
    assert fetching(load, HF_HUB_OFFLINE="1").code == 0 and len(remote.requests) == before


def test_the_registry_says_what_the_commit_must_hold(fetching, remote):
    """Whoever controls the repository or the pin cannot change the weights of a name."""
    pins.write(registry.PINS, {LARGE: pins.Pin(f"me/{SMALL}", remote.repos[f"me/{SMALL}"].main)})
    line, _ = fails(fetching.zoo("predict", LARGE, "a"))
    assert "config.json is damaged or was changed: its sha256 is" in line


def test_the_list_says_where_weights_are(fetching):
    shutil.copytree(registry.BUNDLED.parent / "clone" / LARGE, registry.BUNDLED / LARGE)
    pins.write(registry.PINS, {})
    sizes = [line.split("  ")[-2].strip() for line in fetching.zoo("list").out.splitlines()[1:]]
    assert sizes == ["not here", "0.0 MB"]
    pins.write(registry.PINS, {SMALL: pins.Pin("me/x", "a" * 40), LARGE: pins.Pin("me/x", "a" * 40)})
    sizes = [line.split("  ")[-2].strip() for line in fetching.zoo("list").out.splitlines()[1:]]
    assert sizes == ["on the Hub", "0.0 MB"]


# ---- zoo download ----


def test_download(fetching, remote):
    shutil.copytree(registry.BUNDLED.parent / "clone" / SMALL, registry.BUNDLED / SMALL)
    first, again = fetching.zoo("download", "all"), fetching.zoo("download", LARGE, LARGE, SMALL)
    assert first.code == again.code == 0, first.err + again.err
    commit = remote.repos[f"me/{LARGE}"].main
    cached = fetching.cache / f"models--me--{LARGE}" / "snapshots" / commit
    assert first.out.splitlines() == [
        f"{SMALL}     0.0 MB  already here  {registry.BUNDLED / SMALL}",
        f"{LARGE}    0.0 MB  fetched       {cached}",
    ]
    assert again.out.splitlines() == [
        f"{LARGE}    0.0 MB  already here  {cached}",
        f"{SMALL}     0.0 MB  already here  {registry.BUNDLED / SMALL}",
    ]
    by_source = fetching.zoo("download", f"hf-hub:me/{LARGE}@{commit}", HF_HUB_OFFLINE="1")
    assert by_source.code == 0 and "already here" in by_source.out


def test_download_verifies(fetching, remote):
    shutil.copytree(registry.BUNDLED.parent / "clone" / SMALL, registry.BUNDLED / SMALL)
    weights = registry.BUNDLED / SMALL / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    line, earlier = fails(fetching.zoo("download", SMALL))
    assert "model.safetensors is damaged or was changed" in line and earlier == []
    result = fetching.zoo("download", SMALL, LARGE)
    line, earlier = fails(result)
    assert line == "1 of 2 weights could not be fetched; see above" and "model.safetensors is damaged" in earlier[0]
    assert result.out.split()[0] == LARGE and "fetched" in result.out


def test_download_of_what_is_not_published(fetching):
    pins.write(registry.PINS, {})
    line, earlier = fails(fetching.zoo("download", LARGE))
    assert line.startswith(f"{LARGE} is neither in this installation nor on the Hub yet; clone") and earlier == []


def test_download_mistakes_fetch_nothing(fetching, remote):
    assert fails(fetching.zoo("download", LARGE, "toy.v3"))[0] == "unknown model 'toy.v3'; nearest: toy.v2, toy.v10"
    assert "expected hf-hub:ORG/REPO@REVISION" in fails(fetching.zoo("download", LARGE, "hf-hub:me/x"))[0]
    assert remote.requests == []


def test_download_without_a_network(fetching, remote):
    line, earlier = fails(fetching.zoo("download", "all", HF_HUB_OFFLINE="1"))
    assert line.startswith(f"me/{SMALL} at revision ") and "not in the cache and HF_HUB_OFFLINE is set" in line
    assert earlier == [] and remote.requests == []
    line, earlier = fails(fetching.zoo("download", "all", HF_ENDPOINT="http://127.0.0.1:9", HF_HUB_ETAG_TIMEOUT="1"))
    assert "http://127.0.0.1:9 cannot be reached" in line and earlier == []


# ---- zoo cache ----


def sizes(cached, name, commit):
    folder = cached / f"models--me--{name}" / "snapshots" / commit
    return sum(file.stat().st_size for file in folder.iterdir())


def table(*rows):
    width = max(len(name) for name, _ in rows)
    return [f"{name:{width}}  {size / 1e6:7.1f} MB" for name, size in rows]


def test_cache(fetching, remote):
    empty = fetching.zoo("cache")
    assert empty.code == 0 and empty.out.splitlines() == [f"{fetching.cache}", "holds no weights of attention-zoo"]
    assert (
        fetching.zoo("cache", "clear").out
        == f"{fetching.cache} holds no weights of attention-zoo; nothing was removed\n"
    )
    assert fetching.zoo("download", "all").code == 0
    found = [(name, sizes(fetching.cache, name, remote.repos[f"me/{name}"].main)) for name in (LARGE, SMALL)]
    total = sum(size for _, size in found)
    assert fetching.zoo("cache").out.splitlines() == [f"{fetching.cache}", *table(*found, ("total", total))]

    removed = fetching.zoo("cache", "clear", SMALL)
    assert removed.code == 0 and removed.out.splitlines() == table(
        (f"removed {SMALL}", found[1][1]), ("freed", found[1][1])
    )
    assert not (fetching.cache / f"models--me--{SMALL}").exists()
    assert fetching.zoo("cache").out.splitlines()[1:] == table(found[0], ("total", found[0][1]))
    assert fetching.zoo("cache", "clear", SMALL).out == f"{SMALL} is not in the cache\n"
    assert "unknown model 'toy.v3'" in fails(fetching.zoo("cache", "clear", LARGE, "toy.v3"))[0]
    assert (fetching.cache / f"models--me--{LARGE}").exists()


def test_the_cache_of_others_stays(fetching, remote):
    """Other models and data sets, one with a config.json, and what somebody else put into the folder."""
    assert fetching.zoo("download", "all").code == 0
    other = {"config.json": b'{"model_type": "bert"}', "model.safetensors": b"x" * 99}
    remote.add("me/bert").commit(other)
    remote.lfs["".join(hub.hashlib.sha256(b"x" * 99).hexdigest())] = b"x" * 99

    def fetch():
        from huggingface_hub import snapshot_download

        snapshot_download("me/bert")

    fetched = fetching(fetch)
    assert fetched.code == 0, fetched.err
    (fetching.cache / "datasets--me--data" / "snapshots" / ("a" * 40)).mkdir(parents=True)
    (fetching.cache / "notes.txt").write_text("mine")
    before = {path for path in fetching.cache.rglob("*") if "toy" not in str(path)}
    cleared = fetching.zoo("cache", "clear")
    assert cleared.code == 0 and "bert" not in fetching.zoo("cache").out, cleared.err
    assert {path for path in fetching.cache.rglob("*") if ".locks" not in path.parts} == {
        path for path in before if ".locks" not in path.parts
    }


def test_a_bundle_of_another_commit_is_named_by_its_source(fetching, remote):
    source = f"hf-hub:me/{SMALL}@{remote.repos[f'me/{SMALL}'].main}"
    assert fetching.zoo("download", SMALL).code == 0
    pins.write(registry.PINS, {})  # as a later version, which has another pin
    assert fetching.zoo("cache").out.splitlines()[1].split()[0] == source
    assert fetching.zoo("cache", "clear", source).out.startswith(f"removed {source} ")
    assert "holds no weights" in fetching.zoo("cache").out


def test_a_damaged_weight_can_be_cleared(fetching, remote):
    assert fetching.zoo("download", SMALL).code == 0
    (config,) = fetching.cache.glob("models--me--toy.v2/snapshots/*/config.json")
    config.resolve().write_text("{")
    assert fetching.zoo("cache", "clear").out.startswith(f"removed {SMALL} ")
    assert not (fetching.cache / f"models--me--{SMALL}").exists()
