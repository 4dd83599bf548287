"""Compile times of the layers' Triton kernels, and their registers and shared memory.

    python benchmarks/compiling.py [--sizes 256,1024] [--cells cas_lstm] [--precisions bf16,tf32]

Prints a Markdown table. Every kernel is compiled for an H100 or H200 (sm_90) with an empty cache;
no GPU is needed. Seconds are CPU time, so that other processes matter little; the first kernel
takes half a second more. ``stack`` is the size of spilled registers in bytes per thread. The layer
is an upper one, which reads the cell state below; the decoder has two layers, attention and input
feeding.

--batch and --steps set the shape of the input; the batch size decides the height of the tiles.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import subprocess
import tempfile
from pathlib import Path
from unittest import mock

import machine
import torch
import triton
from triton.backends.compiler import GPUTarget

from fairseq_casrnn import layers, recurrence
from fairseq_casrnn.cells import FAMILIES
from fairseq_casrnn.recurrence.decoder import DecoderLayer
from fairseq_casrnn.recurrence.triton import ahead
from fairseq_casrnn.recurrence.triton import support as triton_support

PRECISIONS = {  # dtype, and torch's precision of products in float32
    "bf16": (torch.bfloat16, "highest"),
    "fp16": (torch.float16, "highest"),
    "tf32": (torch.float32, "high"),
    "float32": (torch.float32, "highest"),
}
COLUMNS = ["kernel", "cell", "H", "precision", "seconds", "of which ptxas", "lines of PTX"]
COLUMNS += ["registers", "stack", "shared memory, KB"]


class NoGPU:
    """A stand-in for Triton's driver that suffices to compile for an H100 or H200."""

    def get_current_target(self):
        """A GPU of compute capability 9.0."""
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        """A number that no GPU has, since Triton caches kernels by device."""
        return -1

    def get_current_stream(self, device):
        """The default stream; nothing is launched."""
        return 0


def resources(kernel) -> tuple[int, int]:
    """Registers and bytes of stack per thread of a compiled kernel."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        command = [str(tool), "--dump-resource-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(rf"Function {kernel.name}:\s*REG:(\d+) STACK:(\d+)", text)
    return int(found[1]), int(found[2])


def seconds_used() -> float:
    """CPU time of this process and its finished children, in seconds."""
    return sum(os.times()[:4])


class Compiled:
    """Collects compiled kernels and their compile times, until :meth:`take` returns them."""

    def __init__(self):
        self.rows, self.names, self.stages, self.original = [], set(), {}, triton.JITFunction.run

    def listen(self, *, times, **_) -> None:
        """Called by Triton after each compilation, with its times in microseconds."""
        self.stages = {name: spent / 1e6 for name, spent in times.lowering_stages}

    def run(self, kernel, *args, warmup, **kwargs):
        """Replaces a launch: compile the kernel and record its time."""
        start, self.stages = seconds_used(), {}
        binary = self.original(kernel, *args, warmup=True, **kwargs)
        if self.stages:
            self.rows.append((binary, seconds_used() - start, self.stages))

    def take(self) -> list[tuple]:
        """Each compiled kernel with its seconds in all and by stage."""
        rows, self.rows = self.rows, []
        return rows


def train(name: str, size: int, dtype: torch.dtype, batch: int, steps: int) -> None:
    """Compile the forward and backward of the upper one of two layers."""
    cell = layers.build(name, 1, 1, 2).cells[1]
    weight = torch.zeros(cell.hh_blocks * size, size, dtype=dtype, requires_grad=True)
    state = weight.detach().new_zeros(batch, size)
    gx = state.new_zeros(steps, batch, cell.ih_blocks * size)
    reads = {}
    if cell.lower_cell:
        lower_c = state.new_zeros(steps, batch, size, dtype=torch.float32)
        reads["lower_c"] = lower_c.requires_grad_()
    if cell.num_cells:
        reads["mixture"] = state.new_zeros(steps, batch, cell.num_cells).requires_grad_()
    params = [state.new_zeros(*([] if n is None else [n]), size) for _, n in cell.params]
    params = [p.requires_grad_() for p in params]
    c0 = state if cell.has_cell else None
    hs, *_ = recurrence.run("triton", cell, gx, weight, state, c0, **reads, params=params)
    hs.sum().backward()


def decode(name: str, size: int, dtype: torch.dtype, batch: int) -> None:
    """Compile the forward and backward of a translation decoder."""
    stack = layers.build(name, 2 * size, size, 2).to(dtype)
    decoder = [
        DecoderLayer(cell, *stack.layer_parameters(k), getattr(stack, f"attention_l{k}", None))
        for k, cell in enumerate(stack.cells)
    ]
    weight_out = torch.zeros(size, size, dtype=dtype)
    temperature = stack.temperature if stack.cells[0].num_cells else None
    with torch.no_grad():
        ahead.launch_decoder(decoder, size, weight_out, batch, (True, True), temperature)


def measure(size: int, precision: str, name: str, args, compiled: Compiled) -> None:
    """Print a line for each kernel of a layer and of a decoder."""
    dtype, products = PRECISIONS[precision]
    torch.set_float32_matmul_precision(products)
    train(name, size, dtype, args.batch, args.steps)
    decode(name, size, dtype, args.batch)
    for kernel, seconds, stages in compiled.take():
        registers, stack = resources(kernel)
        lines, shared = kernel.asm["ptx"].count("\n"), kernel.metadata.shared / 1024
        row = [kernel.name, name, size, precision, f"{seconds:.1f}", f"{stages['cubin']:.1f}"]
        row += [f"{lines:,}", registers, stack, f"{shared:.0f}"]
        print(f"| {' | '.join(map(str, row))} |", flush=True)


def sizes(text: str) -> list[int]:
    """Comma-separated hidden sizes, for argparse."""
    return [machine.positive(part) for part in text.split(",")]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", type=sizes, default=[256, 1024], help="of the hidden state")
    parser.add_argument("--cells", type=machine.names_of(FAMILIES), default=["cas_lstm"])
    precisions = machine.names_of(PRECISIONS)
    parser.add_argument("--precisions", type=precisions, default=list(PRECISIONS))
    parser.add_argument("--batch", type=machine.positive, default=64)
    parser.add_argument("--steps", type=machine.positive, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(machine.table(COLUMNS, []), end="")
    compiled = Compiled()
    triton.runtime.driver.set_active(NoGPU())
    triton.knobs.compilation.listener = compiled.listen
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(triton_support, "interpreting", return_value=True),
        mock.patch.object(triton.JITFunction, "run", lambda *a, **kw: compiled.run(*a, **kw)),
    ):
        triton.knobs.cache.dir = folder
        for job in itertools.product(args.sizes, args.precisions, args.cells):
            measure(*job, args, compiled)


if __name__ == "__main__":
    main()
