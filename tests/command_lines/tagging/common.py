"""Corpora for the smallest taggers, and trainings of them."""

from tagged_corpora import write_conll03

from fairseq_casrnn.data.corpora import conll03

from ..programs import fairseq

TRAIN = [
    *("--task", "sequence_tagging", "--criterion", "sequence_tagging", "--cpu"),
    *("--batch-size", "8", "--required-batch-size-multiple", "1", "--num-workers", "0"),
    *("--optimizer", "adam", "--lr", "0.03", "--seed", "3", "--dropout", "0"),
    *("--char-filters", "6", "--char-embed-dim", "5", "--encoder-embed-range", "1"),
    *("--log-format", "json", "--log-interval", "1"),
    *("--best-checkpoint-metric", "f1", "--maximize-best-checkpoint-metric"),
]


def prepare(folder):
    raw = write_conll03(folder / "raw")
    assert conll03.main(["--raw", str(raw), "--out", str(folder)]) == 0
    return folder / "data-bin"


def train(data, out, name="cas_lstm", epochs=1, *args):
    options = ["--arch", f"{name}_tagger_tiny", "--save-dir", out, "--max-epoch", epochs]
    return fairseq("train", data, *TRAIN, *options, *args)
