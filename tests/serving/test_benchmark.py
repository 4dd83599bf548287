"""The load test notices lost and refused requests."""

import importlib.util
import sys
from pathlib import Path

from fairseq_casrnn.serving.predict_request import BadRequest

from .common import Echo, serving

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


class Refusing(Echo):
    def predict(self, requests):
        raise BadRequest("no")


def test_load_test(monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])  # for the script's own imports
    spec = importlib.util.spec_from_file_location("load_test", BENCHMARKS / "serving.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    body = b'{"text": "a lovely film"}'
    for predictor, fine in ((Echo(), True), (Refusing(), False)):
        with serving(predictor) as url:
            assert module.measure(url.removeprefix("http://"), body, 5, 500) == fine
    assert not module.measure("127.0.0.1:9", body, 1, 20)  # no server listens there
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.endswith("answers by status: {200: 475, 400: 15, 422: 10}")
    assert second.endswith("{400: 15, 422: 485}")
    assert third.endswith("{0: 20}")
