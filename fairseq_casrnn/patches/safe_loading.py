"""Types that ``torch.load(weights_only=True)``, which runs no code from a file, may load."""

from __future__ import annotations

import argparse
import collections
import typing


def allow_checkpoint_globals() -> None:
    """Let ``torch.load(weights_only=True)`` load the types in fairseq's checkpoints, no others.

    These are ``Namespace``, for the options of models without a dataclass, and int64 arrays, for
    the n-gram counts of ``--eval-bleu``. Loading either cannot run code.
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
    """Around ``_broadcast_object_slow``: let rank 0 send a loaded checkpoint to the other ranks.

    fairseq uses ``torch.save`` and ``torch.load`` in memory. By then the options are an OmegaConf
    container and tensors are placeholders. These types are allowed for this load only, not for
    files.
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
