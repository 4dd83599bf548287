"""A server on loopback in this process, and functions that send it requests."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

pytest.importorskip("starlette")
pytest.importorskip("prometheus_client")
uvicorn = pytest.importorskip("uvicorn")

from helpers import unpack_golden  # noqa: E402
from prometheus_client.parser import text_string_to_metric_families  # noqa: E402

from fairseq_casrnn.serving.app import Settings, make_app  # noqa: E402
from fairseq_casrnn.serving.command import open_listener  # noqa: E402
from fairseq_casrnn.serving.loading import load  # noqa: E402
from fairseq_casrnn.serving.predictors import Predictor  # noqa: E402

ROLES = ("sentence_encoder", "tagger", "translation", "language_model")
JSON = {"Content-Type": "application/json"}


def unpack(role, folder):
    """Unpack the golden checkpoint of a role; return the options to serve it with."""
    unpack_golden(f"{role}.tar.xz", folder)
    return options(path=folder / "out", data=str(folder / "data"))


def options(**given):
    """Return the command's options that choose the model."""
    return SimpleNamespace(
        **{"data": None, "beam": 5, "tokenizer": None, "bpe_codes": None} | given
    )


def golden(role, folder):
    return load(unpack(role, folder))


class Echo(Predictor):
    """A classifier that returns the text of each request as its label."""

    kind = "classifier"
    most_hypotheses = 10

    def __init__(self):
        import torch

        self.model = torch.nn.Linear(1, 1)

    def predict(self, requests):
        return [{"label": question.text} for question in requests]


@contextlib.contextmanager
def serving(predictor, **settings):
    """Serve ``predictor``; yields the server's address."""
    with open_listener("127.0.0.1", 0) as listener:
        app = make_app(predictor, Settings(**settings))
        config = uvicorn.Config(
            app, log_config=None, log_level="critical", timeout_graceful_shutdown=5
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield "http://{}:{}".format(*listener.getsockname()[:2])
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


def send(url, path, body=None, headers=JSON, method=None):
    """Return (status, headers, body) of a request, which is a POST if it has a body."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        method = method or ("GET" if body is None else "POST")
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def ask(url, body, **kwargs):
    """Return (status, answer) of POST /predict; a ``dict`` is sent as JSON."""
    body = json.dumps(body).encode() if isinstance(body, dict) else body
    status, _, answer = send(url, "/predict", body, **kwargs)
    return status, json.loads(answer)


def metrics(url):
    """Return the values of GET /metrics by name and labels."""
    _, _, text = send(url, "/metrics")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def wait_for(condition):
    """Wait until ``condition()`` is true, for at most a minute."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
