#!/usr/bin/env python3
"""Draw the learning curve and the attention map of one sentence.

draw.py OUT SENTENCE reads what run.sh left in OUT and writes learning_curve.png, attention.png.
"""

import sys
from pathlib import Path

from fairseq_casrnn.analysis import plots
from fairseq_casrnn.data.subwords import load_bpe_codes
from fairseq_casrnn.errors import UserError


def main():
    """The command line."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    out, sentence = Path(sys.argv[1]), sys.argv[2]
    try:
        plots.learning_curve(out / "train.log", out / "learning_curve.png")
        subwords = load_bpe_codes(out / "data" / "codes").process_line(sentence)
        attention = plots.translation_attention(
            out / "checkpoints" / "checkpoint_best.pt", out / "data" / "data-bin", subwords
        )
        plots.attention_map(*attention, out / "attention.png")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
