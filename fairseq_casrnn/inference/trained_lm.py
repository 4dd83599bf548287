"""Loading a trained language model and the sentences of its data."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from fairseq_casrnn.data.prepared import binarised_folder
from fairseq_casrnn.errors import UserError


def load(path: str | os.PathLike, data: str | os.PathLike):
    """Load a language model, in ``eval()``, and its task.

    Args:
        path: a checkpoint, a file of ``casrnn pack``, or a run's folder, whose best or else last
            checkpoint is loaded.
        data: folder with its ``dict.txt``, or the folder whose ``data-bin`` that is.

    Raises:
        UserError: the checkpoint is invalid, not a language model, or has another dictionary.
    """
    import torch
    from fairseq import checkpoint_utils

    import fairseq_casrnn
    from fairseq_casrnn.data.dictionaries import check_digest
    from fairseq_casrnn.diagnostics.explain import explained
    from fairseq_casrnn.models.kinds import LANGUAGE_MODEL, check_kind
    from fairseq_casrnn.models.packed import is_packed

    fairseq_casrnn.register()
    file = checkpoint_file(Path(path))
    name = path if is_packed(Path(path)) else file
    data = binarised_folder(data)
    if not (data / "dict.txt").is_file():
        raise UserError(f"{data} holds no dict.txt; give the folder that fairseq-preprocess wrote")
    overrides = {"data": str(data)}
    with explained():
        state = checkpoint_utils.load_checkpoint_to_cpu(str(file), overrides)
        check_kind(state["cfg"], LANGUAGE_MODEL, name)
        (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(file)], arg_overrides=overrides, state=state
        )
        check_digest(state["extra_state"].get("words"), task.source_dictionary, data)
    check_finite(model, name)
    return model.eval().to("cuda" if torch.cuda.is_available() else "cpu"), task


def checkpoint_at(path: Path) -> Path:
    """``path``, a checkpoint, or that of the run whose folder it is. Raises UserError."""
    from fairseq_casrnn.models.hub import find_checkpoint

    if not path.exists():
        raise UserError(f"checkpoint {path} does not exist; check the path or train the model")
    return find_checkpoint(path, None)


def checkpoint_file(path: Path) -> Path:
    """:func:`checkpoint_at`, also that in a file of ``casrnn pack``. Raises UserError."""
    from fairseq_casrnn.models.packed import unpacked

    return checkpoint_at(unpacked(path))


def check_finite(model, path: str | os.PathLike) -> None:
    """Raise UserError if weights of ``model``, from the checkpoint ``path``, are not finite."""
    for name, weight in model.state_dict().items():
        if weight.is_floating_point() and not weight.isfinite().all():
            raise UserError(
                f"checkpoint {path} has weights in {name} that are not finite (NaN or infinite): "
                "its training diverged, or it is damaged; use another checkpoint"
            )


def route_softly(model, path: str | os.PathLike) -> None:
    """Mix the cells of ``model`` in evaluation as in training.

    Raises:
        UserError: it is not a second-order LSTM with attention.
    """
    from fairseq_casrnn.layers import SecondOrderLSTM

    stacks = [m for m in model.modules() if isinstance(m, SecondOrderLSTM)]
    if not any(stack.routing == "attention" for stack in stacks):
        raise UserError(
            f"--soft-routing needs a second-order LSTM with attention, which {path} is not; "
            "drop the option"
        )
    for stack in stacks:
        stack.soft_routing = True


def reads_bos(model) -> bool:
    """Whether a language model was trained with --add-bos-token and reads <s> first."""
    return getattr(model, "reads_bos", False)


def padded(sentences: Iterable, dictionary, bos: bool = False):
    """Inputs </s> w₁ … wₙ and targets w₁ … wₙ </s>, ``(B, T)`` each, padded on the right.

    With ``bos``, ``(B, 1+T)``: <s> before the inputs, and padding before the targets.
    """
    from torch.nn.functional import pad
    from torch.nn.utils.rnn import pad_sequence

    target = pad_sequence(list(sentences), batch_first=True, padding_value=dictionary.pad())
    source = target.roll(1, 1)
    source[:, 0] = dictionary.eos()
    if bos:
        source = pad(source, (1, 0), value=dictionary.bos())
        target = pad(target, (1, 0), value=dictionary.pad())
    return source, target


def read_sentences(
    data: str | os.PathLike, subset: str, dictionary, remedy: str = "check the folder and --subset"
) -> list:
    """The sentences of a binarised split, each a tensor that ends with ``</s>``.

    Args:
        data: the folder, as for :func:`load`.
        subset: the split.
        dictionary: the folder's dictionary.
        remedy: the end of the error message.

    Raises:
        UserError: there is no such split.
    """
    from fairseq.data import data_utils

    sentences = data_utils.load_indexed_dataset(str(binarised_folder(data) / subset), dictionary)
    if sentences is None:
        raise UserError(f"there is no '{subset}' in {data}; {remedy}")
    return [sentence.long().clone() for sentence in sentences]  # not views of the mapped file
