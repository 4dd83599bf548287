"""The number of random inputs: 50 that are always the same, or ``CASRNN_FUZZ`` random ones."""

import os

from hypothesis import HealthCheck, settings

INPUTS = int(os.environ.get("CASRNN_FUZZ", "50"))
PROFILE = settings(
    max_examples=INPUTS,
    derandomize=INPUTS <= 50,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
