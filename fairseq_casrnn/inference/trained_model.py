"""A trained model of any kind and its task, loaded from a checkpoint."""

from __future__ import annotations

import os
from pathlib import Path

from fairseq_casrnn.errors import UserError


def read_config(path: Path):
    """All options in the checkpoint ``path``. Raises UserError if it is not a checkpoint."""
    from fairseq import checkpoint_utils

    import fairseq_casrnn
    from fairseq_casrnn.diagnostics.explain import explained

    fairseq_casrnn.register()
    with explained():
        return checkpoint_utils.load_checkpoint_to_cpu(str(path))["cfg"]


def load(path: str | os.PathLike, data: str | os.PathLike | None = None, translation: bool = False):
    """A model in ``eval()`` and its task.

    Args:
        path: the checkpoint, its folder, or a file of ``casrnn pack``.
        data: folder of the dictionaries; None for that of the training, or a packed model's own.
        translation: whether it must be a translation model.

    Raises:
        UserError: not a checkpoint, not a translation model, no dictionaries, or other ones than
            those of the training.
    """
    from fairseq import checkpoint_utils
    from fairseq.models import FairseqEncoderDecoderModel, FairseqLanguageModel

    from fairseq_casrnn.diagnostics.explain import explained
    from fairseq_casrnn.inference import trained_lm
    from fairseq_casrnn.models.data_folders import find_data
    from fairseq_casrnn.models.kinds import architecture, check_registered
    from fairseq_casrnn.models.packed import is_packed

    file = trained_lm.checkpoint_file(Path(path))
    name = path if is_packed(Path(path)) else file
    if data is not None and not Path(data).is_dir():
        raise UserError(f"{data} is not a folder; give the data-bin that the model was trained on")
    cfg = read_config(file)
    check_registered(cfg, name)
    arch, cls = architecture(cfg.model)
    if translation and not issubclass(cls, FairseqEncoderDecoderModel):
        raise UserError(f"checkpoint {name} is of {arch}, not a translation model; give one")
    data = find_data(file.parent, data, cfg.task, cfg.model)
    if issubclass(cls, FairseqLanguageModel):
        return trained_lm.load(path, data)
    with explained():
        (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(file)], arg_overrides={"data": str(data)}
        )
    trained_lm.check_finite(model, name)
    return model.eval(), task
