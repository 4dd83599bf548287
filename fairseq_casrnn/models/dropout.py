"""fairseq's dropout module with this package's faster masks."""

from __future__ import annotations

from fairseq.modules import FairseqDropout

from ..layers.dropout import dropout


class Dropout(FairseqDropout):
    """``FairseqDropout``, which can stay active in generation (``--retain-dropout``)."""

    def forward(self, x, inplace: bool = False):
        """x, of any shape, with elements zeroed and the others scaled; never in place."""
        return dropout(x, self.p, self.training or self.apply_during_inference)
