"""Write the golden checkpoints: ``python tests/golden/make.py [ROLE …]``.

For each role fairseq-train trains a model for one epoch on generated data. ``ROLE.tar.xz`` holds
its checkpoint, its data without the binarised text, and ``expected.pt``: the arguments and the
results of a forward pass. Version 0.1.0 wrote them. Do not write them again: they test that later
versions load them and compute the same.
"""

import os
import sys
import tarfile
import tempfile
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]

from command_lines.conftest import write_corpus  # noqa: E402
from command_lines.programs import fairseq  # noqa: E402
from fairseq import checkpoint_utils  # noqa: E402
from labelled_corpora import write_sick  # noqa: E402
from tagged_corpora import write_conll03  # noqa: E402

from fairseq_casrnn.data.corpora import conll03, sick  # noqa: E402

TRAIN = [
    *("--cpu", "--num-workers", "0", "--optimizer", "adam", "--lr", "0.01", "--max-epoch", "1"),
    *("--seed", "1", "--save-dir", "out", "--no-last-checkpoints", "--no-epoch-checkpoints"),
    *("--no-save-optimizer-state", "--batch-size", "8"),
]

SIZES = {"embed-dim": 4, "hidden-size": 3}


def binarise(suffix: str, *options: str) -> None:
    """Binarise the generated text, files ``SPLIT`` + suffix, into ``data``."""
    Path("text").mkdir()
    write_corpus(Path("text"))
    prefixes = ("--trainpref", f"text/train{suffix}", "--validpref", f"text/valid{suffix}")
    fairseq("preprocess", *prefixes, "--destdir", "data", *options)


def translation() -> list[str]:
    """A CAS-LSTM with trainable λ; encoder and decoder have different depths."""
    binarise("", "-s", "xx", "-t", "yy")
    return [
        *("-s", "xx", "-t", "yy", "--arch", "cas_lstm_tiny", "--lam", "trainable"),
        *("--encoder-layers", "3", "--decoder-layers", "2", "--encoder-bidirectional"),
        *(f"--{side}-{size}={n}" for side in ("encoder", "decoder") for size, n in SIZES.items()),
        "--decoder-out-embed-dim=4",
    ]


def language_model() -> list[str]:
    """A second-order LSTM, whose temperature is stored in the checkpoint."""
    binarise(".xx", "--only-source")
    return [
        *("--task", "stateful_language_modeling", "--arch", "second_order_lstm_lm_tiny"),
        *("--decoder-layers", "2", "--bptt", "7", "--temperature-decay", "0.5"),
        *(f"--decoder-{size}={n}" for size, n in SIZES.items()),
    ]


def sentence_encoder() -> list[str]:
    """A sentence-state LSTM for pairs of sentences."""
    assert sick.main(["--raw", str(write_sick(Path("raw").absolute())), "--out", "prepared"]) == 0
    Path("prepared/data-bin").rename("data")
    return [
        *("--task", "sentence_classification", "--criterion", "sentence_classification"),
        *("--arch", "sentence_state_lstm_sentence_encoder_tiny", "--features", "nli"),
        *(f"--encoder-{size}={n}" for size, n in SIZES.items()),
    ]


def tagger() -> list[str]:
    """A depth-gated LSTM with a CRF and characters."""
    assert conll03.main(["--raw", str(write_conll03(Path("raw").absolute())), "--out", "out"]) == 0
    Path("out/data-bin").rename("data")
    return [
        *("--task", "sequence_tagging", "--criterion", "sequence_tagging"),
        *("--arch", "dg_lstm_tagger_tiny", "--encoder-layers", "2", "--encoder-bidirectional"),
        *(f"--encoder-{size}={n}" for size, n in SIZES.items()),
    ]


ROLES = {role.__name__: role for role in (translation, language_model, sentence_encoder, tagger)}


def load(folder: Path):
    """The model of ``out/checkpoint_best.pt`` and its task, with the data in ``folder``."""
    models, _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(folder / "out" / "checkpoint_best.pt")], arg_overrides={"data": str(folder / "data")}
    )
    return models[0].eval(), task


def main(roles) -> None:
    """Write the archives of ``roles``."""
    for role in roles or ROLES:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            options = ROLES[role]()
            fairseq("train", "data", *TRAIN, *options)
            model, task = load(Path())
            task.load_dataset("valid")
            batch = next(
                task.get_batch_iterator(task.dataset("valid"), max_sentences=3).next_epoch_itr(
                    shuffle=False
                )
            )
            arguments = batch["net_input"]
            with torch.no_grad():
                output = model(**arguments)[0]
            torch.save({"arguments": arguments, "output": output}, "expected.pt")
            for path in [*Path("data").rglob("*.bin"), *Path("data").rglob("*.idx")]:
                path.unlink()
            with tarfile.open(HERE / f"{role}.tar.xz", "w:xz") as archive:
                for name in ("data", "out/checkpoint_best.pt", "expected.pt"):
                    archive.add(name)


if __name__ == "__main__":
    main(sys.argv[1:])
