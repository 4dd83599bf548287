"""Corpora for the smallest classifiers, and trainings of them."""

from labelled_corpora import sentences

from ..programs import fairseq

TRAIN = [
    *("--task", "sentence_classification", "--criterion", "sentence_classification", "--cpu"),
    *("--batch-size", "8", "--required-batch-size-multiple", "1", "--num-workers", "0"),
    *("--optimizer", "adam", "--lr", "0.01", "--seed", "3", "--dropout", "0"),
    *("--log-format", "json", "--log-interval", "1"),
    *("--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric"),
]


def prepare(module, raw, out, *argv):
    assert module.main(["--raw", str(raw), "--out", str(out), *map(str, argv)]) == 0
    return out / "data-bin"


def train(data, out, name="cas_lstm", epochs=1, *args):
    arch = f"{name}_sentence_encoder_tiny"
    options = ["--arch", arch, "--save-dir", out, "--max-epoch", epochs]
    return fairseq("train", data, *TRAIN, *options, *args)


LINES = [text for text, _ in sentences(5, seed=4)]
