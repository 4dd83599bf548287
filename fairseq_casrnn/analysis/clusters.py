"""Assigns tokens to the cells of a second-order LSTM by clustering: ``casrnn data clusters``.

The embeddings of a trained language model are clustered by k-means, one cluster per cell
(second-order LSTM paper, §3.2.1). ``--assignment-path`` reads the file.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from fairseq_casrnn.errors import UserError
from fairseq_casrnn.files import check_writable, whole_file


def cluster(vectors, count: int, seed: int = 1) -> list[int]:
    """The cluster, 0 to ``count - 1``, of each row of ``vectors`` ``(N, E)``.

    Raises:
        UserError: fewer rows than clusters, or an invalid seed.
    """
    from sklearn.cluster import KMeans

    if not 1 <= count <= len(vectors):
        raise UserError(f"--num-cells is {count}; it must lie between 1 and {len(vectors)} tokens")
    if not 0 <= seed < 2**32:
        raise UserError(f"--seed is {seed}; it must lie between 0 and {2**32 - 1}")
    return KMeans(count, n_init=4, random_state=seed).fit(vectors).labels_.tolist()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``casrnn data clusters``."""
    parser.add_argument("data", type=Path, help="folder with dict.txt")
    parser.add_argument("--path", required=True, type=Path, help="checkpoint of a language model")
    parser.add_argument("--num-cells", type=int, default=2, help="number of clusters (default: 2)")
    parser.add_argument("--seed", type=int, default=1, help="random seed (default: 1)")
    parser.add_argument(
        "--out", required=True, type=Path, help="output file, with lines 'token cell'"
    )


def run(args: argparse.Namespace) -> None:
    """Write the assignment. Raises UserError."""
    from fairseq_casrnn.inference.loading import load_language_model

    check_writable(args.out)
    model, task = load_language_model(args.path, args.data)
    dictionary = task.source_dictionary
    vectors = model.decoder.embed_tokens.weight.detach().float().cpu().numpy()
    indices = [i for i in range(len(dictionary)) if i not in (dictionary.bos(), dictionary.pad())]
    cells = cluster(vectors[indices], args.num_cells, args.seed)
    with whole_file(args.out) as file:
        for i, cell in zip(indices, cells, strict=True):
            file.write(f"{dictionary[i]} {cell}\n")
    sizes = ", ".join(str(size) for _, size in sorted(Counter(cells).items()))
    print(f"{len(indices)} tokens in {args.num_cells} clusters of {sizes}")
