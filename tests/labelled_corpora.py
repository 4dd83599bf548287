"""Small generated classification corpora in the formats of the real ones; readers of results."""

import json
import random

from fairseq.data import Dictionary, data_utils

GOOD, BAD = ["good", "nice", "great", "fine"], ["bad", "poor", "dull", "weak"]
FILL = ["the", "film", "is", "a", "story", "of", "it's", "café"]
NLI = ("entailment", "neutral", "contradiction")


def sentence(rng, positive, length=6):
    """Return words, some of which express an opinion."""
    words = [rng.choice(FILL) for _ in range(rng.randint(0, length))]
    words.insert(rng.randint(0, len(words)), rng.choice(GOOD if positive else BAD))
    return " ".join(words)


def sentences(count, seed=0):
    """Return pairs (sentence, positive), half of them positive."""
    rng = random.Random(seed)
    return [(sentence(rng, i % 2 == 0), i % 2 == 0) for i in range(count)]


def tree(words, rating):
    """Return a right-branching tree whose last word has the rating of the whole tree."""
    if len(words) == 1:
        return f"({rating} {words[0]})"
    return f"({rating} (2 {words[0]}) {tree(words[1:], rating)})"


def write_sst(folder, train=60, dev=11, test=13):
    """Write trees whose sentences are rated 0 to 4 in turn."""
    folder.mkdir(parents=True)
    for name, count in (("train", train), ("dev", dev), ("test", test)):
        rng, lines = random.Random(name), []
        for i in range(count):
            words = sentence(rng, i % 5 > 2).split()
            lines.append(tree(words, i % 5) + "\n")
        (folder / f"{name}.txt").write_text("".join(lines), encoding="utf-8")
    return folder


def write_mr(folder, each=60):
    """Write files in Windows-1252, like the original."""
    folder.mkdir(parents=True)
    rng = random.Random(0)
    for name, positive in (("neg", False), ("pos", True)):
        lines = "".join(sentence(rng, positive) + " \n" for _ in range(each))
        (folder / f"rt-polarity.{name}").write_bytes(lines.encode("cp1252"))
    return folder


def write_trec(folder, train=80, test=12):
    """Write questions with two coarse and three fine classes."""
    folder.mkdir(parents=True)
    for name, count in (("train_5500", train), ("TREC_10", test)):
        lines = ""
        for i, (text, positive) in enumerate(sentences(count)):
            kind = ("NUM:date" if i % 4 else "NUM:count") if positive else "HUM:ind"
            lines += f"{kind} {text} ?\n"
        (folder / f"{name}.label").write_bytes(lines.encode("latin-1"))
    return folder


def nli_pairs(count, seed=0):
    """Return triples (label, words, words), every seventh without a gold label."""
    rng = random.Random(seed)
    for i in range(count):
        label = "-" if i % 7 == 6 else NLI[i % 3]
        first = sentence(rng, True)
        second = {"entailment": first, "contradiction": sentence(rng, False)}.get(label, "it")
        yield label, first, second


def parse(text):
    """Return the words as a binary parse."""
    words = text.split()
    return "( " * (len(words) - 1) + words[0] + "".join(f" {word} )" for word in words[1:])


NLI_STEMS = {
    "snli": ("snli_1.0_train", "snli_1.0_dev", "snli_1.0_test"),
    "multinli": (
        "multinli_1.0_train",
        "multinli_1.0_dev_matched",
        "multinli_1.0_dev_mismatched",
    ),
}


def write_nli(folder, corpus="snli", form="jsonl", train=84):
    """Write files in the official formats of SNLI or MultiNLI."""
    folder.mkdir(parents=True)
    names = ["gold_label", "sentence1_binary_parse", "sentence2_binary_parse", "sentence1"]
    for stem, count in zip(NLI_STEMS[corpus], (train, 14, 14), strict=True):
        rows = [(a, parse(b), parse(c), b) for a, b, c in nli_pairs(count)]
        if form == "jsonl":
            lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
        else:
            lines = ["\t".join(row) for row in [names, *rows]]
        text = "".join(line + "\n" for line in lines)
        (folder / f"{stem}.{form}").write_text(text, encoding="utf-8")
    return folder


def write_plain_nli(folder, count=70):
    """Write s1.SPLIT, s2.SPLIT and labels.SPLIT, without a training set."""
    folder.mkdir(parents=True)
    for split in ("dev", "test"):
        rows = [row for row in nli_pairs(count) if row[0] != "-"]
        for part, column in zip(("labels", "s1", "s2"), zip(*rows, strict=True), strict=True):
            (folder / f"{part}.{split}").write_text("".join(f"{x}\n" for x in column))
    return folder


def pairs(count, seed=0):
    """Return triples (same, sentence, sentence)."""
    rng = random.Random(seed)
    rows = []
    for i in range(count):
        first = sentence(rng, True)
        rows.append((i % 2, first + ".", (first if i % 2 else sentence(rng, False)) + "."))
    return rows


def write_quora(folder):
    """Write columns label, question, question, id, without a header."""
    folder.mkdir(parents=True)
    for name, count in (("train", 60), ("dev", 9), ("test", 11)):
        lines = [f"{a}\t{b}\t{c}\t{i}\n" for i, (a, b, c) in enumerate(pairs(count))]
        (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    return folder


def write_mrpc(folder):
    """Write files with byte-order mark, header, CRLF, and unbalanced quotation marks."""
    folder.mkdir(parents=True)
    for name, count in (("train", 60), ("test", 11)):
        lines = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
        lines += [f'{a}\t{i}\t{i + 1}\t"{b}\t{c}' for i, (a, b, c) in enumerate(pairs(count))]
        text = "\ufeff" + "".join(line + "\r\n" for line in lines)
        (folder / f"msr_paraphrase_{name}.txt").write_bytes(text.encode())
    return folder


def write_sick(folder):
    """Write five columns with a header."""
    folder.mkdir(parents=True)
    for name, count in (("train", 60), ("trial", 9), ("test_annotated", 11)):
        lines = ["pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"]
        for i, (_, first, second) in enumerate(pairs(count)):
            lines.append(f"{i}\t{first}\t{second}\t3.5\t{NLI[i % 3].upper()}")
        (folder / f"SICK_{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    return folder


def write_rte(folder):
    """Write four columns with a header, and a test set without labels, which is not read."""
    folder.mkdir(parents=True)
    for name, count in (("train", 60), ("dev", 11)):
        lines = ["index\tsentence1\tsentence2\tlabel"]
        for i, (same, first, second) in enumerate(pairs(count)):
            lines.append(f"{i}\t{first}\t{second}\t{'' if same else 'not_'}entailment")
        (folder / f"{name}.tsv").write_text("".join(f"{line}\n" for line in lines))
    (folder / "test.tsv").write_text("index\tsentence1\tsentence2\n0\ta\tb\n")
    return folder


def write_reviews(folder, sets=("books", "MR"), train=60, test=12):
    """Write files mostly in UTF-8, with one line that is not."""
    folder.mkdir(parents=True)
    for name in sets:
        for split, count in (("train", train), ("test", test)):
            lines = [f"{int(p)}\t{text}\n".encode() for text, p in sentences(count)]
            lines[0] = "1\tgood caf\xe9 \x96 fine\n".encode("latin-1")
            (folder / f"{name}.task.{split}").write_bytes(b"".join(lines))
    return folder


def read_back(folder, part="input0", split="train"):
    """Return the lines of a binarised set."""
    dictionary = Dictionary.load(str(folder / "data-bin" / part / "dict.txt"))
    path = str(folder / "data-bin" / part / split)
    dataset = data_utils.load_indexed_dataset(path, dictionary)
    assert all(tokens[-1] == dictionary.eos() for tokens in dataset)
    return [" ".join(dictionary[int(t)] for t in tokens[:-1]) for tokens in dataset]


def note(folder, name="prepare"):
    return json.loads((folder / "data-bin" / f"{name}.json").read_text(encoding="utf-8"))


def fails(main, capsys, *argv):
    """Return the error message of a command that must fail and leave no files behind."""
    assert main([str(arg) for arg in argv]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    return error


def run(module, raw, out, *argv):
    assert module.main(["--raw", str(raw), "--out", str(out), *map(str, argv)]) == 0
    return out
