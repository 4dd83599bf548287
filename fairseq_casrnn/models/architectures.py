"""Named architectures.

Translation: ``<cell>_iwslt``: 2+2 layers, all sizes 256 (CAS-LSTM paper, §4.4).
``cas_lstm_iwslt_247``: hidden and output size 247, about as many parameters as the 256-d LSTM.
``<cell>_btec_{3,5,10}``: depth 3, 5, 10, all sizes 50 (depth-gated LSTM paper, §4.1).
``<cell>_tiny``: for tests.

Language models: ``<cell>_lm_ptb``: two layers of 200, no dropout (depth-gated LSTM paper, §4.2).
``<cell>_lm_wikitext2``: 300 → 600, dropout 0.5; ``<cell>_lm_dyck_{2,…,10}``: 30 → 3m for nesting
to depth m, no dropout (second-order LSTM paper, §4.3); ``<cell>_lm_dyck`` has m = 4.
``<cell>_lm_tiny``: for tests.
"""

from __future__ import annotations

from .config import LAYERS
from .registration import register_architecture

EMBED = ("encoder_embed_dim", "decoder_embed_dim")
HIDDEN = ("encoder_hidden_size", "decoder_hidden_size", "decoder_out_embed_dim")


def register(model: str, arch: str, hidden: int, layers: int, embed: int | None = None) -> None:
    """Register ``arch``: ``model`` with these sizes unless the command line gives others."""
    groups = (EMBED, embed or hidden), (HIDDEN, hidden), (LAYERS, layers)
    register_architecture(model, arch, {name: size for names, size in groups for name in names})


def register_lm(
    cell: str, suffix: str, embed: int, hidden: int, layers: int, dropout: float
) -> None:
    """Register ``<cell>_lm_<suffix>``: ``<cell>_lm`` with these sizes and dropout."""
    sizes = {"decoder_embed_dim": embed, "decoder_hidden_size": hidden, "decoder_layers": layers}
    register_architecture(f"{cell}_lm", f"{cell}_lm_{suffix}", {**sizes, "dropout": dropout})


def register_cell(cell: str) -> None:
    """Register all named architectures of ``cell``, whose models must be registered already."""
    register(cell, f"{cell}_iwslt", hidden=256, layers=2)
    if cell == "cas_lstm":
        register(cell, "cas_lstm_iwslt_247", hidden=247, layers=2, embed=256)
    register(cell, f"{cell}_tiny", hidden=16, layers=2)
    for depth in (3, 5, 10):
        register(cell, f"{cell}_btec_{depth}", hidden=50, layers=depth)
    register_lm(cell, "ptb", embed=200, hidden=200, layers=2, dropout=0.0)
    register_lm(cell, "wikitext2", embed=300, hidden=600, layers=1, dropout=0.5)
    register_lm(cell, "tiny", embed=12, hidden=16, layers=2, dropout=0.0)
    for depth in range(2, 11):  # m, the deepest nesting
        register_lm(cell, f"dyck_{depth}", embed=30, hidden=3 * depth, layers=1, dropout=0.0)
    register_lm(cell, "dyck", embed=30, hidden=12, layers=1, dropout=0.0)
