"""The commands that :mod:`gpu` runs, by section, and commands that compile their kernels first.

Each function in ``SECTIONS`` takes a data-bin of sentence pairs (empty without fairseq), a folder
for plots, and whether to use tiny sizes on the CPU, with which the tests run the commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

CELLS = ["stacked_lstm", "cas_lstm"]


class Command(NamedTuple):
    """A script of this folder with its options, and commands that compile the same kernels.

    Attributes:
        line: the script's name and its options.
        warming: commands that may run in parallel beforehand; their output is ignored.
    """

    line: list[str]
    warming: Sequence[list[str]] = ()


def check(data: str, out: Path, tiny: bool) -> list[Command]:
    """Every kernel compared with float64."""
    if tiny:
        return [Command(["agreement", "--tiny"])]
    # Without float64 kernels: nobody trains in float64 on a GPU, and they take half of the time.
    return [Command(["agreement", "--only", "^(?!.*float64)"])]


def layers(data: str, out: Path, tiny: bool) -> list[Command]:
    """Recurrent layers compared with cuDNN's nn.LSTM."""
    ways = [["--dtype", "bfloat16"], ["--precision", "high"], ["--precision", "highest"]]
    base = ["recurrent_layers", "--threads", "8", "--rounds", "15", "--engines", "triton,eager"]
    settings = ["256", "1024"]
    if tiny:
        base = ["recurrent_layers", "--rounds", "1", "--engines", "eager"]
        settings, ways = ["12"], ways[2:]
    found = []
    for setting, way in product(settings, ways):
        line = [*base, "--settings", setting, *way]
        warming = [[*line, "--rounds", "1", "--cells", cell] for cell in CELLS]
        found.append(Command([*line, "--cells", ",".join(CELLS)], warming))
    return found


def translation(data: str, out: Path, tiny: bool) -> list[Command]:
    """Training and beam search compared with fairseq's lstm."""
    base = ["translation", data, "--threads", "8", "--updates", "20", "--fast"]
    archs, dtypes = [f"{cell}_iwslt" for cell in CELLS], ["float32", "fp16"]
    if tiny:
        base = ["translation", data, "--rounds", "1", "--updates", "1", "--length", "2"]
        base += ["--max-tokens", "100", "--beam", "2"]
        archs, dtypes = ["cas_lstm_tiny"], dtypes[:1]
    found = []
    for dtype in dtypes:
        line = [*base, "--dtype", dtype]
        warming = [[*line, "--rounds", "1", "--archs", arch] for arch in archs]
        found.append(Command([*line, "--archs", ",".join(archs)], warming))
    return found


def language_models(data: str, out: Path, tiny: bool) -> list[Command]:
    """The second-order LSTM compared with fairseq's lstm_lm."""
    base = ["language_modeling", "--threads", "8", "--fast"]
    ways = [["--dtype", "float32"], ["--precision", "high"], ["--dtype", "fp16"]]
    if tiny:
        base = ["language_modeling", "--rounds", "1", "--updates", "1", "--streams", "2"]
        base += ["--steps", "3", "--archs", "second_order_lstm_lm_tiny"]
        ways = ways[:1]
    lines = [[*base, *way] for way in ways]
    return [Command(line, [[*line, "--rounds", "1"]]) for line in lines]


def sentence_state(data: str, out: Path, tiny: bool) -> list[Command]:
    """The sentence-state LSTM compared with a bidirectional nn.LSTM of two layers."""
    line = ["sentence_state", "--threads", "8", "--rounds", "9"]
    if tiny:
        line = ["sentence_state", "--rounds", "1", "--batch-size", "2", "--hidden-size", "4"]
        line += ["--steps", "2", "--lengths", "3"]
    return [Command(line, [[*line, "--rounds", "1"]])]


def cold_start(data: str, out: Path, tiny: bool) -> list[Command]:
    """Time to the 20th update including compilation, so nothing is compiled beforehand."""
    if tiny:
        options = ["--archs", "cas_lstm_tiny", "--updates", "2", "--max-tokens", "100"]
        return [Command(["cold_start", data, *options])]
    ways = [("lstm", "float32"), ("cas_lstm_iwslt", "float32"), ("cas_lstm_iwslt", "fp16")]
    return [
        Command(["cold_start", data, "--archs", arch, "--dtype", dtype]) for arch, dtype in ways
    ]


SECTIONS = {
    "check": check,
    "layers": layers,
    "translation": translation,
    "language_models": language_models,
    "sentence_state": sentence_state,
    "cold_start": cold_start,
}
WITH_FAIRSEQ = {"translation", "language_models", "cold_start"}
