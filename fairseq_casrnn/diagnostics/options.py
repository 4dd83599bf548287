"""Explain mistakes with options and their values."""

import json
import re

from fairseq_casrnn.diagnostics.frames import Rules, frame_local
from fairseq_casrnn.diagnostics.names import suggestion
from fairseq_casrnn.errors import as_option

TRAIN = "fairseq_cli.train"


def _no_raw_text(error: AttributeError) -> str | None:
    """``--replace-unk`` without the raw text."""
    from fairseq.data import FairseqDataset

    of_data = isinstance(error.obj, FairseqDataset) and error.name in ("src", "tgt")
    if error.name != "get_original_text" and not of_data:
        return None
    return (
        "--replace-unk needs source and target of the subset as raw text (--dataset-impl raw), "
        "without --truncate-source; change that, use fairseq-interactive, or drop --replace-unk"
    )


def _no_attention(error: IndexError) -> str | None:
    generate = "fairseq.sequence_generator.SequenceGeneratorWithAlignment.generate"
    if frame_local(error, generate, "self") is None or "Dimension out" not in str(error):
        return None
    return "--print-alignment needs a model with attention, but this one has none; drop the option"


def _prefix_of_several_sentences(error: AssertionError) -> str | None:
    prefix = "fairseq.sequence_generator.SequenceGenerator._prefix_tokens"
    if str(error) or frame_local(error, prefix, "prefix_toks") is None:
        return None
    return (
        "fairseq-generate continues single sentences, but the given prefix contains the end of a "
        "sentence; give --sample-break-mode eos, or a smaller --prefix-size"
    )


def _no_refinement(error: AttributeError) -> str | None:
    generate = "fairseq.iterative_refinement_generator.IterativeRefinementGenerator.generate"
    if frame_local(error, generate, "self") is None:
        return None
    return (
        "--task translation_lev needs a model that refines its output iteratively, unlike this "
        "one; give the task that it was trained with"
    )


def _unknown_to_hydra(error: Exception) -> str | None:
    """Components that fairseq's command line accepts although their options are missing."""
    found = re.search(r"Could not find '(\w+)/(\w+)'", str(error))
    if found and type(error).__name__ == "MissingConfigException":
        return f"{as_option(found[1])} {found[2]} does not work in this fairseq; drop it"
    if getattr(error, "full_key", None) == "groups.default":
        return "--optimizer composite needs options for groups of parameters; drop it"
    return None


def _other_targets(error: ValueError) -> str | None:
    found = re.fullmatch(r"Unsupported language modeling target: (\w+)", str(error))
    if found is None:
        return None
    return (
        f"--{found[1]}-target needs a bidirectional language model, but this one predicts the next "
        "token; drop the option"
    )


def _missing_choice(error: ValueError) -> str | None:
    """A component without a default."""
    found = re.fullmatch(r"(\w+) is required!", str(error))
    return f"{as_option(found[1])} is missing; give it" if found else None


def _no_language_model_task(error: AttributeError) -> str | None:
    if error.name != "eval_lm_dataloader":
        return None
    return (
        "fairseq-eval-lm is for language models; give --task language_modeling or "
        "stateful_language_modeling, or use fairseq-validate for another --task"
    )


def _no_tpu(error: AttributeError) -> str | None:
    return "--tpu needs torch_xla; install it, or drop --tpu" if "xla" in str(error) else None


def _missing_value(error: Exception) -> str | None:
    key = getattr(error, "full_key", None)
    if not key or type(error).__name__ != "MissingMandatoryValue":
        return None
    return f"{as_option(key)} is missing; give it a value"


def _no_data(error: Exception) -> str | None:
    """``fairseq-hydra-train`` without ``task.data``, whose default in fairseq is None."""
    cfg = frame_local(error, f"{TRAIN}.main", "cfg")
    if getattr(getattr(cfg, "task", None), "data", "") is not None:
        return None
    return "task.data is missing; give it the folder that fairseq-preprocess wrote"


def _unfit_task(error: Exception) -> str | None:
    """An option that is interpolated from a task or criterion that does not have it."""
    found = re.search(r"Interpolation key '(task|criterion)\.(\w+)' not found", str(error))
    if found is None:
        return None
    option = as_option(found[2])
    if found[1] == "criterion":
        return (
            f"--task and --criterion do not fit: the task needs a criterion with {option}; for "
            "this package's sentence encoders give --task and --criterion sentence_classification"
        )
    return (
        f"--arch and --task do not fit: the architecture needs a task with {option}; give the "
        "task it is made for, such as translation or language_modeling, or another --arch"
    )


def _wrong_type(error: Exception) -> str | None:
    """A value in a YAML file; argparse reports those on the command line, unless missing."""
    key = getattr(error, "full_key", None)
    if not key or type(error).__name__ != "ValidationError":
        return None
    if str(error).splitlines()[0].endswith("is not Optional"):
        return f"{as_option(key.rpartition('.')[2])} is missing; give it a value"
    return f"option {key}: {str(error).splitlines()[0]}; give it a value of that type"


def _unknown_key(error: Exception) -> str | None:
    """A misspelt option in a YAML file; argparse reports those on the command line."""
    known = frame_local(error, "fairseq.dataclass.utils.merge_with_parent", "dc")
    if known is None or type(error).__name__ != "ConfigKeyError":
        return None
    key = error.full_key.rpartition(".")[2]  # type: ignore[attr-defined]
    return f"unknown option '{key}'; {suggestion(key, known.__dataclass_fields__)}"


def _missing_metric(error: KeyError) -> str | None:
    """``--best-checkpoint-metric`` is not among the metrics of a validation."""
    cfg = frame_local(error, f"{TRAIN}.validate", "cfg")
    found = [
        frame_local(error, f"{TRAIN}.{name}", "stats") for name in ("get_valid_stats", "validate")
    ]
    stats = next((one for one in found if one is not None), None)
    if stats is None or error.args != (cfg.checkpoint.best_checkpoint_metric,):
        return None
    known = sorted(set(stats) - {"wps", "wpb", "bsz", "num_updates", "_confusion"})
    return (
        f"validation gives no '{error.args[0]}', which --best-checkpoint-metric asks for; it gives "
        f"{', '.join(known)}: choose one of them, or another --criterion"
    )


def _malformed_value(error: json.JSONDecodeError) -> str | None:
    return f"{error.doc} is not JSON ({error}); check options such as --eval-bleu-args"


def _no_memory_efficient(error: ValueError) -> str | None:
    if not str(error).startswith("Unsupported optimizer: "):
        return None
    return (
        "--memory-efficient-fp16 and --memory-efficient-bf16 do not work with this --optimizer; "
        "use --optimizer adam, or --fp16 or --bf16"
    )


RULES: Rules = (
    (KeyError, _missing_metric),
    (ValueError, _no_memory_efficient),
    (ValueError, _missing_choice),
    (AttributeError, _no_refinement),
    (IndexError, _no_attention),
    (AssertionError, _prefix_of_several_sentences),
    (Exception, _unknown_to_hydra),
    (ValueError, _other_targets),
    (AttributeError, _no_tpu),
    (AttributeError, _no_language_model_task),
    (AttributeError, _no_raw_text),
    (Exception, _missing_value),
    ((AttributeError, TypeError), _no_data),
    (Exception, _unfit_task),
    (Exception, _wrong_type),
    (Exception, _unknown_key),
    (json.JSONDecodeError, _malformed_value),
)
