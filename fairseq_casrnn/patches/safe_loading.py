"""What a checkpoint may hold: ``torch.load(weights_only=True)`` runs no code of a file."""

from __future__ import annotations

import argparse
import collections
import typing


def allow_checkpoint_globals() -> None:
    """Let ``torch.load(weights_only=True)`` accept what fairseq's checkpoints hold, no more.

    That is the ``Namespace`` with the options of models without a dataclass, and the int64 arrays
    of ``--eval-bleu``'s n-gram counts. Neither can run code when it is loaded.
    """
    import numpy
    import torch

    multiarray = getattr(numpy, "_core", None) or numpy.core
    reconstruct = multiarray.multiarray._reconstruct
    torch.serialization.add_safe_globals(
        [
            argparse.Namespace,
            numpy.ndarray,
            numpy.dtype,
            type(numpy.dtype("int64")),
            (reconstruct, "numpy._core.multiarray._reconstruct"),
            (reconstruct, "numpy.core.multiarray._reconstruct"),  # written with numpy 1
        ]
    )


def allow_broadcast_globals(original, *args, **kwargs):
    """Let the first of several processes give the others a checkpoint that it has loaded.

    fairseq does so through ``torch.save`` and ``torch.load`` in memory, when the options are a
    container of OmegaConf already and tensors are placeholders. Safe loading does not know these
    classes; they are allowed for that one load, and not for files.
    """
    import omegaconf
    import torch
    from fairseq.distributed import utils as distributed

    allowed = [
        *(collections.defaultdict, dict, float, int, list, str, typing.Any),
        *(omegaconf.DictConfig, omegaconf.ListConfig, omegaconf.nodes.AnyNode),
        *(omegaconf.base.ContainerMetadata, omegaconf.base.Metadata),
        distributed._TensorPlaceholder,
    ]
    with torch.serialization.safe_globals(allowed):
        return original(*args, **kwargs)
