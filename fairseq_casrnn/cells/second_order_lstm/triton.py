"""The second-order LSTM in Triton: the engine's kernels mix S of these LSTM cells."""

from __future__ import annotations

from ..stacked_lstm.triton import backward, forward

KERNELS = {"second_order_lstm": (forward, backward)}
