"""The Prometheus metrics of ``GET /metrics``."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Metrics of one server."""

    media_type = CONTENT_TYPE_LATEST

    def __init__(self):
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "casrnn_requests", "Requests answered.", ["path", "status"], registry=registry
        )
        self.seconds = Histogram(
            "casrnn_request_seconds",
            "Seconds from a request to its answer.",
            ["path"],
            buckets=SECONDS,
            registry=registry,
        )
        self.batch_size = Histogram(
            "casrnn_batch_size",
            "Requests that the model answered together.",
            buckets=BATCH_SIZES,
            registry=registry,
        )
        self.waiting = Gauge(
            "casrnn_waiting_requests", "Requests that the model has not begun.", registry=registry
        )

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)
