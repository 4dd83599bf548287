"""Mistakes with data, sentence lengths and option values, as ``explain`` wants them."""

import json
import os
import re
from collections.abc import Callable

Sentence = Callable[[BaseException], str | None]

POSITIONS = "--max-source-positions and --max-target-positions"


def local(error: BaseException, function: str, variable: str):
    """The value of ``variable`` in the innermost frame of ``function`` that ``error`` crossed."""
    value, traceback = None, error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        if frame.f_code.co_name == function:
            value = frame.f_locals.get(variable, value)
        traceback = traceback.tb_next
    return value


# --- data --------------------------------------------------------------------------------------


def _unknown_languages(error: Exception) -> str | None:
    paths = local(error, "setup_task", "paths")
    if not paths or "Could not infer language pair" not in str(error):
        return None
    return (
        f"{paths[0]} holds no binarised translation data (SPLIT.SOURCE-TARGET.*); check the "
        "folder, or fill it with fairseq-preprocess"
    )


def _odd_lengths(error: AssertionError) -> str | None:
    source = local(error, "load_langpair_dataset", "src_dataset")
    target = local(error, "load_langpair_dataset", "tgt_dataset")
    if source is None or target is None or len(source) == len(target):
        return None
    prefix = local(error, "load_langpair_dataset", "prefix")
    return (
        f"{prefix}{local(error, 'load_langpair_dataset', 'src')} has {len(source)} sentences but "
        f"{prefix}{local(error, 'load_langpair_dataset', 'tgt')} has {len(target)}; run "
        "fairseq-preprocess again, on files of equally many lines"
    )


def _bad_index(error: AssertionError) -> str | None:
    path = local(error, "make_dataset", "path")
    if path is None or not str(error).startswith("Index file doesn't match expected format"):
        return None
    return (
        f"{path}.idx is not an index of fairseq-preprocess; run it again, into a new folder, or "
        "check --dataset-impl"
    )


def _no_cache(error: KeyError) -> str | None:
    """fairseq 0.12.3 looks at the first batch before it has read any."""
    data = local(error, "__getitem__", "self")
    if not hasattr(data, "cache_index") or local(error, "first_batch", "self") is None:
        return None
    return (
        f"{data.path}.bin cannot be trained on with --dataset-impl cached; give --dataset-impl "
        "lazy, which reads the same files"
    )


def _bad_dictionary(error: Exception) -> str | None:
    name = getattr(local(error, "add_from_file", "f"), "name", None)
    line = re.search(r"expected '<token> <cnt> \[flags]': \"(.*)\"", str(error), re.DOTALL)
    twice = re.search(r"Duplicate word found when loading Dictionary: '(.*?)'\. ", str(error))
    if name is None or not (line or twice):
        return None
    what = f"lists '{twice[1]}' twice" if twice else f"has a line without a count, '{line[1]}'"
    return f"{name} {what}; use the dictionary that fairseq-preprocess wrote"


def _existing_dictionary(error: FileExistsError) -> str | None:
    if local(error, "main", "args") is None or error.filename is not None:
        return None
    return f"{error} exists already; give another --destdir, or use it with --srcdict and --tgtdict"


def _invalid_utf8(error: UnicodeDecodeError) -> str | None:
    """In the input of ``fairseq-interactive``, which is decoded some lines ahead."""
    name, reader = local(error, "buffered_read", "input"), local(error, "buffered_read", "h")
    if reader is None:
        return None
    # Nothing of the line that the reader is waiting for has been given out yet.
    line = reader.lineno() + 1 + error.object[: error.start].count(b"\n")
    name = "the input" if name == "-" else name
    return f"{name}, line {line} is not valid UTF-8; convert it to UTF-8"


def system_error(error: OSError) -> str | None:
    """Any other trouble with a file that the system names."""
    if found := re.fullmatch(r"file (.*) not found", str(error)):
        return f"{found[1]} does not exist; check the path"
    if error.errno is None or error.filename is None:
        return None
    return f"{os.fspath(error.filename)} cannot be used ({error.strerror}); check the path"


# --- lengths -----------------------------------------------------------------------------------


def _limits(error: Exception) -> str:
    """The options that say how long a sentence may be."""
    task = local(error, "get_batch_iterator", "self")
    if hasattr(getattr(task, "cfg", None), "max_positions"):
        return "--max-positions"
    if hasattr(getattr(task, "args", None), "tokens_per_sample"):
        return "--max-tokens, --tokens-per-sample and --max-target-positions"
    return POSITIONS


def _nothing_left(error: Exception) -> str | None:
    if not str(error).startswith("The dataset is empty."):
        return None
    return (
        f"no sentence is left to train on, each is longer than {_limits(error)} allow; raise the "
        "limit or split the sentences"
    )


def _nothing_translated(error: ZeroDivisionError) -> str | None:
    """``--skip-invalid-size-inputs-valid-test`` left all out, and fairseq asks for the speed."""
    if getattr(local(error, "_main", "gen_timer"), "n", None) != 0:
        return None
    subset = local(error, "_main", "cfg").dataset.gen_subset
    return (
        f"no sentence of '{subset}' is left to translate, each is longer than {POSITIONS} allow; "
        "raise the limit or split the sentences"
    )


def _longer_than_a_batch(error: AssertionError) -> str | None:
    lengths = local(error, "batch_by_size", "num_tokens_vec")
    if not str(error).startswith("Sentences lengths should not exceed") or lengths is None:
        return None
    return (
        f"a sentence of {max(lengths)} tokens does not fit into a batch of --max-tokens "
        f"{local(error, 'batch_by_size', 'max_tokens')}; raise --max-tokens, or leave long "
        f"sentences out with {_limits(error)}"
    )


def _longer_than_the_model_allows(error: Exception) -> str | None:
    found = re.match(r"Size of sample #(\d+) is invalid \(=(.*)\) since max_positions=(.*), skip",
                     str(error))  # fmt: skip
    if not found:
        return None
    first = local(error, "main", "start_id")  # sentences before this buffer, if interactive
    where = f"sentence {int(found[1]) + 1 + (first or 0)}"
    lengths = [int(n) for n in re.findall(r"\d+(?=\)|,|$)", found[2])]
    lengths = [n for n in lengths if n > 0]  # no target: 0
    return (
        f"{where} has {' and '.join(map(str, lengths))} tokens, more than the model's "
        f"{_limits(error)} {found[3]}; split it, or leave it out with "
        "--skip-invalid-size-inputs-valid-test"
    )


# --- options -----------------------------------------------------------------------------------


def no_beam(error: Exception) -> str | None:
    """``--beam 0``, over which a layer or fairseq's search stumbles: there is no sentence."""
    beam = getattr(local(error, "_generate", "self"), "beam_size", None)
    return f"--beam is {beam}; it must be at least 1" if beam is not None and beam < 1 else None


def _no_path(error: AttributeError | TypeError) -> str | None:
    """Without ``--path``, of which ``fairseq-generate`` alone takes notice."""
    crossed = (
        local(error, "split_paths", "separator"),
        local(error, "get_maybe_sharded_checkpoint_filename", "num_shards"),
    )
    if not any(crossed) or "'NoneType'" not in str(error):
        return None
    return "--path is missing; give it the file of a checkpoint"


def _beyond_the_vocabulary(error: RuntimeError) -> str | None:
    """``--sampling-topk`` beyond the vocabulary."""
    top = getattr(local(error, "step", "self"), "sampling_topk", None)
    words = local(error, "step", "vocab_size")
    if top is None or words is None or top <= words:
        return None
    return (
        f"--sampling-topk is {top}; it must not be greater than the size of the target "
        f"dictionary, {words}"
    )


def _no_constraints(error: TypeError) -> str | None:
    if not local(error, "init_constraints", "beam_size"):
        return None
    if local(error, "init_constraints", "batch_constraints") is not None:
        return None
    return (
        "--constraints needs words for each sentence, which only fairseq-interactive reads, after "
        "a tab in its line; use that program, or drop the option"
    )


def _no_iterations(error: KeyError) -> str | None:
    option = {"steps": "--print-step", "history": "--retain-iter-history"}.get(error.args[0])
    if option is None or not isinstance(local(error, "_main", "hypo"), dict):
        return None
    return (
        f"{option} needs a model that refines its output iteratively, and this one does not; "
        "drop the option"
    )


def _no_total(error: AssertionError) -> str | None:
    """``--lr-scheduler polynomial_decay`` asserts without a word."""
    total = getattr(local(error, "__init__", "cfg"), "total_num_update", None)
    if str(error) or total is None or total > 0:
        return None
    return f"--total-num-update is {total}; it must be at least 1"


def _no_task_or_arch(error: KeyError | RuntimeError) -> str | None:
    """Without ``--task`` or ``--arch``, fairseq's parser fails with hardly a word."""
    if local(error, "parse_args_and_arch", "parser") is None or error.args not in ((None,), ()):
        return None
    what = "--task is missing; give it, for example --task translation"
    return what if error.args else "--arch is missing; give it, for example --arch cas_lstm"


def _missing_choice(error: ValueError) -> str | None:
    """A component that fairseq has no default for."""
    found = re.fullmatch(r"(\w+) is required!", str(error))
    return f"--{found[1].replace('_', '-')} is missing; give it" if found else None


def _no_bf16(error: AttributeError) -> str | None:
    if "xla_device" not in str(error):
        return None
    return "--bf16 and --tpu need a GPU or a TPU; drop the option"


def _no_fp16(error: Exception) -> str | None:
    trainer = local(error, "_build_optimizer", "self")
    if trainer is None or not re.search("CUDA|NVIDIA", str(error)):
        return None
    if trainer.cuda:
        return None
    return "--fp16 needs a GPU, and this training uses none; drop the option"


def _missing_value(error: Exception) -> str | None:
    key = getattr(error, "full_key", None)
    if not key or type(error).__name__ != "MissingMandatoryValue":
        return None
    return f"--{key.replace('_', '-')} is missing; give it a value"


def _unfit_task(error: Exception) -> str | None:
    """An option read from another part of the configuration, which does not have it."""
    found = re.search(r"Interpolation key '(task|criterion)\.(\w+)' not found", str(error))
    if found is None:
        return None
    option = "--" + found[2].replace("_", "-")
    if found[1] == "criterion":
        return (
            f"--task and --criterion do not fit: the task needs a criterion with {option}; this "
            "package's sentence encoders have --task and --criterion sentence_classification"
        )
    return (
        f"--arch and --task do not fit: the architecture needs a task with {option}; give the "
        "task it is made for, such as translation or language_modeling, or another --arch"
    )


def _wrong_type(error: Exception) -> str | None:
    """A value in a YAML file; on the command line argparse finds it first, unless it is missing."""
    key = getattr(error, "full_key", None)
    if not key or type(error).__name__ != "ValidationError":
        return None
    if str(error).splitlines()[0].endswith("is not Optional"):
        option = key.rpartition(".")[2].replace("_", "-")
        return f"--{option} is missing; give it a value"
    return f"option {key}: {str(error).splitlines()[0]}; give it a value of that type"


def _malformed_value(error: Exception) -> str | None:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.doc} is not JSON ({error}); check --eval-bleu-args and its like"
    if local(error, "literal_eval", "node_or_string") is None:
        return None
    return (
        "an option takes a Python value and cannot be read; write --model-overrides and its like "
        "as \"{'name': 'text', 'other': 3}\""
    )


def _not_a_model(error: Exception) -> str | None:
    path = local(error, "load_checkpoint_to_cpu", "path")
    upgrading = local(error, "_upgrade_state_dict", "state") is not None
    if "Neither args nor cfg exist" in str(error):
        path, upgrading = local(error, "load_model_ensemble_and_task", "filename"), True
    if path is None or not upgrading:
        return None
    return f"{path} is not a checkpoint of fairseq-train; check the path"


def _no_subwords(error: Exception) -> str | None:
    if isinstance(error, UnicodeDecodeError):
        codes = getattr(local(error, "__init__", "cfg"), "bpe_codes", None)
        return codes and f"{codes} is not valid UTF-8; check --bpe-codes"
    model = local(error, "__init__", "sentencepiece_model")
    if model is None or isinstance(error, ImportError):
        return None
    return f"{model} is not a model of SentencePiece; check --sentencepiece-model"


def _diverged(error: FloatingPointError) -> str | None:
    if "Nan/Inf" not in str(error):
        return None
    return (
        "the gradients are not finite: the training has diverged; go on from an earlier "
        "checkpoint, with a lower --lr or with --clip-norm"
    )


def _no_finite_score(error: Exception) -> str | None:
    """Weights that are NaN: fairseq's search runs to the end without a single hypothesis."""
    ensemble = getattr(local(error, "_generate", "self"), "model", None)
    lost = re.search(r"^\d+ < \d+$|multinomial|probability tensor", str(error))
    if not (lost and hasattr(ensemble, "parameters")):
        return None
    if all(bool(weight.isfinite().all()) for weight in ensemble.parameters()):
        return None
    path = getattr(getattr(local(error, "main", "cfg"), "common_eval", None), "path", None)
    where = f"checkpoint {path}: " if path else ""
    return (
        f"{where}the scores are not finite, because the model's weights are not: its training "
        "probably diverged; use an earlier checkpoint, or train again with a lower --lr or with "
        "--clip-norm"
    )


def _all_hypotheses_lost(error: AssertionError) -> str | None:
    """The same search with weights that are finite."""
    step, last = local(error, "_generate", "step"), local(error, "_generate", "max_len")
    if step is None or str(error) != f"{step} < {last}":
        return None
    return (
        "no hypothesis of a sentence has a finite score; drop --fp16, --temperature, --unkpen or "
        "--no-repeat-ngram-size, or use an earlier checkpoint"
    )


def said_by_fairseq(error: Exception) -> str | None:
    """A message that fairseq has for its user, raised as the plainest of exceptions."""
    traceback = error.__traceback__
    if type(error) not in (Exception, AssertionError) or traceback is None or not str(error):
        return None
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    module = traceback.tb_frame.f_globals.get("__name__", "")
    words = re.findall(r"(?<!\S)[A-Za-z]{2,}(?=[,:;!?.]*(?:\s|$))", str(error))
    spoken = len(words) >= 2 and len(str(error)) < 300
    return str(error) if spoken and module.split(".")[0] in ("fairseq", "fairseq_cli") else None


RULES: tuple[tuple[type | tuple[type, ...], Sentence], ...] = (
    (Exception, _unknown_languages),
    (AssertionError, _odd_lengths),
    (AssertionError, _bad_index),
    (KeyError, _no_cache),
    ((ValueError, RuntimeError), _bad_dictionary),
    (FileExistsError, _existing_dictionary),
    (UnicodeDecodeError, _invalid_utf8),
    (Exception, _nothing_left),
    (ZeroDivisionError, _nothing_translated),
    (AssertionError, _longer_than_a_batch),
    (Exception, _longer_than_the_model_allows),
    ((AttributeError, TypeError), _no_path),
    (RuntimeError, _beyond_the_vocabulary),
    (TypeError, _no_constraints),
    (KeyError, _no_iterations),
    (AssertionError, _no_total),
    ((KeyError, RuntimeError), _no_task_or_arch),
    (ValueError, _missing_choice),
    (AttributeError, _no_bf16),
    ((AssertionError, RuntimeError), _no_fp16),
    (Exception, _missing_value),
    (Exception, _unfit_task),
    (Exception, _wrong_type),
    (Exception, _not_a_model),
    ((OSError, RuntimeError, UnicodeDecodeError), _no_subwords),
    (FloatingPointError, _diverged),
    ((AssertionError, RuntimeError), _no_finite_score),
    (AssertionError, _all_hypotheses_lost),
    ((ValueError, SyntaxError), _malformed_value),
)
