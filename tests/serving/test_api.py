"""The API over HTTP: what it answers, refuses and counts."""

import asyncio
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.serving.batching import Batcher
from fairseq_casrnn.serving.predict_request import PredictRequest

from .common import ROLES, Echo, ask, golden, metrics, send, serving, wait_for


@pytest.fixture(scope="module")
def url():
    with serving(Echo(), name="echo", max_characters=50) as url:
        yield url


@pytest.mark.parametrize("role", ROLES)
def test_each_kind_of_model(role, tmp_path):
    predictor = golden(role, tmp_path)
    with serving(predictor, name=role) as url:
        _, _, body = send(url, "/model")
        description = json.loads(body)
        assert description["name"] == role
        assert description["kind"] == predictor.kind
        assert description["parameters"] > 100
        assert description["pairs"] == (role == "sentence_encoder")
        question = {"text": "the film", **({"pair": "a film"} if description["pairs"] else {})}
        status, plain = ask(url, question)
        assert status == 200
        assert plain.pop("kind") == predictor.kind
        translates = predictor.kind == "translator"
        assert ask(url, {**question, "nbest": 2})[0] == (200 if translates else 422)
        status, explained = ask(url, {**question, "explain": True})
        assert status == 200
        assert plain.items() <= explained.items()


BAD = [
    (b"", 400, "the body is not JSON"),
    (b"{", 400, "the body is not JSON"),
    (b'"text"', 400, "the body is not a JSON object"),
    (b"[1]", 400, "the body is not a JSON object"),
    (b'{"text": "caf\xe9"}', 400, "the body is not JSON"),
    (b'{"text": "\\ud800"}', 400, "half of a surrogate pair"),
    (b"[" * 50_000, 400, "nested too deeply"),
    (b'{"text": ' + b"9" * 5000 + b"}", 400, "is too large"),
    (b"{}", 422, 'the field "text" is missing; add it'),
    (b'{"text": 1}', 422, "text must be a string"),
    (b'{"text": null}', 422, "text must be a string"),
    (b'{"text": "a", "explain": 1}', 422, "explain must be true or false"),
    (b'{"text": "a", "nbest": true}', 422, "nbest must be an integer"),
    (b'{"text": "a", "nbest": 0}', 422, "nbest is 0; it must be from 1 to 10"),
    (b'{"text": "a", "nbest": 11}', 422, "nbest is 11; it must be from 1 to 10"),
    (b'{"text": "a", "pair": "b"}', 422, "this model takes single texts; drop pair"),
    (b'{"text": "a", "\\u001b[2J": 1}', 422, r"there is no field '\x1b[2J'"),
    (json.dumps({"text": "a" * 51}).encode(), 422, "text has 51 characters, and 50 are allowed"),
    (b" " * 65_537, 413, "the body has more than 65536 bytes; send less"),
    (b" " * 2_000_000, 413, "the body has more than 65536 bytes; send less"),
]


@pytest.mark.parametrize(("body", "status", "error"), BAD, ids=range(len(BAD)))
def test_bad_requests(url, body, status, error):
    found, answer = ask(url, body)
    assert found == status
    assert set(answer) == {"error"}
    assert error in answer["error"]
    assert ask(url, {"text": "a" * 50})[1]["label"] == "a" * 50


def test_pairs_need_two_texts():
    class Pairs(Echo):
        pairs = True

    with serving(Pairs()) as url:
        assert ask(url, {"text": "a", "pair": "b"})[0] == 200
        status, answer = ask(url, {"text": "a"})
        assert (status, answer["error"][:33]) == (422, "this model compares two sentences")
        assert ask(url, {"text": "a", "pair": ["b"]})[1]["error"] == "pair must be a string"


def test_models_with_a_single_answer():
    class Single(Echo):
        most_hypotheses = None

    with serving(Single()) as url:
        assert ask(url, {"text": "a", "nbest": 1})[0] == 200
        for nbest in (0, 2):
            status, answer = ask(url, {"text": "a", "nbest": nbest})
            assert (status, answer["error"]) == (
                422,
                "this model gives a single answer; drop nbest",
            )


values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
names = st.sampled_from(["text", "pair", "explain", "nbest"]) | st.text()
bodies = st.binary() | st.dictionaries(names, values).map(lambda v: json.dumps(v).encode())


@given(bodies)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_body_has_an_answer_or_an_explanation(url, body):
    status, answer = ask(url, body)
    assert status in (200, 400, 422)
    assert ("error" in answer) == (status != 200)


def test_other_requests(url):
    for method, path, status in (
        ("GET", "/predict", 405),
        ("POST", "/model", 405),
        ("GET", "/none", 404),
        ("GET", "/../../etc/passwd", 404),
    ):
        found, _, body = send(url, path, method=method)
        assert found == status
        assert "error" in json.loads(body)
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        status, answer = ask(url, {"text": "a"}, headers={"Content-Type": kind})
        assert (status, answer["error"][:9]) == (415, "send JSON")
    assert ask(url, {"text": "a"}, headers={"Content-Type": "application/json; charset=utf-8"})
    assert json.loads(send(url, "/health")[2]) == {"status": "ok", "model": "echo"}


def test_other_host_names_are_refused(url):
    """Otherwise a page whose host name resolves to 127.0.0.1 could read the answers."""
    assert send(url, "/", headers={"Host": "attacker.example"})[0] == 400
    assert send(url, "/", headers={"Host": "localhost:1"})[0] == 200
    with serving(Echo(), hosts=()) as open_to_all:
        assert send(open_to_all, "/", headers={"Host": "host.example"})[0] == 200


def test_page_runs_only_its_own_script(url):
    status, headers, page = send(url, "/")
    assert status == 200
    assert page.startswith(b"<!DOCTYPE html>")
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "script-src 'sha256-" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert b"http:" not in page
    assert b"https:" not in page


def test_disconnecting_client(url):
    with socket.create_connection(urlsplit(url).netloc.split(":")) as client:
        client.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n")
        client.sendall(b"Content-Type: application/json\r\n\r\n{")
    assert ask(url, {"text": "a"}) == (200, {"kind": "classifier", "label": "a"})
    wait_for(lambda: metrics(url).get(("casrnn_requests_total", "/predict", "400"), 0) >= 1)
    assert ("casrnn_requests_total", "/predict", "500") not in metrics(url)


def test_body_that_never_arrives(monkeypatch, url):
    monkeypatch.setattr("fairseq_casrnn.serving.app.BODY_TIMEOUT", 0.1)
    with socket.create_connection(urlsplit(url).netloc.split(":"), timeout=30) as client:
        client.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n")
        client.sendall(b"Content-Type: application/json\r\n\r\n{")
        answer = b""
        while b"0.1 seconds" not in answer and (part := client.recv(4096)):
            answer += part
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"the body did not arrive within 0.1 seconds" in answer


class Blocked(Echo):
    """Answers requests once ``released`` is set."""

    def __init__(self):
        super().__init__()
        self.released, self.batches = threading.Event(), []

    def predict(self, requests):
        self.released.wait(60)
        self.batches.append(len(requests))
        return super().predict(requests)


def test_concurrent_requests_are_batched():
    blocked, count = Blocked(), 200
    with serving(blocked, batch_size=64) as url, ThreadPoolExecutor(count) as clients:
        texts = [f"text {number}" for number in range(count)]
        answers = clients.map(lambda text: ask(url, {"text": text}), texts)
        waiting = ("casrnn_waiting_requests",)
        # All requests wait except those in the first batch.
        wait_for(lambda: metrics(url)[waiting] >= count - 64)
        blocked.released.set()
        for text, (status, answer) in zip(texts, answers, strict=True):
            assert (status, answer["label"]) == (200, text)
        assert sum(blocked.batches) == count
        assert max(blocked.batches) == 64
        found = metrics(url)
        assert found["casrnn_requests_total", "/predict", "200"] == count
        assert found["casrnn_batch_size_sum",] == count
        assert found["casrnn_batch_size_count",] == len(blocked.batches)
        assert found["casrnn_request_seconds_count", "/predict"] == count


def test_too_many_waiting_requests(monkeypatch):
    monkeypatch.setattr("fairseq_casrnn.serving.batching.MAX_WAITING", 3)
    blocked = Blocked()
    with serving(blocked, batch_size=1) as url, ThreadPoolExecutor(4) as clients:
        first = clients.submit(ask, url, {"text": "a"})
        wait_for(lambda: metrics(url)["casrnn_batch_size_count",] == 1)
        rest = [clients.submit(ask, url, {"text": "b"}) for _ in range(3)]
        wait_for(lambda: metrics(url)["casrnn_waiting_requests",] == 3)
        status, headers, body = send(url, "/predict", b'{"text": "c"}')
        assert (status, headers["Retry-After"]) == (503, "1")
        assert json.loads(body)["error"].startswith("3 requests wait already")
        blocked.released.set()
        assert [one.result()[0] for one in [first, *rest]] == [200] * 4


class Failing(Blocked):
    """Fails for a batch that contains certain texts."""

    def predict(self, requests):
        texts = [request.text for request in requests]
        if "known" in texts:
            raise UserError("the model's outputs are not finite; use another checkpoint")
        if "unknown" in texts:
            raise ZeroDivisionError
        return super().predict(requests)


def test_a_failing_request_does_not_affect_others():
    failing = Failing()
    with serving(failing) as url, ThreadPoolExecutor(4) as clients:
        first = clients.submit(ask, url, {"text": "first"})
        wait_for(lambda: metrics(url)["casrnn_batch_size_count",] == 1)
        texts = ("known", "good", "unknown")
        rest = [clients.submit(ask, url, {"text": text}) for text in texts]
        wait_for(lambda: metrics(url)["casrnn_waiting_requests",] == 3)
        failing.released.set()
        known, good, unknown = (one.result() for one in rest)
    assert first.result()[0] == good[0] == 200
    assert known[0] == 422
    assert known[1]["error"].startswith("the model's outputs are not finite")
    assert unknown == (500, {"error": "the server failed; its log says why"})


def test_requests_of_disconnected_clients_are_dropped():
    asked, sizes = [], []

    def predict(requests):
        asked.extend(request.text for request in requests)
        return [{} for _ in requests]

    async def main():
        batcher = Batcher(predict, 8, sizes.append)
        gone, waits = (
            asyncio.create_task(batcher.submit(PredictRequest(text))) for text in ("a", "b")
        )
        await asyncio.sleep(0)
        gone.cancel()
        async with batcher.running():
            await waits

    asyncio.run(main())
    assert (asked, sizes) == (["b"], [1])
