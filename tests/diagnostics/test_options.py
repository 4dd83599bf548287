"""Options that no model can be built with, and errors in a training on several GPUs."""

import pickle
import queue
import time
from types import SimpleNamespace

import pytest
from fairseq.data import Dictionary
from fairseq.data.iterators import BackgroundConsumer
from fairseq.distributed import utils as distributed
from fairseq.models import MODEL_REGISTRY
from omegaconf import OmegaConf

from fairseq_casrnn.checks.task_fit import check_fit
from fairseq_casrnn.diagnostics import explain
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.patches import install, messages
from fairseq_casrnn.patches.table import TABLE

TINY = {
    f"{side}_{what}": 8 for side in ("encoder", "decoder") for what in ("embed_dim", "hidden_size")
} | {"decoder_out_embed_dim": 8, "max_source_positions": 10, "max_target_positions": 10}


def dictionary(words: str) -> Dictionary:
    made = Dictionary()
    for word in words.split():
        made.add_symbol(word)
    return made


def build(cell: str, **options):
    """A tiny model of ``cell`` with ``options``, for dictionaries of 8 and 7 words."""
    task = SimpleNamespace(
        source_dictionary=dictionary("a b c d"),
        target_dictionary=dictionary("A B C"),
        cfg=SimpleNamespace(left_pad_target=False),
        begin_epoch=lambda epoch, model: None,
    )
    model = MODEL_REGISTRY[cell]
    config = OmegaConf.merge(OmegaConf.structured(model.__dataclass), TINY, options)
    return model.build_model(config, task)


@pytest.mark.parametrize(
    ("arch", "option", "name"),
    [
        ("cas_lstm", "task", "multilingual_translation"),
        ("dg_lstm_iwslt", "task", "semisupervised_translation"),
        ("cas_lstm", "criterion", "wav2vec"),
        ("cas_lstm_lm", "task", "translation"),
        ("stacked_gru_lm_ptb", "criterion", "masked_lm"),
    ],
)
def test_incompatible_tasks_and_criterions(arch, option, name):
    sentence = f"^--arch and --{option} do not fit: {arch} cannot be trained with {name}; give"
    with pytest.raises(UserError, match=sentence):
        check_fit(**{"arch": arch, "task": None, "criterion": None, option: name})


@pytest.mark.parametrize(
    ("arch", "task", "criterion"),
    [
        ("cas_lstm", "translation", "label_smoothed_cross_entropy"),
        ("cas_lstm_lm", "stateful_language_modeling", "fused_cross_entropy"),
        ("cas_lstm_sentence_encoder", "sentence_classification", "sentence_classification"),
        ("transformer", "multilingual_translation", "nat_loss"),
        ("no_such_arch", "no_such_task", "no_such_criterion"),
    ],
)
def test_compatible_tasks_and_criterions(arch, task, criterion):
    check_fit(arch, task, criterion)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (LookupError(">>> nltk.download('punkt_tab')"), "NLTK lacks the data 'punkt_tab'; run"),
        (
            TypeError('"hypothesis" expects pre-tokenized'),
            "--scoring meteor does not work with the",
        ),
        (NotImplementedError("--post-process=x is not implemented"), "--post-process=x is not imp"),
        (ImportError("Please install DeepSpeed: pip install"), "Please install DeepSpeed: pip in"),
        (ImportError("cannot import name 'x' from 'y'"), None),
    ],
)
def test_errors_of_other_libraries(error, sentence):
    found = explain.explain(error)
    assert found == sentence or found.startswith(sentence)


def test_optimizer_without_half_precision():
    error = ValueError("Unsupported optimizer: TorchAdam")
    assert "do not work with this --optimizer; use --optimizer adam" in explain.explain(error)


@pytest.mark.parametrize("target", ["self", "past"])
def test_other_targets_of_a_language_model(target):
    error = ValueError(f"Unsupported language modeling target: {target}")
    assert explain.explain(error).startswith(
        f"--{target}-target needs a bidirectional language model"
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        *(
            ({f"{side}_{what}": value}, rf"^--{side}-{what.replace('_', '-')} is {value}; it must")
            for side, what in (
                ("encoder", "layers"),
                ("encoder", "hidden_size"),
                ("encoder", "embed_dim"),
                ("decoder", "layers"),
                ("decoder", "hidden_size"),
                ("decoder", "out_embed_dim"),
            )
            for value in (0, -1)
        ),
        *(
            ({name: value}, rf"^--{name.replace('_', '-')} is {value}; it must lie in \[0, 1\]")
            for name in ("dropout", "encoder_dropout_in", "decoder_dropout_out")
            for value in (-0.1, 1.1, float("nan"))
        ),
        *(
            ({f"{what}_range": value}, f"^--{what}-range is {value}; it must be greater than 0")
            for what in ("init", "embed")
            for value in (0.0, -0.1, float("inf"), float("nan"))
        ),
        *(
            ({"adaptive_softmax_cutoff": text}, f"^--adaptive-softmax-cutoff is '{text}'; it must")
            for text in ("7", "1000", "5,3", "5,5", "0,5", "-1", "five", "")
        ),
        ({"engine": "warp"}, "^engine 'warp' is unknown; choose from reference, eager"),
        ({"share_all_embeddings": True}, "needs a joined dictionary"),
        (
            {"share_decoder_input_output_embed": True, "decoder_embed_dim": 9},
            r"needs --decoder-embed-dim \(9\) equal to --decoder-out-embed-dim \(8\)",
        ),
        (
            {"share_decoder_input_output_embed": True, "adaptive_softmax_cutoff": "5"},
            "--adaptive-softmax-cutoff cannot share the output embedding",
        ),
    ],
)
def test_options_of_all_cells(options, sentence):
    build("stacked_gru")
    with pytest.raises(UserError, match=sentence):
        build("stacked_gru", **options)


@pytest.mark.parametrize(
    ("cell", "options", "sentence"),
    [
        *(
            ("cas_lstm", {"lam": lam}, rf"^--lam is '{lam}'; it must be a number in \[0, 1\], 'tr")
            for lam in ("1.5", "-0.1", "nan", "lots", "")
        ),
        ("second_order_lstm", {"num_cells": 0}, "^--num-cells is 0; it must be"),
        ("second_order_lstm", {"num_cells": -2}, "^--num-cells is -2; it must be"),
        ("second_order_lstm", {"temperature": 0}, "^--temperature and --temperature-floor must"),
        ("second_order_lstm", {"temperature": -1}, "^--temperature and --temperature-floor must"),
        ("second_order_lstm", {"temperature_floor": 0}, "^--temperature and --temperature-fl"),
        ("second_order_lstm", {"temperature": float("nan")}, "^--temperature and --temperature-fl"),
        ("second_order_lstm", {"temperature_decay": 0}, r"^--temperature-decay is 0.0; it must l"),
        ("second_order_lstm", {"temperature_decay": 2}, r"^--temperature-decay is 2.0; it must l"),
    ],
)
@pytest.mark.parametrize("layers", [1, 2])
def test_options_of_one_cell(cell, options, sentence, layers):
    """Named as on the command line, and refused even by a model too shallow to use them."""
    layers = {"encoder_layers": layers, "decoder_layers": layers}
    build(cell, **layers)
    with pytest.raises(UserError, match=sentence):
        build(cell, **layers, **options)


# --- the end of a process ----------------------------------------------------------------------


def collating(items, room: int) -> BackgroundConsumer:
    """Start a thread that puts ``items`` into a queue with ``room``, which nobody reads."""
    thread = BackgroundConsumer(queue.Queue(room), items, None, None)
    thread.daemon = True
    thread.start()
    return thread


def test_exit_waits_for_threads_that_collate_batches():
    def slowly():
        time.sleep(0.2)
        yield 1

    done, full = collating(slowly(), 9), collating(range(9), 2)
    start = time.monotonic()
    messages.wait_for_batches(60)
    assert not done.is_alive()
    assert full._queue.full()
    assert time.monotonic() - start < 30


# --- one process for each GPU ------------------------------------------------------------------


def test_errors_of_worker_processes_are_explained(monkeypatch):
    """The first process only receives the text of the traceback from torch."""
    import traceback

    errors = [FileNotFoundError(2, "No such file", "/nowhere"), UserError("do"), OSError("bug")]
    fairseq = {"__name__": "fairseq_cli.train", "errors": errors}
    exec("def main(*args):\n    raise errors.pop(0)", fairseq)
    monkeypatch.setattr(distributed, "distributed_main", fairseq["main"])
    install.apply(p for p in TABLE if p.target == "fairseq.distributed.utils.distributed_main")

    class ProcessRaisedException(Exception):
        pass

    def from_worker() -> ProcessRaisedException:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - a different exception each time
            distributed.distributed_main(0, None, None, {})
        return ProcessRaisedException("".join(traceback.format_exception(caught.value)))

    assert explain.explain(from_worker()) == "/nowhere does not exist; check the path"
    assert explain.explain(from_worker()) == "do"
    assert explain.explain(from_worker()) is None


def test_worker_function_can_be_pickled():
    """The new process imports this package before it knows --user-dir."""
    assert b"fairseq_casrnn.patches.messages" in pickle.dumps(messages.worker_with_messages)


def test_full_disk_while_copying_names_the_copy(tmp_path):
    """In Python's error the file that is read comes first."""
    error = OSError(28, "No space left on device", "checkpoint1.pt", None, "checkpoint_best.pt")
    sentence = explain.explain(error)
    assert sentence.startswith("could not write checkpoint_best.pt (No space left on device); free")
