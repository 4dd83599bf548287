"""What happens inside a model's recurrent layers while it reads sentences of a data set."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_casrnn.errors import UserError


@dataclass
class Pass:
    """One layer's reading of one sentence, in one direction.

    Attributes:
        layer: 0 for the bottom one.
        direction: "" or "_reverse"; then the first step is the last word.
        gates: ``(T, blocks, H)``, activated, in the order of the cell's blocks.
        weights: ``(T, S)``, the softmax over the cells of a mixture at the model's temperature, or
            None where there is none.
        cells: ``(T,)``, the cell of a mixture that was chosen, or None.
    """

    layer: int
    direction: str
    gates: object
    weights: object = None
    cells: object = None


def load(path: str | os.PathLike, data: str | os.PathLike, translation: bool = False):
    """A model in ``eval()`` and its task, from a checkpoint.

    Args:
        path: the checkpoint, or its folder.
        data: the data folder it was trained on, or one with the same dictionaries.
        translation: whether only a translation model will do, not one of any kind.

    Raises:
        UserError: it is no checkpoint, not of such a model, or the dictionaries are others.
    """
    from fairseq import checkpoint_utils
    from fairseq.models import FairseqEncoderDecoderModel, FairseqLanguageModel

    import fairseq_casrnn
    from fairseq_casrnn.diagnostics.explain import explained
    from fairseq_casrnn.evaluation import trained_lm

    fairseq_casrnn.register()
    path = trained_lm.checkpoint_file(Path(path))
    if not Path(data).is_dir():
        raise UserError(f"{data} is not a folder; give the data-bin that the model was trained on")
    with explained():
        state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
        name, kind = architecture(state["cfg"].model)
        if translation and not issubclass(kind, FairseqEncoderDecoderModel):
            raise UserError(f"checkpoint {path} is of {name}, not a translation model; give one")
        if issubclass(kind, FairseqLanguageModel):
            return trained_lm.load(path, data)
        (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(path)], arg_overrides={"data": str(data)}
        )
    trained_lm.check_finite(model, path)
    return model.eval(), task


def architecture(cfg) -> tuple[str | None, type]:
    """Name and class of the model whose options a checkpoint has."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None)
    return name, ARCH_MODEL_REGISTRY.get(name, object)


def stacks(model, kind: type | None = None) -> list:
    """The recurrent stacks that read whole sentences: of a translation model the encoder's."""
    from fairseq_casrnn.layers import RecurrentStack

    part = model.encoder if hasattr(model, "encoder") else model
    return [module for module in part.modules() if isinstance(module, kind or RecurrentStack)]


def readings(
    model, task, data, subset: str, count: int, seed: int | None = 1
) -> Iterator[tuple[list, list[list[Pass]]]]:
    """Let ``model`` read sentences, one at a time, and watch its recurrent stacks.

    Args:
        model, task: of :func:`load`.
        data: the data folder.
        subset: split to read.
        count: how many of its sentences, or all if there are fewer.
        seed: of their choice; None for the first ones.

    Yields:
        For each sentence (or pair): its rows of tokens, one for each sentence of a pair, and the
        passes over each row, layer by layer.

    Raises:
        UserError: there is no such split.
    """
    import torch

    run, size = reader(model, task, data, subset)
    chosen: Sequence[int] = range(min(count, size))
    if seed is not None:
        chosen = sorted(random.Random(seed).sample(range(size), min(count, size)))
    with watched(stacks(model)) as passes:
        for index in chosen:
            passes.clear()
            with torch.no_grad():
                rows = run(index)
            yield rows, grouped(passes)


def grouped(passes: list[Pass]) -> list[list[Pass]]:
    """The passes over each sentence, of those over several that were read one by one."""
    groups: list[list[Pass]] = []
    for one in passes:
        if one.layer == 0 and not one.direction:
            groups.append([])
        groups[-1].append(one)
    return groups


def reader(model, task, data, subset: str):
    """A function that has the model read the sentence of an index, giving its tokens; their number.

    Raises:
        UserError: there is no such split.
    """
    from fairseq.models import FairseqLanguageModel

    from fairseq_casrnn.diagnostics.explain import explained
    from fairseq_casrnn.evaluation.lm_scores import padded
    from fairseq_casrnn.evaluation.trained_lm import read_sentences, reads_bos

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
        if hasattr(task, "read"):  # the training set, too, without words forgotten for training
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
def watched(modules) -> Iterator[list[Pass]]:
    """While active, every layer of these stacks adds a :class:`Pass` to the list.

    Of a batch it keeps the first sentence. What the stacks give has no gradients meanwhile.
    """
    passes: list[Pass] = []
    for stack in modules:
        stack._run_layer = _watching(stack, passes)
    try:
        yield passes
    finally:
        for stack in modules:
            del stack._run_layer


def _watching(stack, passes: list):
    """In place of ``RecurrentStack._run_layer``: the engine ``eager``'s loop, which keeps gates."""
    import torch
    import torch.nn.functional as F

    from fairseq_casrnn.recurrence.attention import mix
    from fairseq_casrnn.recurrence.eager import add_recurrent_
    from fairseq_casrnn.recurrence.inputs import HardRouting
    from fairseq_casrnn.recurrence.reference import at_step, gather_last

    @torch.no_grad()
    def run(k, suffix, x, lower_c, *, state, last, tokens):
        w_ih, w_hh, bias, params = stack.layer_parameters(k, suffix)
        mixture, weights, cells = stack.mixture_weights(k, suffix, x, tokens), None, None
        cell = stack.cells[k]
        if not cell.is_fused():
            raise UserError(
                f"the gates of {type(cell).__name__} cannot be watched: it has a step only, and "
                "what is watched is what forward_ leaves of the gates"
            )
        if cell.num_cells:
            if getattr(stack, "routing", None) == "attention":
                scores = F.linear(x, getattr(stack, f"attention_l{k}{suffix}"))
                weights = mix(scores, stack.temperature)[:, 0]
            if isinstance(mixture, HardRouting):
                mixture = mixture.weights(x.dtype)
            cells = mixture[:, 0].argmax(-1)
        gates = F.linear(x, w_ih, bias)
        weight_t = w_hh.t().contiguous()
        candidate, (h, c) = None, state
        hs, cs = [], []
        for t, row in enumerate(gates):
            if cell.num_separate_gates:
                candidate = row.new_empty(row.size(0), cell.num_separate_gates * h.size(1))
            add_recurrent_(cell, row, candidate, h, weight_t)
            new_h, new_c = torch.empty_like(h), None if c is None else torch.empty_like(c)
            reads = {
                "candidate": candidate,
                "lower_c": lower_c[t] if cell.lower_cell else None,
                "mixture": at_step(mixture, t),
                "params": params,
            }
            cell.forward_(row, h, c, new_h, new_c, **reads)
            h, c = new_h, new_c
            hs.append(h)
            cs.append(c)
        one = gates[:, 0].unflatten(-1, (cell.ih_blocks, stack.hidden_size))
        passes.append(Pass(k, suffix, one, weights, cells))
        hs = torch.stack(hs)
        cs = torch.stack(cs) if cell.has_cell else None
        return hs, cs, gather_last(hs, last), gather_last(cs, last)

    return run
