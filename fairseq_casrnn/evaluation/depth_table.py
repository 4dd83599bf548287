"""Table 1 of the depth-gated LSTM paper: ``python -m fairseq_casrnn.evaluation.depth_table``.

Rows are depths and columns are cells, from the results of the architectures ``CELL_btec_DEPTH``.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from fairseq_casrnn.console.program import Parser, run_main, show
from fairseq_casrnn.evaluation.significance import Scores, mean_text, read_results

COLUMNS = {"GRU": "stacked_gru", "LSTM": "stacked_lstm", "DG-LSTM": "dg_lstm"}
ARCHITECTURE = f"({'|'.join(COLUMNS.values())})_btec_[0-9]+"


def depth_table(results: dict[str, Scores]) -> list[str]:
    """Markdown lines: mean (± deviation over seeds) by depth and cell; "–" without runs."""
    archs = [arch for arch in results if re.fullmatch(ARCHITECTURE, arch)]
    depths = sorted({int(arch.rpartition("_")[2]) for arch in archs})
    lines = [f"| Depth | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for depth in depths:
        found = [results.get(f"{name}_btec_{depth}") for name in COLUMNS.values()]
        cells = [mean_text(scores.values()) if scores else "–" for scores in found]
        lines.append(f"| {depth} | {' | '.join(cells)} |")
    return lines


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = Parser(
        prog="python -m fairseq_casrnn.evaluation.depth_table",
        description="Print BLEU by depth and cell, like Table 1 of the depth-gated LSTM paper.",
    )
    parser.add_argument("results", nargs="+", type=Path, help="results.jsonl from evaluate.sh")
    parser.add_argument("--metric", default="bleu", help="bleu (default) or sacrebleu")
    parser.add_argument("--checkpoint", help="only results with this --checkpoint")
    parser.add_argument("--beam", type=int, help="only results with this beam size")
    args = parser.parse_args(argv)

    def tabulate() -> None:
        settings = {"checkpoint": args.checkpoint, "beam": args.beam}
        results = read_results(args.results, args.metric, arch=ARCHITECTURE, **settings)
        show(depth_table(results))

    return run_main(tabulate)


if __name__ == "__main__":
    sys.exit(main())
