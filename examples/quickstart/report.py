#!/usr/bin/env python3
"""Show what fairseq-generate wrote: the first ten translations, BLEU, exactly right sentences.

report.py TEST.TXT
"""

import re
import sys
from pathlib import Path


def read(path):
    """{sentence number: {"S": source, "T": reference, "D": translation}} and the line with BLEU.

    Raises ValueError if the file has no BLEU, as after an interruption of fairseq-generate.
    """
    sentences, bleu = {}, None
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        if found := re.match(r"([STD])-(\d+)\t", line):
            sentences.setdefault(int(found[2]), {})[found[1]] = line.split("\t")[-1]
        elif line.startswith("Generate "):
            bleu = line
    if bleu is None:
        raise ValueError(f"{path} has no BLEU")
    return sentences, bleu


def main():
    """The command line."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        sentences, bleu = read(sys.argv[1])
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}; run run.sh --force")
    for number in sorted(sentences)[:10]:
        sentence = sentences[number]
        print(f"\n  source     {sentence['S']}")
        print(f"  reference  {sentence['T']}")
        print(f"  ours       {sentence['D']}")
    right = sum(sentence["T"] == sentence["D"] for sentence in sentences.values())
    print(f"\n{bleu}\n{right} of {len(sentences)} sentences are exactly the reference.")


if __name__ == "__main__":
    main()
