"""Mistakes with options and their values."""

import json
import re

from fairseq_casrnn.diagnostics.frames import Rules, local


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
    if local(error, "setup_task", "cfg") is not None:  # that of data, from a file of options
        return "task.data is missing; give it the folder that fairseq-preprocess wrote"
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


def _no_raw_text(error: AttributeError) -> str | None:
    """``--replace-unk`` of text that is not there, or no longer as it stands."""
    if local(error, "_main", "align_dict") is None:
        return None
    if getattr(error, "name", None) not in ("get_original_text", "src", "tgt"):
        return None
    return (
        "--replace-unk needs source and target of the subset as raw text, without "
        "--truncate-source; change that, use fairseq-interactive, or drop --replace-unk"
    )


def _no_attention(error: IndexError) -> str | None:
    generator = type(local(error, "generate", "self")).__name__
    if generator != "SequenceGeneratorWithAlignment" or "Dimension out of range" not in str(error):
        return None
    return "--print-alignment needs a model with attention, and this one has none; drop the option"


def _prefix_of_several_sentences(error: AssertionError) -> str | None:
    if str(error) or local(error, "_prefix_tokens", "prefix_toks") is None:
        return None
    return (
        "fairseq-generate continues single sentences, and the beginning it is given holds the end "
        "of one; give --sample-break-mode eos, or a smaller --prefix-size"
    )


def _no_refinement(error: AttributeError) -> str | None:
    if type(local(error, "generate", "self")).__name__ != "IterativeRefinementGenerator":
        return None
    return (
        "--task translation_lev needs a model that refines its output iteratively, and this one "
        "does not; give the task that it was trained with"
    )


def _unknown_to_hydra(error: Exception) -> str | None:
    """Components that fairseq has on its command line, but not the options for."""
    found = re.search(r"Could not find '(\w+)/(\w+)'", str(error))
    if found and type(error).__name__ == "MissingConfigException":
        return f"--{found[1].replace('_', '-')} {found[2]} does not work in this fairseq; drop it"
    if getattr(error, "full_key", None) == "groups.default":
        return "--optimizer composite needs options of its own for groups of parameters; drop it"
    return None


def _other_targets(error: ValueError) -> str | None:
    found = re.fullmatch(r"Unsupported language modeling target: (\w+)", str(error))
    if found is None:
        return None
    return (
        f"--{found[1]}-target needs a language model that reads in both directions, and this one "
        "predicts the next token; drop the option"
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


def _no_references(error: KeyError) -> str | None:
    scorer = type(local(error, "generate", "self")).__name__
    if error.args != ("target",) or scorer != "SequenceScorer":
        return None
    return (
        "--score-reference needs references, and fairseq-interactive reads none; use "
        "fairseq-generate, or drop the option"
    )


def _no_memory_efficient(error: ValueError) -> str | None:
    if not str(error).startswith("Unsupported optimizer: "):
        return None
    return (
        "--memory-efficient-fp16 and --memory-efficient-bf16 do not work with this --optimizer; "
        "use --optimizer adam, or --fp16 or --bf16"
    )


def _no_streams(error: AssertionError) -> str | None:
    """fairseq asks for either of two options, of which streams take one."""
    task = getattr(local(error, "main", "cfg"), "task", None)
    if "Must specify batch size" not in str(error) or task is None:
        return None
    if task._name != "stateful_language_modeling" or task.sentence_reset:
        return None
    return "--batch-size is missing; give the number of streams of each worker"


RULES: Rules = (
    (AssertionError, _no_streams),
    (KeyError, _no_references),
    (ValueError, _no_memory_efficient),
    ((AttributeError, TypeError), _no_path),
    (RuntimeError, _beyond_the_vocabulary),
    (TypeError, _no_constraints),
    (KeyError, _no_iterations),
    (AssertionError, _no_total),
    ((KeyError, RuntimeError), _no_task_or_arch),
    (ValueError, _missing_choice),
    (AttributeError, _no_refinement),
    (IndexError, _no_attention),
    (AssertionError, _prefix_of_several_sentences),
    (Exception, _unknown_to_hydra),
    (ValueError, _other_targets),
    (AttributeError, _no_bf16),
    (AttributeError, _no_raw_text),
    ((AssertionError, RuntimeError), _no_fp16),
    (Exception, _missing_value),
    (Exception, _unfit_task),
    (Exception, _wrong_type),
    ((ValueError, SyntaxError), _malformed_value),
)
