"""Records the gates and the routing of a model's recurrent layers while it reads a data set."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fairseq_casrnn.errors import UserError

OUTPUT_GATE, LOWER_CELL_GATE = 3, 4  # the order is i f g o and, above the bottom, v or d


@dataclass
class LayerTrace:
    """One sentence in one layer and direction.

    Attributes:
        layer: 0 for the bottom layer.
        direction: "" or "_reverse"; with the latter, the first step is the last word.
        gates: ``(T, ih_blocks, H)``, activated, in the cell's order.
        weights: ``(T, S)``, softmax over the cells of a mixture at the model's temperature, or
            None.
        cells: ``(T,)``, the chosen cell of a mixture, or None.
    """

    layer: int
    direction: str
    gates: Any
    weights: Any = None
    cells: Any = None


def recurrent_stacks(model, kind: type | None = None) -> list:
    """The recurrent stacks that read whole sentences: of a translation model, the encoder's."""
    from fairseq_casrnn.layers import RecurrentStack

    part = model.encoder if hasattr(model, "encoder") else model
    return [module for module in part.modules() if isinstance(module, kind or RecurrentStack)]


def trace_sentences(
    model, task, data, subset: str, count: int, seed: int | None = 1
) -> Iterator[tuple[list, list[list[LayerTrace]]]]:
    """Run ``model`` on sentences one at a time and record its recurrent stacks.

    Args:
        model, task: of :func:`.load_model`.
        data: the data folder.
        subset: the split.
        count: number of sentences; all if there are fewer.
        seed: for choosing them at random; None for the first ones.

    Yields:
        For each sentence or pair: its rows of tokens, one per sentence of a pair, and for each row
        the traces of all layers and directions.

    Raises:
        UserError: there is no such split.
    """
    import torch

    run, size = sentence_runner(model, task, data, subset)
    chosen: Sequence[int] = range(min(count, size))
    if seed is not None:
        chosen = sorted(random.Random(seed).sample(range(size), min(count, size)))
    with record_gates(recurrent_stacks(model)) as traces:
        for index in chosen:
            traces.clear()
            with torch.no_grad():
                rows = run(index)
            yield rows, group_by_sentence(traces)


def group_by_sentence(traces: list[LayerTrace]) -> list[list[LayerTrace]]:
    """The traces of each of several sentences that were read one by one."""
    groups: list[list[LayerTrace]] = []
    for trace in traces:
        if trace.layer == 0 and not trace.direction:
            groups.append([])
        groups[-1].append(trace)
    return groups


def sentence_runner(model, task, data, subset: str) -> tuple[Callable[[int], list], int]:
    """A function that runs the model on the sentence of an index, and the number of sentences.

    The function returns the rows of tokens that the model read.

    Raises:
        UserError: there is no such split.
    """
    from fairseq.models import FairseqLanguageModel

    from fairseq_casrnn.diagnostics.explain import explained
    from fairseq_casrnn.inference.lm_inputs import padded, read_sentences, reads_bos

    if isinstance(model, FairseqLanguageModel):
        dictionary = task.source_dictionary
        sentences = read_sentences(data, subset, dictionary)
        device = next(model.parameters()).device

        def run_line(index):
            source, _ = padded([sentences[index]], dictionary, reads_bos(model))
            model.extract_features(source.to(device))
            return [source[0].tolist()]

        return run_line, len(sentences)
    with explained():
        if hasattr(task, "read"):  # without the augmentation of the training set
            dataset = task.read(subset)
        else:
            task.load_dataset(subset)
            dataset = task.dataset(subset)

    def run(index):
        net_input = dataset.collater([dataset[index]])["net_input"]
        names = [name for name in ("src_tokens", "pair_tokens") if name in net_input]
        if "prev_output_tokens" in net_input:
            model.encoder(net_input["src_tokens"], net_input["src_lengths"])
        else:
            model(**net_input)
        return [net_input[name][0].tolist() for name in names]

    return run, len(dataset)


@contextlib.contextmanager
def record_gates(stacks) -> Iterator[list[LayerTrace]]:
    """While active, every layer of these stacks appends a :class:`LayerTrace` to the list.

    Only the first sentence of a batch is recorded. The stacks' outputs have no gradients meanwhile.
    """
    traces: list[LayerTrace] = []
    for stack in stacks:
        stack._run_layer = _recording_run_layer(stack, traces)
    try:
        yield traces
    finally:
        for stack in stacks:
            del stack._run_layer


def _recording_run_layer(stack, traces: list[LayerTrace]):
    """A replacement of ``stack._run_layer`` that records gates."""
    import torch
    import torch.nn.functional as F

    from fairseq_casrnn.recurrence import eager
    from fairseq_casrnn.recurrence.mixture import HardRouting
    from fairseq_casrnn.recurrence.reference import gather_last

    @torch.no_grad()
    def run_layer(k, direction, x, lower_c, state):
        cell, suffix, last = stack.cells[k], direction.suffix, direction.last
        if not cell.is_fused():
            raise UserError(
                f"the gates of {type(cell).__name__} cannot be recorded: it only has step, and "
                "they are recorded from forward_; give it forward_ and backward_"
            )
        w_ih, w_hh, bias, params = stack.layer_parameters(k, suffix)
        mixture = stack.mixture_weights(k, suffix, x, direction.tokens)
        if isinstance(mixture, HardRouting):
            mixture = mixture.weights(x.dtype)
        lower_c = lower_c if cell.lower_cell else None
        gates = F.linear(x, w_ih, bias).contiguous()
        reads = {"lower_c": lower_c, "mixture": mixture, "params": params}
        hs, cs, _ = eager.forward_(cell, gates, w_hh, *state, **reads)
        activated = gates[:, 0].unflatten(-1, (cell.ih_blocks, stack.hidden_size))
        weights, cells = _routing(stack, k, suffix, x, mixture)
        traces.append(LayerTrace(k, suffix, activated, weights, cells))
        hs, cs = hs[1:], None if cs is None else cs[1:]
        return hs, cs, gather_last(hs, last), gather_last(cs, last)

    return run_layer


def _routing(stack, k: int, suffix: str, x, mixture):
    """``weights`` and ``cells`` of a :class:`LayerTrace`, given the mixture weights (T, B, S)."""
    import torch.nn.functional as F

    from fairseq_casrnn.recurrence.mixture import mix

    if mixture is None:
        return None, None
    weights = None
    if getattr(stack, "routing", None) == "attention":
        scores = F.linear(x, getattr(stack, f"attention_l{k}{suffix}"))
        weights = mix(scores, stack.temperature)[:, 0]
    return weights, mixture[:, 0].argmax(-1)
