"""SICK entailment: ``python -m fairseq_casrnn.data.corpora.sick``.

Reads ``SICK_train.txt``, ``SICK_trial.txt``, ``SICK_test_annotated.txt`` of SemEval-2014 task 1
(https://alt.qcri.org/semeval2014/task1/): 4,500, 500 and 4,927 pairs, three classes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fairseq_casrnn.data.labelled import ClassificationCorpus
from fairseq_casrnn.data.readers import command, find, read_pairs

FILES = {"train": "SICK_train.txt", "valid": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
LABELS = {name.upper(): name for name in ("entailment", "neutral", "contradiction")}
WHERE = "get SICK from https://alt.qcri.org/semeval2014/task1/"


def read_corpus(raw: Path) -> ClassificationCorpus:
    """The official split. Columns: pair_ID, sentence_A, sentence_B, relatedness, judgment."""
    return ClassificationCorpus(
        {
            split: read_pairs(find(raw, (name,), WHERE), (4, 1, 2), LABELS, width=5)
            for split, name in FILES.items()
        }
    )


main = command("Binarise SICK.", lambda args: read_corpus(args.raw), WHERE, tokenizer="moses")


if __name__ == "__main__":
    sys.exit(main())
