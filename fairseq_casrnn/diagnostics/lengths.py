"""Explain mistakes with the lengths of sentences."""

import re
from collections.abc import Iterable, Mapping

from fairseq_casrnn.diagnostics.frames import GENERATE, Rules, frame_local

EVALUATE = "fairseq_casrnn.evaluation.evaluate_translation._run_generate"

POSITIONS = "--max-source-positions and --max-target-positions"


def _limits(error: Exception) -> str:
    """The options that limit the length of sentences."""
    task = frame_local(error, "fairseq.tasks.fairseq_task.FairseqTask.get_batch_iterator", "self")
    if hasattr(getattr(task, "cfg", None), "max_positions"):
        return "--max-positions"
    if hasattr(getattr(task, "args", None), "tokens_per_sample"):
        return "--max-tokens, --tokens-per-sample and --max-target-positions"
    return POSITIONS


def _decisive_max_tokens(error: Exception) -> int | None:
    """``--max-tokens`` in training, if task and model allow sentences that are longer than that."""
    trainer = frame_local(error, "fairseq.trainer.Trainer.get_train_iterator", "self")
    limit = None if trainer is None else trainer.cfg.dataset.max_tokens
    if limit is None:
        return None
    allowed = (trainer.task.max_positions(), trainer.model.max_positions())
    maxima = [one for limits in allowed for one in _flat(limits) if one is not None]
    return limit if all(one > limit for one in maxima) else None


def _flat(limits) -> Iterable[int | None]:
    """The numbers in a result of ``max_positions``: a number, several, or several by language."""
    if isinstance(limits, Mapping):
        limits = list(limits.values())
    if isinstance(limits, list | tuple):
        return [one for part in limits for one in _flat(part)]
    return [limits]


def _nothing_left(error: Exception) -> str | None:
    if not str(error).startswith("The dataset is empty."):
        return None
    if (limit := _decisive_max_tokens(error)) is not None:
        return (
            f"no sentence is left to train on: all have more than --max-tokens {limit} tokens; "
            "raise --max-tokens or split the sentences"
        )
    return (
        f"no sentence is left to train on: all are longer than {_limits(error)} allow; raise the "
        "limit or split the sentences"
    )


def _nothing_translated(error: ZeroDivisionError) -> str | None:
    """``--skip-invalid-size-inputs-valid-test`` skipped all sentences; fairseq divides by zero."""
    if getattr(frame_local(error, GENERATE, "gen_timer"), "n", None) != 0:
        return None
    cfg = frame_local(error, GENERATE, "cfg")
    subset, shards = cfg.dataset.gen_subset, cfg.dataset.num_shards
    if shards > 1:
        return (
            f"no batch of '{subset}' is left for --shard-id {cfg.dataset.shard_id}; lower "
            f"--num-shards {shards}, or use smaller batches with --batch-size"
        )
    return (
        f"no sentence of '{subset}' is left to translate: all are longer than {POSITIONS} allow; "
        "raise the limit or split the sentences"
    )


def _longer_than_a_batch(error: AssertionError) -> str | None:
    batch = "fairseq.data.data_utils.batch_by_size"
    lengths, limit = (frame_local(error, batch, name) for name in ("num_tokens_vec", "max_tokens"))
    if not str(error).startswith("Sentences lengths should not exceed") or lengths is None:
        return None
    return (
        f"a sentence of {max(lengths)} tokens does not fit into a batch of --max-tokens {limit}; "
        f"raise --max-tokens, or leave long sentences out with {_limits(error)}"
    )


def _subset(error: Exception) -> str | None:
    """The split that is validated or translated."""
    if cfg := frame_local(error, GENERATE, "cfg"):
        return cfg.dataset.gen_subset
    return frame_local(error, "fairseq.trainer.Trainer.get_valid_iterator", "subset")


def _longer_than_the_model_allows(error: Exception) -> str | None:
    found = re.match(r"Size of sample #(\d+) is invalid \(=(.*)\) since max_positions=(.*), skip",
                     str(error))  # fmt: skip
    if not found:
        return None
    # The number of sentences before this buffer.
    first = frame_local(error, "fairseq_cli.interactive.main", "start_id")
    where = f"sentence {int(found[1]) + 1 + (first or 0)}"
    if subset := _subset(error):
        where += f" of '{subset}'"
    lengths = [int(n) for n in re.findall(r"\d+(?=\)|,|$)", found[2])]
    lengths = [n for n in lengths if n > 0]  # no target: 0
    remedy = "leave it out with --skip-invalid-size-inputs-valid-test"
    if frame_local(error, EVALUATE, "command"):  # scores are of the whole test set
        remedy = "train with higher ones"
    return (
        f"{where} has {' and '.join(map(str, lengths))} tokens, more than the model's "
        f"{_limits(error)} {found[3]}; split it, or {remedy}"
    )


RULES: Rules = (
    (Exception, _nothing_left),
    (ZeroDivisionError, _nothing_translated),
    (AssertionError, _longer_than_a_batch),
    (Exception, _longer_than_the_model_allows),
)
