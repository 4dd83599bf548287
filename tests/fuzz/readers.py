"""All readers of files: a small valid file for each, and a function that reads it."""

from __future__ import annotations

import argparse
import gzip
import io
import json
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import labelled_corpora
import tagged_corpora
import torch
from corpora import IWSLT_TESTS, iwslt_files, pairs, write_archive, write_multi30k, write_tatoeba
from fairseq import checkpoint_utils
from fairseq.data import Dictionary, data_utils, indexed_dataset
from helpers import unpack_golden
from hydra.errors import ConfigCompositionException

from fairseq_casrnn.analysis import dyck, syneval
from fairseq_casrnn.checks.text_files import count_lines
from fairseq_casrnn.data.corpora import (
    conll03,
    iwslt14,
    monolingual,
    mr,
    multi30k,
    nli,
    paraphrase,
    pos,
    reviews16,
    rte,
    sick,
    sst,
    tatoeba,
    trec,
)
from fairseq_casrnn.data.folder import is_prepared
from fairseq_casrnn.data.text import read_parallel
from fairseq_casrnn.diagnostics.explain import explained
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.evaluation import bleu, significance
from fairseq_casrnn.models.embedding import build_embedding
from fairseq_casrnn.models.routing import read_assignment
from fairseq_casrnn.prepare import classification as own_classification
from fairseq_casrnn.prepare import tagging as own_tagging
from fairseq_casrnn.report.predictions import read_predictions
from fairseq_casrnn.report.run_files import read_run
from fairseq_casrnn.reranking import apply
from fairseq_casrnn.reranking.nbest import header_line, read_nbest, read_scores
from fairseq_casrnn.results import add, markdown, rows
from fairseq_casrnn.results.page import Table, load_page
from fairseq_casrnn.runs import record, training_log
from fairseq_casrnn.tasks.data_folder import read_text_json
from hydra_plugins import casrnn_yaml

#: Fills a folder; returns the file that is to be damaged, and a function that reads it.
Case = Callable[[Path], tuple[Path, Callable[[], object]]]


def dictionary() -> Dictionary:
    words = Dictionary()
    for letter in "abcdefgh":
        words.add_symbol(letter)
    return words


def of_text(text: str, name: str, read: Callable[[Path], object]) -> Case:
    """A case whose file has this text."""

    def case(folder: Path):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        return folder / name, partial(read, folder / name)

    return case


OWN = [("ab"[n % 2], f"good{n},film{n}") for n in range(20)]


def own(name: str, text: str) -> Case:
    """A file for ``casrnn prepare``."""
    module = own_tagging if name == "x.txt" else own_classification

    def read(path: Path):
        parser = argparse.ArgumentParser()
        module.add_arguments(parser)
        args = parser.parse_args(["--train", str(path), "--out", "none"])
        chosen = (None,) if module is own_tagging else ()
        return module.read_corpus(args, *chosen)

    return of_text(text, name, read)


LIST = "".join(f"S-{n}\ta b\nT-{n}\tb a\nH-{n}\t-0.5\ta\nH-{n}\t-0.75\tb\n" for n in range(3))
RUNS = [{"seed": 1, "bleu": 9.5, "weights": [0.5, -0.25, 0.25]}]
WEIGHTS = {"runs": RUNS, "models": ["m"], "join_subwords": False, "sums": True}
RESULTS = [{"arch": "a", "seed": n, "bleu": 9.5, "beam": 5} for n in range(3)]
RECORD = {"system": "a", "seed": 1, "seconds": 3.5, "finished": True, "package": {"commit": "c"},
          "machine": {"cpu": "x", "cores": 2}, "best": {"a": 1}, "data": {"train": 3},
          "validation": [{"epoch": 1, "a": 2.5}], "evaluations": [{"a": 1.5}]}  # fmt: skip
ROW = {"table": "short", "system": "a", "settings": {"m": 3}, "metrics": {"test": 2.5}}
ROW |= {"curves": {"valid": [1.5, None]}, "minutes": 3, "date": "2026"}
ROWS = [{**ROW, "seed": n} for n in range(3)]
PAGE = load_page(Path(__file__).parents[2] / "results" / "ptb.yaml")
FLOORS = {"splits": {"test": {"floor": 2.5, "floor_of_samples": 2.4}}}
LOG = 'epoch 001 | loss 1.5 | num_updates 3\n{"epoch": 1, "train_loss": "2.5", '
LOG += '"train_num_updates": "4"}\nepoch 001 | valid on \'valid\' subset | loss 1 | num_updates 3\n'


def row_of_record(path: Path):
    """Read the file as ``casrnn results add`` does."""
    parser = argparse.ArgumentParser()
    add.add_arguments(parser)
    table = Table("t", metrics={"a": "A", "valid_a": "A"}, curves={"valid_a": "A"})
    return add.row_of(
        add.Run(path.parent, record.read(path.parent)), table, parser.parse_args(["x"])
    )


def scores(folder: Path):
    (folder / "list").write_text(LIST)
    nbest = read_nbest(folder / "list")
    lines = [header_line({"nbest": nbest.digest, "model": "m"}), *["-1.5\t3"] * 6]
    (folder / "scores").write_text("\n".join(lines))
    return folder / "scores", lambda: read_scores(folder / "scores", nbest)


def options(folder: Path):
    (folder / "data-bin").mkdir()
    path = folder / "data-bin" / "options.json"
    path.write_text(json.dumps({"program": "mr", "min_count": 1, "fold": 0, "source": "/x"}))
    args = argparse.Namespace(out=folder, force=False, program="mr", min_count=1, fold=0)
    return path, lambda: is_prepared(args)


def corpus(write: Callable, name: str, read: Callable[[Path], object]) -> Case:
    """One of the files of a corpus."""

    def case(folder: Path):
        raw = write(folder / "raw")
        return raw / name, lambda: read(raw)

    return case


def texts(folder: Path) -> Path:
    folder.mkdir()
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text("a b\nc <unk> d\n\ne\n")
    return folder


def parallel(name: str) -> Case:
    def case(folder: Path):
        raw = write_multi30k(folder / "raw", train=5, valid=4, test=3)
        files = [multi30k.find_file(raw, "train", lang) for lang in ("de", "en")]
        if name == "text":
            files = [path.with_suffix("") for path in files]
            for path in files:
                path.write_bytes(gzip.decompress(path.with_name(f"{path.name}.gz").read_bytes()))
        return files[0], lambda: read_parallel(*files)

    return case


def archive(compressed: bool) -> Case:
    def case(folder: Path):
        tests = {stem: [("Ein Satz.", "A sentence.")] for stem in IWSLT_TESTS}
        path = write_archive(folder / "a.tgz", iwslt_files(pairs(3), tests))
        if not compressed:
            plain = gzip.decompress(path.read_bytes())
            assert tarfile.is_tarfile(io.BytesIO(plain))
            path.write_bytes(plain)
        return path, lambda: iwslt14.read_raw(iwslt14.Archive(path))

    return case


def binarised(impl: str, ending: str) -> Case:
    """The index or the data of a binarised text."""

    def case(folder: Path):
        words, prefix = dictionary(), str(folder / "train")
        builder = indexed_dataset.make_builder(f"{prefix}.bin", impl, len(words))
        for size in (3, 1, 5, 2):
            builder.add_item(torch.tensor([*range(4, 4 + size), words.eos()], dtype=torch.int32))
        builder.finalize(f"{prefix}.idx")

        def read():
            found = data_utils.load_indexed_dataset(prefix, words, impl)
            return None if found is None else [found[i] for i in range(len(found))]

        return Path(f"{prefix}.{ending}"), read

    return case


def options_of_hydra(path: Path):
    """Read options as ``fairseq-hydra-train`` does, which explains errors in one sentence."""
    # imported here, since hydra imports this module again when it looks for plugins
    from hydra._internal.core_plugins.file_config_source import FileConfigSource

    casrnn_yaml.install()
    try:
        FileConfigSource("test", str(path.parent)).load_config(path.stem)
    except ConfigCompositionException as error:
        raise UserError(str(error)) from None


def load_dictionary(path: Path) -> Dictionary:
    with explained():
        return Dictionary.load(str(path))


def checkpoint(folder: Path):
    """A checkpoint of version 0.1.0."""
    unpack_golden("language_model.tar.xz", folder)
    path = folder / "out" / "checkpoint_best.pt"

    def read():
        with explained():
            return checkpoint_utils.load_model_ensemble_and_task(
                [str(path)], arg_overrides={"data": str(folder / "data")}
            )

    return path, read


def raw_data(path: Path):
    return data_utils.load_indexed_dataset(str(path), dictionary(), "raw")


L, T = labelled_corpora, tagged_corpora
VECTORS = "".join(f"{letter} 0.5 -1 2e-1\n" for letter in "abcdxyz")
CASES: dict[str, Case] = {
    "n-best list": of_text(LIST, "list", read_nbest),
    "scores": scores,
    "weights": of_text(json.dumps(WEIGHTS), "w.json", lambda path: apply.read_weights(path, 1)),
    "translations": of_text(LIST, "list", lambda path: bleu.read_generated(path, 3)),
    "word vectors": of_text(
        f"7 3\n{VECTORS}", "vectors", lambda path: build_embedding(dictionary(), 3, str(path))
    ),
    "assignment": of_text(
        "a 0\nb 1\nx 1\n", "cells", lambda path: read_assignment(str(path), dictionary(), 2)
    ),
    "options.json": options,
    "text.json": of_text(
        '{"tokenizer": "penn", "lowercase": true}', "text.json",
        lambda path: read_text_json(str(path.parent)),
    ),
    "results": of_text(
        "".join(json.dumps(line) + "\n" for line in RESULTS), "results.jsonl",
        lambda path: significance.table(significance.read_results([path], "bleu")),
    ),
    "run.json": of_text(json.dumps(RECORD), "run.json", row_of_record),
    "rows of results": of_text(
        "".join(json.dumps(line) + "\n" for line in ROWS), "page.jsonl",
        lambda path: markdown.page_text(PAGE, rows.read_rows(path)),
    ),
    "page of results": of_text(
        (Path(__file__).parents[2] / "results/ptb.yaml").read_text(), "page.yaml",
        lambda path: markdown.page_text(load_page(path), ROWS),
    ),
    "minimal pairs": of_text(
        "prep\tx\ta b\tb a\nsimple_npi\tx\ta\tb\tc\n", "pairs.tsv", syneval.read_pairs
    ),
    "dyck.json": of_text(
        json.dumps(FLOORS), "text/dyck.json",
        lambda path: dyck.read_floors(path.parents[1], "test"),
    ),
    "log": of_text(LOG, "log", training_log.read_log),
    "predictions": of_text(
        "gold\tpredicted\tprobability\ttext\na\tb\t0.75\tx\nb\tb\t1.0\ty\n", "predictions.tsv",
        lambda path: read_predictions(path).confusion(),
    ),
    "tags": of_text(
        "word\tgold\tpredicted\tprobability\n\nx\tO\tB-A\t0.75\ny\tO\tO\t0.75\n", "tags.tsv",
        lambda path: read_predictions(path).confusion(),
    ),
    "run in a report": of_text(
        '{"training": "fairseq-train d --lr 1", "seconds": 3, "evaluations": [{"accuracy": 5}]}',
        "run.json", lambda path: read_run(path.parent, "test"),
    ),
    "YAML of hydra": of_text(
        (Path(__file__).parents[2] / "examples/hydra/cas_lstm.yaml").read_text(),
        "options.yaml",
        options_of_hydra,
    ),
    "checkpoint": checkpoint,
    "dictionary": of_text("a 3\nb\u00a0c 2\n", "dict.txt", load_dictionary),
    "raw data": of_text("a b\nc <unk>\n", "train", raw_data),
    "text": of_text("a b\nc <unk>\n", "train", lambda path: count_lines(str(path))),
    "parallel text": parallel("text"),
    "parallel text, gzip": parallel("gzip"),
    "tgz": archive(True),
    "tar": archive(False),
    **{
        f"{impl} {ending}": binarised(impl, ending)
        for impl in ("mmap", "lazy") for ending in ("idx", "bin")
    },
    "monolingual": corpus(
        texts, "train.txt",
        lambda raw: monolingual.read_corpus(monolingual.CORPORA["ptb"], raw, any_size=True),
    ),
    "tatoeba": corpus(
        lambda raw: raw.mkdir() or write_tatoeba(raw / "cmn.txt", 9).parent, "cmn.txt",
        lambda raw: tatoeba.read_pairs(raw / "cmn.txt"),
    ),
    "mr": corpus(L.write_mr, "rt-polarity.neg", lambda raw: mr.read_corpus(raw, 0, 1)),
    "trec": corpus(L.write_trec, "TREC_10.label", lambda raw: trec.read_corpus(raw, True, 5, 1)),
    "sst": corpus(L.write_sst, "dev.txt", lambda raw: sst.read_corpus(raw, 2)),
    "snli": corpus(
        L.write_nli, "snli_1.0_dev.jsonl",
        lambda raw: nli.read_corpus(raw, "snli", False, 5, 1),
    ),
    "snli.txt": corpus(
        partial(L.write_nli, form="txt"), "snli_1.0_dev.txt",
        lambda raw: nli.read_corpus(raw, "snli", False, 5, 1),
    ),
    "snli, plain": corpus(
        L.write_plain_nli, "labels.dev", lambda raw: nli.read_corpus(raw, "snli", True, 5, 1)
    ),
    "quora": corpus(L.write_quora, "dev.tsv", paraphrase.read_quora),
    "mrpc": corpus(
        L.write_mrpc, "msr_paraphrase_test.txt", lambda raw: paraphrase.read_mrpc(raw, 5, 1)
    ),
    "sick": corpus(L.write_sick, "SICK_trial.txt", sick.read_corpus),
    "rte": corpus(L.write_rte, "dev.tsv", lambda raw: rte.read_corpus(raw, 5, 1)),
    "reviews16": corpus(
        L.write_reviews, "MR.task.test", lambda raw: reviews16.read_corpus(raw, "MR", 5, 1)
    ),
    "conll03": corpus(
        T.write_conll03, "valid.txt", lambda raw: conll03.read_corpus(raw, "ner")
    ),
    "pos": corpus(T.write_pos, "en_ewt-ud-dev.conllu", lambda raw: pos.read_corpus(raw, "upos")),
    "own TSV": own("x.tsv", "".join(f"{label}\t{text}\n" for label, text in OWN)),
    "own CSV": own("x.csv", "".join(f'{label},"{text}"\n' for label, text in OWN)),
    "own JSON": own(
        "x.jsonl",
        "".join(json.dumps({"label": label, "text": text}) + "\n" for label, text in OWN),
    ),
    "own columns": own(
        "x.txt", "".join(f"{text} B-{label}\n\n" for label, text in OWN).replace(",", " O\n")
    ),
}  # fmt: skip
