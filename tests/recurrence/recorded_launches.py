"""Launches kernels through Triton's launcher and a CUDA driver that only records them.

A program of its own, since it replaces libcuda in its process: ``python recorded_launches.py
LIBCUDA`` with recording_driver.c compiled as LIBCUDA. Prints the names of the kernels. Fails if a
launch does not get the grid and arguments that :func:`launching.run` was given, the first time,
when Triton looks the kernel up, or later, when it is launched directly.
"""

import ctypes
import re
import struct
import sys
from pathlib import Path
from unittest import mock

import torch
import triton
from triton.backends.nvidia import driver

from fairseq_casrnn.layers import CASLSTM, SentenceStateLSTM
from fairseq_casrnn.recurrence.decoder import DecoderLayer
from fairseq_casrnn.recurrence.triton import ahead, beam, cross_entropy, launching, support

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from compiling import NoGPU

MOST = 512  # arguments that the driver records
BYTES = {"64": 8, "32": 4, "16": 2, "8": 1}
SIZE, BATCH = 32, 16
libcuda = ctypes.CDLL(sys.argv[1])
original = launching.run
launched = []


class Driver(NoGPU):
    """With Triton's utilities and launcher, which call libcuda."""

    def __init__(self):
        self.utils, self.launcher_cls = driver.CudaUtils(), driver.CudaLauncher


def as_bits(value, kind: str) -> int:
    """An argument as the driver gets it; ``kind`` is Triton's name of its type."""
    if kind.startswith("*"):
        return 0 if value is None else value.data_ptr()
    if kind == "fp32":
        return int.from_bytes(struct.pack("<f", value), "little")
    return value % 2 ** int(kind.removeprefix("i"))


def expected(kernel, arguments: dict) -> list[int]:
    """The arguments of a compiled kernel; constants are not among them."""
    values = [arguments[name] for name in kernel.src.fn.arg_names]
    return flat_bits(values, kernel.src.signature.values())


def flat_bits(values, kinds) -> list[int]:
    """Values of these types as the driver gets them; tuples are nested in both."""
    bits = []
    for value, kind in zip(values, kinds, strict=True):
        if isinstance(kind, tuple):
            bits += flat_bits(value, kind)
        elif kind != "constexpr":
            bits.append(as_bits(value, kind))
    return bits


def run(kernel, grid, /, **arguments) -> None:
    """In place of :func:`launching.run`: launches three times and compares."""
    compiled = kernel.warmup(grid=grid, **launching.with_constants(kernel, arguments))
    ptx = compiled.asm["ptx"]
    parameters = ptx[ptx.index(".entry") :].partition(")")[0]
    sizes = [BYTES[bits] for bits in re.findall(r"\.param \.[a-z](\d+)", parameters)]
    libcuda.expect_arguments(len(sizes), (ctypes.c_int * len(sizes))(*sizes))
    wanted = expected(compiled, arguments)
    assert len(sizes) == len(wanted) + 2  # two for scratch memory, which no kernel needs
    for _ in range(3):
        original(kernel, grid, **arguments)
        values, sides = (ctypes.c_ulonglong * MOST)(), (ctypes.c_uint * 3)()
        assert libcuda.last_launch(values, sides) == 1
        assert list(values[: len(sizes)]) == [*wanted, 0, 0], compiled.name
        assert tuple(sides) == (*grid, 1, 1)[:3]
    launched.append(compiled.name)


def launch_everything() -> None:
    """Launch kernels of layers, decoder, beam search and loss, whose tensors hold nothing."""
    x, lengths = torch.zeros(2, BATCH, SIZE), torch.full((BATCH,), 2)
    for layer in (
        CASLSTM(SIZE, SIZE, num_layers=2, lam="trainable", engine="triton"),
        SentenceStateLSTM(SIZE, SIZE, num_steps=2, engine="triton"),
    ):
        output, _ = layer(x, lengths=lengths)
        output.sum().backward()
    stack = CASLSTM(2 * SIZE, SIZE, num_layers=2)
    decoder = [
        DecoderLayer(cell, *stack.layer_parameters(k), None) for k, cell in enumerate(stack.cells)
    ]
    with torch.no_grad():
        ahead.launch_decoder(decoder, SIZE, torch.zeros(SIZE, SIZE), BATCH, (True, True))
        cross_entropy.launch_rows(torch.zeros(4, 50))
        scores = torch.zeros(6, 50)
        beam.add_scores(scores, scores[:, 0].clone(), scores.clone(), {0: 1.0, 2: -0.5})
        flags, counts = torch.zeros(2, 3, dtype=torch.bool), torch.zeros(2, dtype=torch.int64)
        beam.choose(scores[:2, :6], torch.zeros(2, 6, dtype=torch.int64), flags, counts, 2, 50)


def main() -> None:
    """Run everything and print the names of the kernels."""
    triton.runtime.driver.set_active(Driver())
    take_cpu_tensors = mock.patch.object(support, "interpreting", return_value=True)
    with take_cpu_tensors, mock.patch.object(launching, "run", run):
        launch_everything()
    print(*launched)


main()
