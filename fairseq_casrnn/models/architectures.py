"""Named architectures for translation.

``<cell>_iwslt``: 2+2 layers, all sizes 256 (CAS-LSTM paper, §4.4). ``cas_lstm_iwslt_247``: hidden
and output 247, about the parameters of the 256-d LSTM. ``<cell>_btec_{3,5,10}``: depth 3, 5, 10,
all sizes 50 (depth-gated LSTM paper, §4.1). ``<cell>_tiny``: for tests.
"""

from __future__ import annotations

from fairseq.models import register_model_architecture

from .translation import MODELS  # the models must be registered before their architectures

EMBED = ("encoder_embed_dim", "decoder_embed_dim")
HIDDEN = ("encoder_hidden_size", "decoder_hidden_size", "decoder_out_embed_dim")
LAYERS = ("encoder_layers", "decoder_layers")


def register(model: str, arch: str, hidden: int, layers: int, embed: int | None = None) -> None:
    """Register ``arch``: ``model`` with these sizes where the command line gives no others."""

    def architecture(args):
        for names, value in ((EMBED, embed or hidden), (HIDDEN, hidden), (LAYERS, layers)):
            for name in names:
                setattr(args, name, getattr(args, name, value))

    register_model_architecture(model, arch)(architecture)


for _cell in MODELS:
    register(_cell, f"{_cell}_iwslt", hidden=256, layers=2)
    register(_cell, f"{_cell}_tiny", hidden=16, layers=2)
    for _depth in (3, 5, 10):
        register(_cell, f"{_cell}_btec_{_depth}", hidden=50, layers=_depth)
register("cas_lstm", "cas_lstm_iwslt_247", hidden=247, layers=2, embed=256)
