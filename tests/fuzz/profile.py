"""How many random inputs are tried: 50, always the same, or others of ``CASRNN_FUZZ``'s number."""

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
