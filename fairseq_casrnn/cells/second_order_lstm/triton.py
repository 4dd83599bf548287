"""The second-order LSTM in Triton: its kernels mix S of these LSTM cells themselves."""

from __future__ import annotations

from ..stacked_lstm.triton import backward, forward

KERNELS = {"second_order_lstm": (forward, backward)}
