"""Small generated tagged corpora in the formats of the real ones."""

import random

NAMES = {
    "PER": ["Anna", "Ben", "Clara Schmidt", "D. E. Fox"],
    "LOC": ["Paris", "Rome", "New York", "Bad Ems"],
}
FILL = ["saw", "the", "old", "town", "in", "1998", "with", "of", ",", "café"]


def sentence(rng):
    """Return triples (word, part of speech, IOB2 tag) of a sentence with up to three names."""
    rows = []
    for _ in range(rng.randint(1, 3)):
        for _ in range(rng.randint(0, 3)):
            word = rng.choice(FILL)
            rows.append((word, "CD" if word.isdigit() else "NN", "O"))
        kind = rng.choice(sorted(NAMES))
        for i, word in enumerate(rng.choice(NAMES[kind]).split()):
            rows.append((word, "NNP", f"{'I' if i else 'B'}-{kind}"))
    return [*rows, (".", ".", "O")]


def sentences(count, seed=0):
    rng = random.Random(seed)
    return [sentence(rng) for _ in range(count)]


def write_conll03(folder, train=60, valid=12, test=14):
    """Write four columns, with -DOCSTART- lines and a new name in the test set."""
    folder.mkdir(parents=True)
    for name, count in (("train", train), ("valid", valid), ("test", test)):
        lines = []
        for i, rows in enumerate(sentences(count, name)):
            lines += ["-DOCSTART- -X- -X- O", ""] * (i % 5 == 0)
            lines += [f"{word} {pos} B-NP {tag}" for word, pos, tag in rows] + [""]
        if name == "test":
            lines += ["Zoë NNP B-NP B-PER", ""]
        (folder / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    return folder


def write_pos(folder, train=60, dev=12, test=14):
    """Write CoNLL-U with comments, a multiword token and an empty node."""
    folder.mkdir(parents=True)
    for name, count in (("train", train), ("dev", dev), ("test", test)):
        lines = []
        for i, rows in enumerate(sentences(count, name)):
            lines += [f"# sent_id = {i}", "1-2\tAnnas\t" + "\t".join("_" * 8)]
            for n, (word, xpos, _) in enumerate(rows, start=1):
                upos = "PROPN" if xpos == "NNP" else "X"
                lines.append(f"{n}\t{word}\t{word}\t{upos}\t{xpos}\t" + "\t".join("_" * 5))
            lines += ["1.1\tis\tbe\tVERB\tVBZ\t" + "\t".join("_" * 5), ""]
        (folder / f"en_ewt-ud-{name}.conllu").write_text("\n".join(lines), encoding="utf-8")
    return folder
