"""Ranges of options of fairseq's programs, and options that do not go together.

``BOUNDS`` is the table: options of fairseq and of this package that nothing else checks. To check
one more, add its line. All of fairseq's defaults must lie inside (its tests look), so that only
what a user has given is refused. Sizes and probabilities of this package's models are checked where
the model is built (``check_sizes``, ``check_probabilities`` of
:mod:`fairseq_casrnn.models.config`).
"""

import ast
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf

from fairseq_casrnn.data.values import natural
from fairseq_casrnn.errors import UserError, quoted


@dataclass(frozen=True)
class Bound:
    """The smallest and the largest value of an option; ``off`` is a default beyond them."""

    low: float = -inf
    high: float = inf
    off: float | None = None
    zero: str = ""  # what 0 means

    def allows(self, value: float) -> bool:
        """Whether ``value`` lies inside; NaN does not."""
        return value == self.off or self.low <= value <= self.high

    def __str__(self) -> str:
        if self.high < inf:
            return f"lie in [{self.low}, {self.high}]"
        if self.low == -inf:
            return "be a number"
        return f"be at least {self.low}" + (f", where 0 means {self.zero}" if self.zero else "")


POSITIVE = Bound(1)
NOT_NEGATIVE = Bound(0)
FRACTION = Bound(0, 1)
COOLEST = Bound(1e-6)  # scores that are divided by less leave the range of a float
UNLIMITED = Bound(0, zero="no limit")

BOUNDS = {
    "adam_eps": NOT_NEGATIVE,
    "batch_size": Bound(0, off=-1),
    "beam": POSITIVE,
    "clip_norm": UNLIMITED,
    "label_smoothing": FRACTION,
    "lenpen": Bound(),
    "log_interval": POSITIVE,
    "lr": NOT_NEGATIVE,
    "lr_shrink": FRACTION,
    "max_epoch": UNLIMITED,
    "max_len_a": Bound(),
    "max_tokens": Bound(1, off=-1),
    "max_tokens_valid": Bound(1, off=-1),
    "max_update": UNLIMITED,
    "nbest": POSITIVE,
    "no_repeat_ngram_size": NOT_NEGATIVE,
    "num_batch_buckets": NOT_NEGATIVE,
    "num_shards": POSITIVE,
    "num_workers": NOT_NEGATIVE,
    "prefix_size": NOT_NEGATIVE,
    "required_batch_size_multiple": POSITIVE,
    "sampling_topk": Bound(0, off=-1),
    "sampling_topp": Bound(0, 1, off=-1),
    "save_interval": POSITIVE,
    "save_interval_updates": NOT_NEGATIVE,
    "seed": Bound(0, 2**32 - 1),  # numpy's
    "temperature": COOLEST,
    "temperature_floor": COOLEST,
    "unkpen": Bound(),
    "upsample_primary": Bound(1, off=-1),
    "update_freq": POSITIVE,
    "validate_interval": POSITIVE,
    "validate_interval_updates": NOT_NEGATIVE,
    "warmup_updates": NOT_NEGATIVE,
    "weight_decay": NOT_NEGATIVE,
    "workers": POSITIVE,
}
# Metrics of validation that --best-checkpoint-metric may name, by what becomes of them.
RISING = ("accuracy", "bleu", "f1", "macro_f1", "precision", "recall", "wcpa")
FALLING = ("loss", "nll_loss", "ppl")
# What torchrun tells its processes, and Slurm; fairseq looks for the same.
TORCHRUN = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
SLURM = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")
SEGMENTATIONS = ("subword_nmt", "sentencepiece", "wordpiece", "letter", "silence", "_EOW", "none")


def check_options(options: Mapping) -> None:
    """Check the values of one of fairseq's programs; unknown names are left alone.

    Args:
        options: name and value, such as ``vars()`` of what argparse returns.

    Raises:
        UserError: a value makes no sense.
    """
    for sentence in _complaints(options):
        raise UserError(sentence)


def _complaints(options: Mapping) -> Iterator[str]:
    for name, bound in BOUNDS.items():
        value = options.get(name)
        for one in value if isinstance(value, list | tuple) else [value]:
            if isinstance(one, int | float) and not bound.allows(one):
                yield f"--{name.replace('_', '-')} is {one}; it must {bound}"
    shard, shards = options.get("shard_id"), options.get("num_shards")
    if isinstance(shard, int) and isinstance(shards, int) and not 0 <= shard < shards:
        yield f"--shard-id is {shard}; it must be at least 0 and less than --num-shards {shards}"
    generates = "beam" in options and "buffer_size" not in options  # which is of interactive
    if isinstance(shards, int) and shards > 1 and not (generates or "context_window" in options):
        yield "--num-shards is for fairseq-generate and fairseq-eval-lm; drop it"
    yield from _of_processes(options)
    metric = None if options.get("disable_validation") else options.get("best_checkpoint_metric")
    maximize = options.get("maximize_best_checkpoint_metric")
    if metric in RISING and maximize is False:
        yield (
            f"--best-checkpoint-metric {metric} rises as a model gets better, and the smallest "
            "would count as the best; add --maximize-best-checkpoint-metric"
        )
    if metric in FALLING and maximize:
        yield (
            f"--best-checkpoint-metric {metric} falls as a model gets better; drop "
            "--maximize-best-checkpoint-metric"
        )
    if options.get("mlp_batch_norm") and options.get("batch_size") == 1:
        yield "--mlp-batch-norm needs several sentences in a batch; give a greater --batch-size"
    betas = options.get("adam_betas")
    if betas is not None and not _are_betas(betas):
        yield f"--adam-betas is {betas}; it must be two numbers in [0, 1), such as '(0.9, 0.999)'"
    yield from _of_generation(options)
    yield from _unreadable(options)
    # fairseq-eval-lm has --post-process, too, but takes any ending there.
    names = ("post_process", "eval_bleu_remove_bpe")
    for name in names if "beam" in options else names[1:]:
        if not _is_segmentation(options.get(name)):
            yield (
                f"--{name.replace('_', '-')} '{options[name]}' is unknown; choose from "
                f"{', '.join(SEGMENTATIONS)}"
            )


def _of_generation(options: Mapping) -> Iterator[str]:
    """What fairseq reads and makes no use of."""
    soft = options.get("print_alignment") == "soft"
    if options.get("score_reference"):
        if options.get("lm_path"):
            yield "--score-reference makes no use of --lm-path; drop one of them"
        if soft:
            yield "--score-reference gives hard alignments; drop one of them, or 'soft'"
    if options.get("pad_to_fixed_bsz") and "context_window" in options:
        yield "fairseq-eval-lm makes no use of the padding by --pad-to-fixed-bsz; drop that option"
    if "buffer_size" not in options:
        if options.get("constraints"):
            yield (
                "--constraints needs words for each sentence, which only fairseq-interactive "
                "reads, after a tab in its line; use that program, or drop the option"
            )
        return
    if options.get("score_reference"):
        yield (
            "--score-reference needs references, and fairseq-interactive reads none; use "
            "fairseq-generate, or drop the option"
        )
    for name in ("lm_path", "prefix_size", "results_path"):
        if options.get(name):
            option = f"--{name.replace('_', '-')}"
            yield f"fairseq-interactive makes no use of {option}; use fairseq-generate, or drop it"
    if soft:
        yield "fairseq-interactive prints hard alignments; use fairseq-generate, or drop 'soft'"


def _unreadable(options: Mapping) -> Iterator[str]:
    """Values that fairseq reads as Python, when it comes to need them."""
    for name in ("model_overrides", "optimizer_overrides"):
        value = options.get(name)
        if not isinstance(value, str):
            continue
        try:
            ast.literal_eval(value)
        except (ValueError, SyntaxError):
            yield (
                f"--{name.replace('_', '-')} takes a Python value, and {quoted(value)} is none; "
                "write it as \"{'name': 'text', 'other': 3}\""
            )


def _of_processes(options: Mapping) -> Iterator[str]:
    """What is wrong with training in several processes."""
    import torch

    size = options.get("distributed_world_size")
    if not isinstance(size, int) or options.get("tpu"):
        return
    by_torchrun = all(name in os.environ for name in TORCHRUN)
    told = os.environ["WORLD_SIZE"] if by_torchrun else "1"
    started = natural(told)
    if started is None:
        yield (
            f"WORLD_SIZE in the environment is '{told}', no number of processes; start them with "
            "torchrun, or unset it"
        )
        return
    if size == 1 and started > 1 and "save_dir" in options:
        yield (
            f"{started} processes have been started, but --distributed-world-size is 1, so that "
            f"each would train alone; give --distributed-world-size {started}"
        )
    if torch.cuda.device_count():
        return
    if options.get("profile"):
        yield "--profile needs a GPU, and there is none; drop the option"
    method = options.get("distributed_init_method")
    alone = method is None and not by_torchrun and not any(name in os.environ for name in SLURM)
    if (size > 1 and alone) or (method is not None and not options.get("distributed_no_spawn")):
        yield (
            "fairseq starts one process for each GPU, and there is none; start the workers with "
            'torchrun --nproc_per_node N "$(command -v fairseq-train)" … '
            "--distributed-world-size N, or each by itself with --distributed-init-method, its "
            "--distributed-rank and --distributed-no-spawn"
        )
    needs = {"distributed_backend": ("nccl", "gloo"), "ddp_backend": ("pytorch_ddp", "legacy_ddp")}
    for name, (refused, instead) in needs.items():
        if size > 1 and options.get(name) == refused:
            option = f"--{name.replace('_', '-')}"
            yield f"{option} {refused} needs GPUs, and there is none; give {option} {instead}"


def _are_betas(value) -> bool:
    try:
        betas = ast.literal_eval(value) if isinstance(value, str) else value
        first, second = betas
        return 0 <= first < 1 and 0 <= second < 1
    except (ValueError, SyntaxError, TypeError):
        return False


def _is_segmentation(name: str | None) -> bool:
    from fairseq.data.data_utils import post_process

    try:
        post_process("", name)
    except NotImplementedError:
        return False
    return True
