"""`zoo serve`: nobody can keep it from answering others."""

import asyncio
import io
import json
import os
import signal
import socket
import threading
import time
from contextlib import suppress

import PIL.Image
import pytest
from odd_process import Broken, Odd, Whilst
from serving_fakes import IMAGES, TEXTS, SlowDecoder, Thread, in_base64, loaded, serving

from zoo.serving import connections, endpoint
from zoo.serving.checks import Refused
from zoo.serving.child import Child, Overran
from zoo.serving.images import Decoder
from zoo.serving.pool import Pool
from zoo.vision.images import ImageError, decoding_work, open_image

# ---- work ----


@pytest.mark.parametrize(
    ("kind", "fields", "name", "lower"),
    [
        ("translator", {"text": "a good film . it is bad", "beam_size": 16}, "text", "shorten it, or lower beam_size"),
        (
            "language_model",
            {"texts": ["a", "a good"], "beam_size": 16, "max_words": 200},
            "text 1",
            "shorten it, or lower beam_size",
        ),
        ("documents", {"text": "a. " * 200}, "text", "shorten it"),
    ],
)
def test_one_text_of_too_much_work_is_refused(folders, kind, fields, name, lower):
    api = loaded(folders[kind], max_tokens=400, max_work=400)
    (refused,) = api.read([fields])
    assert refused.status == 422 and refused.detail.startswith(f"{name} is ")
    assert refused.detail.endswith(f" units of work; at most 50 are allowed; {lower}")


def test_the_work_of_a_whole_request_has_a_limit(folders):
    api = loaded(folders["translator"], max_items=32, max_work=400)
    (job,) = api.read([{"texts": ["a good film"] * 24}])
    assert sum(job.works) == 384
    (refused,) = api.read([{"texts": ["a good film"] * 26}])
    assert (refused.status, refused.detail) == (
        413,
        "the request is more than 400 units of work; send fewer texts at once",
    )
    (shown,) = api.read([{"text": "a good film", "attention": True}])
    assert sum(shown.works) >= 16


class Slow:
    """A worker whose work takes time."""

    def __init__(self):
        self.done = []

    def facts(self):
        return {}

    def work(self, items):
        time.sleep(0.02 * len(items))
        self.done += items
        return items


def in_pool(target, ask, **options):
    async def run():
        pool = Pool([Thread(target)], **{"max_items": 2, "max_work": 100, "seconds": 30.0, **options})
        await pool.start()
        try:
            return await ask(pool)
        finally:
            pool.stop()

    return asyncio.run(run())


def test_small_requests_overtake_large_ones_which_are_not_delayed_for_ever():
    slow = Slow()

    async def ask(pool):
        large = asyncio.create_task(pool.run("work", [f"large {n}" for n in range(8)], [90] * 8))
        await asyncio.sleep(0.01)
        small = [asyncio.create_task(pool.run("work", [f"small {n}"], [60])) for n in range(30)]
        await asyncio.gather(large, *small)

    in_pool(slow, ask)
    places = [n for n, item in enumerate(slow.done) if item.startswith("large")]
    assert places == list(range(0, 29, 4))  # each fourth
    assert slow.done[1] == "small 0"


def test_a_batch_has_a_limit_of_work():
    slow, found = Slow(), []

    async def ask(pool):
        found.append(await pool.run("work", list(range(10)), [30] * 10))
        found.append(await pool.run("work", [0, 1], [30, 200]))

    in_pool(slow, ask, max_items=8)
    assert found == [(list(range(10)), 3), ([0, 1], 1)]


def test_a_free_process_begins_at_once_and_then_takes_all_that_has_arrived():
    async def ask(pool):
        first = asyncio.create_task(pool.run("work", ["first"], [1]))
        await asyncio.sleep(0.01)  # it is being computed
        others = await asyncio.gather(*(pool.run("work", [n], [1]) for n in range(5)))
        return await first, others

    first, others = in_pool(Slow(), ask, max_items=8)
    assert first == (["first"], 1)
    assert others == [([n], 5) for n in range(5)]


def test_what_nobody_waits_for_is_not_begun():
    slow = Slow()

    async def ask(pool):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(pool.run("work", list(range(100)), [90] * 100), 0.1)
        assert pool.orders == []
        return await pool.run("work", ["last"], [1])

    assert in_pool(slow, ask) == (["last"], 1)
    assert len(slow.done) < 20


@pytest.mark.parametrize("taken", range(4))
def test_what_waits_for_others_delays_nobody_else(taken):
    async def ask(pool):
        pool._taken = taken
        waiting = asyncio.create_task(pool.run("work", ["patient"], [1], wait=20.0))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        await pool.run("other", ["another method"], [50])
        assert time.monotonic() - began < 5
        joined = await asyncio.gather(waiting, pool.run("work", ["second"], [1], wait=20.0))
        assert joined == [(["patient"], 2), (["second"], 2)]

    slow = Slow()
    slow.other = slow.work
    in_pool(slow, ask)


# ---- processes ----


def test_messages_larger_than_any_buffer_keep_nobody_waiting():
    large = bytes(range(256)) * 2**15  # 8 MiB

    async def run():
        child, ticks = Child(Odd, lanes=2), 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        await child.start()
        ticking = asyncio.create_task(tick())
        try:
            lanes = [child.call("echo", [lane, large], seconds=30.0, lane=lane) for lane in range(2)]
            assert await asyncio.gather(*lanes) == [[0, large], [1, large]]
            os.kill(child._process.pid, signal.SIGSTOP)  # it reads nothing
            before = ticks
            with pytest.raises(Overran):
                await child.call("echo", [large], seconds=0.5)
        finally:
            ticking.cancel()
            child.kill()
        assert ticks - before > 5

    asyncio.run(run())


def test_a_process_that_dies_or_overruns_is_replaced_and_harms_only_its_own_request(caplog):
    async def run():
        pool = Pool([Child(Odd, lanes=2)], 4, 100, 1.0)
        assert await pool.start() == "there" and pool.is_well()
        try:
            asked = [asyncio.create_task(pool.run("die", [name], [1], wait=0.2)) for name in ("a", "deadly", "b")]
            found = await asyncio.gather(*asked, return_exceptions=True)
            assert found[0] == (["a"], 3) and found[2] == (["b"], 3)
            assert isinstance(found[1], Refused) and found[1].status == 500
            with pytest.raises(Refused) as late:
                await pool.run("sleep", [20], [1])
            assert (late.value.status, late.value.detail) == (504, "no answer within 1 s; send less at once")
            with pytest.raises(Refused) as failed:
                await pool.run("fail", [1], [1])
            assert failed.value.status == 500 and "secret" not in failed.value.detail
            pool.children[0].kill()
            assert not pool.is_well()
            assert await pool.run("sleep", [0], [1]) == ([0], 1) and pool.is_well()
        finally:
            pool.stop()

    asyncio.run(run())


@pytest.mark.parametrize("taken", range(4))  # of each fourth batch the oldest order comes first
def test_a_request_that_kills_the_process_harms_no_other_lane(taken):
    async def run():
        pool = Pool([Child(Odd, lanes=2)], 4, 1000, 30.0, small=10)
        await pool.start()
        pool._taken = taken
        try:
            deadly = asyncio.create_task(pool.run("die_later", ["deadly"], [500]))
            await asyncio.sleep(0.1)
            small = asyncio.create_task(pool.run("sleep", [1], [1]))
            found = await asyncio.gather(deadly, small, return_exceptions=True)
            assert isinstance(found[0], Refused) and found[0].status == 500
            assert found[1] == ([1], 1)
        finally:
            pool.stop()

    asyncio.run(run())


def test_a_dead_process_is_replaced_once_by_all_its_lanes():
    async def run():
        child, starts = Child(Odd, lanes=2), 0
        start = child.start

        async def counted():
            nonlocal starts
            starts += 1
            return await start()

        child.start = counted
        pool = Pool([child], 4, 1000, 30.0, small=10)
        await pool.start()
        try:
            asked = [asyncio.create_task(pool.run("sleep", [2], [500]))]
            await asyncio.sleep(0.2)
            asked.append(asyncio.create_task(pool.run("sleep", [2.5], [1])))
            await asyncio.sleep(0.2)
            child._process.kill()
            assert await asyncio.gather(*asked) == [([2], 1), ([2.5], 1)]
            assert starts == 2
        finally:
            pool.stop()

    asyncio.run(run())


def test_what_no_process_is_left_for_is_refused_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr("zoo.serving.pool.STARTS", 1)
    small, large = tmp_path / "small", tmp_path / "large"
    for file in (small, large):
        file.touch()

    async def refused(pool, item, work):
        with pytest.raises(Refused) as found:
            await pool.run("sleep", [item], [work])
        assert found.value.status == 503 and found.value.detail.startswith("the server ends: its processes cannot")

    async def run():
        pool = Pool([Child(Whilst, str(large)), Child(Whilst, str(small), most=10)], 1, 100, 3600.0)
        await pool.start()
        try:
            waiting = [asyncio.create_task(refused(pool, 3600, 50)) for _ in range(2)]
            await asyncio.sleep(0.2)
            large.unlink()
            pool.children[0]._process.kill()
            await asyncio.wait_for(asyncio.gather(*waiting), 60)
            assert "large is gone" in str(await pool.failed)
            assert await pool.run("sleep", [0], [1]) == ([0], 1)  # by the other process
            small.unlink()
            last = asyncio.create_task(refused(pool, 3600, 1))
            await asyncio.sleep(0.2)
            pool.children[1]._process.kill()
            await asyncio.wait_for(last, 60)
            await refused(pool, 0, 1)
        finally:
            pool.stop()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("make", "argument", "message"),
    [
        (Decoder, "{", "not an image transform in JSON form: .*"),
        (Broken, FileNotFoundError("no such\nfile"), "no such file"),
        (Broken, RuntimeError("wrong\n\tshapes"), "RuntimeError: wrong shapes"),
        (Broken, PermissionError(13, "denied"), r"PermissionError: \[Errno 13\] denied"),
        (Broken, MemoryError(), "MemoryError:"),
    ],
)
def test_a_process_that_cannot_start_says_why(make, argument, message):
    async def start():
        child = Child(make, argument)
        try:
            await child.start()
        finally:
            child.kill()

    with pytest.raises(ValueError, match=f"^{message}$"):
        asyncio.run(start())


# ---- images ----


def saved(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def of_many_scans(side, scans):
    """A small JPEG whose decoder goes over all pixels again and again."""
    content = saved(PIL.Image.new("L", (side, side)), "JPEG", progressive=True)
    last = content[content.rindex(b"\xff\xda") : -2]
    return content[:-2] + last * (scans - content.count(b"\xff\xda")) + content[-2:]


def test_a_jpeg_has_a_limit_of_scans():
    assert open_image(of_many_scans(64, 100)).size == (64, 64)
    for content in (of_many_scans(64, 101), of_many_scans(64, 101).replace(b"\xff\xd9", b"\xff\x01\xff\xff\xff\xd9")):
        with pytest.raises(
            ImageError, match="^photo: 101 scans, more than the limit of 100; save the image again as a plain JPEG"
        ):
            open_image(content, "photo")
    plain = saved(PIL.Image.effect_noise((300, 300), 90), "JPEG", quality=95, comment=b"\xff\xda" * 500)
    assert open_image(plain + b"\xff\xda" * 500).size == (300, 300)  # neither in a comment, nor after the end


def test_work_of_an_image_is_told_from_its_header():
    image = PIL.Image.new("RGB", (100, 100))
    works = {
        kind: decoding_work(saved(image, kind), "x") for kind in ("JPEG", "PNG", "BMP", "TIFF", "WEBP", "JPEG2000")
    }
    assert works == {"JPEG": 10_000, "BMP": 10_000, "PNG": 30_000, "TIFF": 30_000, "WEBP": 30_000, "JPEG2000": 30_000}
    assert decoding_work(of_many_scans(100, 50), "x") == 50_000
    assert decoding_work(b"P2 100 100 255\n" + b"7 " * 10_000, "x") == 600_000


def test_a_large_jpeg_is_decoded_at_a_part_of_its_size():
    photo = saved(PIL.Image.effect_noise((4000, 3000), 50).convert("RGB"), "JPEG")
    assert open_image(photo).size == (4000, 3000)
    assert open_image(photo, side=224).size == (2000, 1500) and open_image(photo, side=600).size == (4000, 3000)
    assert open_image(saved(PIL.Image.new("RGB", (3000, 3000)), "PNG"), side=8).size == (3000, 3000)


def test_the_images_of_a_request_have_a_limit_together(captioner, monkeypatch):
    monkeypatch.setattr("zoo.serving.images.MAX_PIXELS", 3 * 20 * 16 * 3)
    images = [in_base64(image) for image in IMAGES]
    assert captioner.send(json.dumps({"images": images[:2]})).status == 200
    answer = captioner.send(json.dumps({"images": images + images[:1]}))
    assert answer.status == 413 and answer.body["detail"].startswith("the images take as long to decode as ")
    monkeypatch.setattr("zoo.serving.images.MAX_PIXELS", 1000)
    for fields, name in (({"image": images[1]}, "image"), ({"images": images[1:]}, "image 1")):
        answer = captioner.send(json.dumps(fields))
        assert (answer.status, answer.body["detail"]) == (
            422,
            f"{name} takes as long to decode as 1,008 pixels of a plain JPEG; at most 1,000 are allowed; make it "
            "smaller, or save it as a plain JPEG",
        )


@pytest.mark.parametrize(
    ("decoder", "name", "memory", "seconds", "status"),
    [
        (Decoder, "image 1", 2**26, 30.0, 422),
        pytest.param(SlowDecoder, "slow", 2**30, 2.0, 504, marks=pytest.mark.slow),
    ],
)
def test_an_image_that_takes_too_long_or_too_much_memory_is_given_up(decoder, name, memory, seconds, status):
    transform = '{"size": 8, "resize": "squash", "mean": [0, 0, 0], "std": [1, 1, 1]}'
    large = saved(PIL.Image.new("F", (4000, 4000)), "TIFF", compression="tiff_lzw")

    async def ask():
        pool = Pool([Child(decoder, transform, memory, 10)], 1, 1, seconds)
        await pool.start()
        try:
            with pytest.raises(Refused) as refused:
                await pool.run("pixels", [(large, name)], [1])
            assert (await pool.run("pixels", [(IMAGES[0], "image")], [1]))[0][0]
        finally:
            pool.stop()
        return refused.value

    refused = asyncio.run(ask())
    assert refused.status == status and ("memory" in refused.detail) == (status == 422)


# ---- connections ----


def opened(client, sent=b""):
    found = socket.create_connection(("127.0.0.1", client.port), timeout=10)
    found.sendall(sent)
    return found


def is_closed(connection):
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize(
    "sent", [b"", b"POST /predict HTTP/1.1\r\nHost: loc", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"]
)
def test_a_connection_without_a_request_is_closed(translator, monkeypatch, sent):
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.2)
    connection = opened(translator, sent)
    if sent.endswith(b"\r\n\r\n"):
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        connection.settimeout(10)
        while connection.recv(1000):
            pass
    else:
        assert is_closed(connection)


def test_many_idle_connections_keep_nobody_out(translator, monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 20)
    idle = [opened(translator, b"POST /predict HTTP/1.1\r\nHost: loc"[: n % 30]) for n in range(60)]
    assert translator.ask(text="a") and len(translator.connections) <= 21
    assert is_closed(idle[0])
    for connection in idle:
        connection.close()


def test_answers_that_nobody_reads_keep_nobody_out(translator, monkeypatch):
    """Of many requests on each connection, one of which then waits for the client to read the earlier answers."""
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 2)
    deaf = []
    for _ in range(3):
        deaf.append(socket.socket())
        deaf[-1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        deaf[-1].connect(("127.0.0.1", translator.port))
        deaf[-1].settimeout(0.5)
        with suppress(OSError):  # until its answers, and then its requests, fill all buffers
            while True:
                deaf[-1].sendall(b"GET /info HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500)
        assert translator.ask(text="a") and len(translator.connections) <= 3  # while they are still being answered
    assert any(all(each.flow.write_paused for each in [*translator.connections]) or time.sleep(0.1) for _ in range(600))
    assert translator.ask(text="a") and len(translator.connections) <= 3
    monkeypatch.setattr(connections, "READING_SECONDS", 0.1)  # now they are closed even if there are few
    assert any(not translator.connections or time.sleep(0.1) for _ in range(100))
    for connection in deaf:
        connection.close()


def test_headers_have_a_limit(translator):
    connection = opened(translator)
    sent = 0
    try:
        connection.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nX: ")
        while sent < 2**26:
            connection.sendall(b"x" * 2**16)
            sent += 2**16
    except (ConnectionError, TimeoutError):
        pass
    assert sent < 2**24
    assert translator.ask(text="a")


def test_headers_that_arrive_at_once_have_the_same_limit(translator):
    assert translator.send('{"text": "a"}', X="x" * 16_000).status == 200
    answer = translator.send('{"text": "a"}', X="x" * 8_000, Y="y" * 8_384)
    assert (answer.status, answer.body["detail"]) == (431, "the headers are larger than the limit of 16,384 bytes")


def test_a_request_that_breaks_off_is_given_up(folders, monkeypatch):
    with serving(folders["translator"]) as client:
        run, gate = client.api.form.run, threading.Event()
        monkeypatch.setattr(client.api.form, "run", lambda items, **options: (gate.wait(20), run(items, **options))[1])
        body = json.dumps({"texts": TEXTS[:4], "beam_size": 16}).encode()
        head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        connection = opened(client, head + body)
        while not client.endpoint.waiting:
            time.sleep(0.01)
        connection.close()
        assert any(not client.endpoint.waiting or time.sleep(0.02) for _ in range(200))
        gate.set()
        assert client.ask(text="a") and client.endpoint.held == {}


# ---- who may ask ----


def test_pages_of_others_cannot_ask_through_a_browser(translator):
    text = '{"text": "a"}'
    for host in ("localhost", "127.0.0.1:80", "[::1]:8000", "192.168.0.7", "LOCALHOST:1"):
        assert translator.send(text, Host=host).status == 200
    for host in ("evil.com", "localhost.evil.com:8000", "127.0.0.1.evil.com", "[::1", "x"):
        for method, path in (("POST", "/predict"), ("GET", "/info"), ("GET", "/health")):
            answer = translator.send(text if method == "POST" else None, method, path, Host=host)
            assert answer.status == 403 and "allow that name with --allow-host" in answer.body["detail"]
    assert translator.send(text, Host="localhost:8000", Origin="http://localhost:8000").status == 200
    for origin in ("http://evil.com", "http://localhost:3000", "null", "http://localhost:8000.evil.com", "http://["):
        answer = translator.send(text, Host="localhost:8000", Origin=origin)
        assert answer.status == 403 and "may not call this server" in answer.body["detail"]


def test_other_names_and_pages_can_be_allowed(folders):
    with serving(folders["translator"], hosts=["Zoo.example"], key="ä secret") as client:
        key = {"X_API_Key": "ä secret".encode().decode("latin-1")}
        assert client.send('{"text": "a"}', Host="zoo.example", Origin="https://zoo.example", **key).status == 200
        assert client.send('{"text": "a"}', Host="other.example", **key).status == 403
        for wrong in ({}, {"X_API_Key": ""}, {"X_API_Key": "secret"}):
            assert client.send('{"text": "a"}', **wrong).status == 401
        page = {"Host": "zoo.example", "Origin": "https://zoo.example"}
        asks = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "content-type,x-api-key"}
        for path in ("/predict", "/info"):  # browsers ask first, without the key
            answer = client.send(None, "OPTIONS", path, **page, **asks)
            assert answer.status == 200 and answer.headers["Access-Control-Allow-Origin"] == "https://zoo.example"
            assert answer.headers["Access-Control-Allow-Headers"] == "Content-Type, X-API-Key"
        for sent in (key, {}):  # the page may read a refusal, too
            answer = client.send('{"text": "a"}', **page, **sent)
            assert answer.status == (200 if sent else 401)
            assert answer.headers["Access-Control-Allow-Origin"] == "https://zoo.example"
        answer = client.send(None, "OPTIONS", "/predict", Host="zoo.example", Origin="http://evil.com", **asks)
        assert answer.status == 403 and "Access-Control-Allow-Origin" not in answer.headers
    with serving(folders["translator"], hosts=["*"]) as client:
        assert client.send('{"text": "a"}', Host="any.example", Origin="http://evil.com").status == 200


# ---- memory ----


def test_what_is_refused_is_not_remembered(translator):
    assert translator.ask(text="a")  # the first answer looks up the frequent words of languages
    words = translator.api.form.model.src_tokenizer._ids
    before = len(words)
    for n in range(20):
        assert translator.send(json.dumps({"text": " ".join(f"w{n}x{i}" for i in range(100))})).status == 422
        assert translator.send(json.dumps({"text": f"{n}" * 500})).status in (200, 422)
    assert len(words) == before


def test_a_large_body_takes_nobody_elses_place(folders, monkeypatch):
    monkeypatch.setattr(endpoint, "MAX_WAITING_BYTES", 10_000)
    with serving(folders["translator"]) as client:
        head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15000\r\n\r\n"
        large = [opened(client, head + b"x" * 9_000) for _ in range(3)]
        assert client.ask(text="a")
        large[2].settimeout(10)
        assert b" 503 " in large[2].recv(100)
        for connection in large:
            connection.close()


def test_json_has_a_limit_of_parts(monkeypatch):
    monkeypatch.setattr(endpoint, "MAX_JSON_PARTS", 10)
    assert endpoint.parse(b'{"a": [1, 2]}') == {"a": [1, 2]}
    with pytest.raises(Refused) as refused:
        endpoint.parse(b'{"a": [' + b"[]," * 10 + b"[]]}")
    assert refused.value.status == 413 and "commas and brackets" in refused.value.detail
