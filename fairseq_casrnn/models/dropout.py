"""fairseq's dropout module with this package's faster masks."""

from __future__ import annotations

from fairseq.modules import FairseqDropout
from torch import Tensor

from ..layers.dropout import dropout


class Dropout(FairseqDropout):
    """``FairseqDropout`` with faster masks; ``--retain-dropout`` keeps it active in generation."""

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        """Dropout on x of any shape, never in place."""
        return dropout(x, self.p, self.training or self.apply_during_inference)
