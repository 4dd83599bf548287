"""PyTorch's fused Adam, as an optimizer of fairseq."""

from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from fairseq.optim.adam import FairseqAdam
from omegaconf import II

from ..errors import UserError


@dataclass
class TorchAdamConfig(FairseqDataclass):
    """Options of ``--optimizer torch_adam``, with the names of ``adam``."""

    adam_betas: Any = field(default=(0.9, 0.999), metadata={"help": "betas for Adam optimizer"})
    adam_eps: float = field(default=1e-8, metadata={"help": "epsilon for Adam optimizer"})
    weight_decay: float = field(
        default=0.0, metadata={"help": "decoupled weight decay, as in AdamW"}
    )
    lr: list[float] = II("optimization.lr")  # noqa: RUF009


@register_optimizer("torch_adam", dataclass=TorchAdamConfig)
class TorchAdam(FairseqAdam):
    """``torch.optim.AdamW(fused=True)``.

    It makes one pass over the parameters per update, while fairseq's ``adam`` makes about ten.
    fairseq adds ε before the bias correction of the second moment, PyTorch after (Kingma and Ba
    2015, Algorithm 1).
    """

    supports_flat_params = True
    """With ``--fp16``, the float32 weights may be a single flat tensor."""

    def __init__(self, cfg: TorchAdamConfig, params):
        FairseqOptimizer.__init__(self, cfg)
        self._optimizer = torch.optim.AdamW(params, fused=True, **self.optimizer_config)

    @property
    def supports_memory_efficient_fp16(self) -> bool:
        """Not supported: the moments would be in half precision.

        Raises:
            UserError: always. fairseq only asks with ``--memory-efficient-fp16`` or ``-bf16``.
        """
        raise UserError(
            "--optimizer torch_adam needs weights in float32; give --fp16 or --bf16 without "
            "--memory-efficient-fp16 or --memory-efficient-bf16, or --optimizer adam"
        )
