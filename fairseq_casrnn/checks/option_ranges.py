"""Ranges of options of fairseq's programs, and contradictory options.

The table ``BOUNDS`` has the options of fairseq and of this package that nothing else validates; to
validate another option, add a line. All of fairseq's defaults must be in range (a test checks
that). Sizes and probabilities of this package's models are checked when a model is built
(``check_sizes`` and ``check_probabilities`` of :mod:`fairseq_casrnn.models.config`).
"""

import ast
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf

from fairseq_casrnn.data.values import natural
from fairseq_casrnn.errors import UserError, as_option, quoted


@dataclass(frozen=True)
class Bound:
    """The range of an option; ``off`` is an additional value outside of it."""

    low: float = -inf
    high: float = inf
    off: float | None = None
    zero: str = ""  # the meaning of 0, for messages

    def allows(self, value: float) -> bool:
        """Whether ``value`` is in range; NaN is not."""
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
TEMPERATURE = Bound(1e-6)  # scores divided by less would overflow
UNLIMITED = Bound(0, zero="no limit")

BOUNDS = {
    "adam_eps": NOT_NEGATIVE,
    "batch_size": Bound(1, off=-1),
    "batch_size_valid": Bound(1, off=-1),
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
    "seed": Bound(0, 2**32 - 1),  # limit of numpy
    "temperature": TEMPERATURE,
    "temperature_floor": TEMPERATURE,
    "tokens_per_sample": POSITIVE,
    "unkpen": Bound(),
    "upsample_primary": Bound(1, off=-1),
    "update_freq": POSITIVE,
    "validate_interval": POSITIVE,
    "validate_interval_updates": NOT_NEGATIVE,
    "warmup_updates": NOT_NEGATIVE,
    "weight_decay": NOT_NEGATIVE,
    "workers": POSITIVE,
}
# Values of --best-checkpoint-metric: higher is better, lower is better.
RISING = ("accuracy", "bleu", "f1", "macro_f1", "precision", "recall", "wcpa")
FALLING = ("loss", "nll_loss", "ppl")
# Environment variables set by torchrun and by Slurm, which fairseq reads.
TORCHRUN = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
SLURM = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")
SEGMENTATIONS = ("subword_nmt", "sentencepiece", "wordpiece", "letter", "silence", "_EOW", "none")


def check_options(options: Mapping) -> None:
    """Check the options of one of fairseq's programs; unknown names are ignored.

    Args:
        options: names and values, such as ``vars()`` of argparse's result.

    Raises:
        UserError: a value is out of range, or options contradict each other.
    """
    for sentence in _problems(options):
        raise UserError(sentence)


def _problems(options: Mapping) -> Iterator[str]:
    for name, bound in BOUNDS.items():
        value = options.get(name)
        for one in value if isinstance(value, list | tuple) else [value]:
            if isinstance(one, int | float) and not bound.allows(one):
                yield f"{as_option(name)} is {one}; it must {bound}"
    shard, shards = options.get("shard_id"), options.get("num_shards")
    if isinstance(shard, int) and isinstance(shards, int) and not 0 <= shard < shards:
        yield f"--shard-id is {shard}; it must be at least 0 and less than --num-shards {shards}"
    generates = "beam" in options and "buffer_size" not in options  # not fairseq-interactive
    if isinstance(shards, int) and shards > 1 and not (generates or "context_window" in options):
        yield "--num-shards is for fairseq-generate and fairseq-eval-lm; drop it"
    context, length = options.get("context_window"), options.get("tokens_per_sample")
    blocks = options.get("sample_break_mode") != "eos"
    if blocks and isinstance(context, int) and isinstance(length, int) and context >= length:
        yield (
            f"--context-window is {context}; it must be less than --tokens-per-sample {length}, "
            "which includes the context"
        )
    yield from _distributed_problems(options)
    metric = None if options.get("disable_validation") else options.get("best_checkpoint_metric")
    maximize = options.get("maximize_best_checkpoint_metric")
    if metric in RISING and maximize is False:
        yield (
            f"--best-checkpoint-metric {metric} is better if it is higher; add "
            "--maximize-best-checkpoint-metric"
        )
    if metric in FALLING and maximize:
        yield (
            f"--best-checkpoint-metric {metric} is better if it is lower; drop "
            "--maximize-best-checkpoint-metric"
        )
    if options.get("mlp_batch_norm") and options.get("batch_size") == 1:
        yield "--mlp-batch-norm needs several sentences in a batch; give a larger --batch-size"
    betas = options.get("adam_betas")
    if betas is not None and not _are_betas(betas):
        yield f"--adam-betas is {betas}; it must be two numbers in [0, 1), such as '(0.9, 0.999)'"
    yield from _generation_problems(options)
    yield from _invalid_literals(options)
    # fairseq-eval-lm also has --post-process, but accepts any value.
    names = ("post_process", "eval_bleu_remove_bpe")
    for name in names if "beam" in options else names[1:]:
        if not _is_segmentation(options.get(name)):
            yield (
                f"{as_option(name)} '{options[name]}' is unknown; choose from "
                f"{', '.join(SEGMENTATIONS)}"
            )


def _generation_problems(options: Mapping) -> Iterator[str]:
    """Options that fairseq accepts but ignores."""
    soft = options.get("print_alignment") == "soft"
    if options.get("score_reference"):
        if options.get("lm_path"):
            yield "--score-reference ignores --lm-path; drop one of them"
        if soft:
            yield "--score-reference prints hard alignments; drop one of them, or 'soft'"
    if options.get("pad_to_fixed_bsz") and "context_window" in options:
        yield "fairseq-eval-lm ignores --pad-to-fixed-bsz; drop that option"
    if "buffer_size" not in options:
        if options.get("constraints"):
            yield (
                "--constraints needs words for each sentence, which only fairseq-interactive reads "
                "(after a tab in each line); use that program, or drop the option"
            )
        return
    if options.get("score_reference"):
        yield (
            "--score-reference needs references, but fairseq-interactive reads none; use "
            "fairseq-generate, or drop the option"
        )
    for name in ("lm_path", "prefix_size", "results_path"):
        if options.get(name):
            option = as_option(name)
            yield f"fairseq-interactive ignores {option}; use fairseq-generate, or drop it"
    if soft:
        yield "fairseq-interactive prints hard alignments; use fairseq-generate, or drop 'soft'"


def _invalid_literals(options: Mapping) -> Iterator[str]:
    """Values that fairseq only parses as Python literals when it needs them."""
    for name in ("model_overrides", "optimizer_overrides"):
        value = options.get(name)
        if not isinstance(value, str):
            continue
        try:
            ast.literal_eval(value)
        except (ValueError, SyntaxError, TypeError):
            yield (
                f"{as_option(name)} is {quoted(value)}, which is not a Python literal; "
                "write it as \"{'name': 'text', 'other': 3}\""
            )


def _distributed_problems(options: Mapping) -> Iterator[str]:
    """Problems with the options of distributed training."""
    import torch

    size = options.get("distributed_world_size")
    if not isinstance(size, int) or options.get("tpu"):
        return
    by_torchrun = all(name in os.environ for name in TORCHRUN)
    variable = os.environ["WORLD_SIZE"] if by_torchrun else "1"
    started = natural(variable)
    if started is None:
        yield (
            f"WORLD_SIZE in the environment is '{variable}', not a number of processes; start them "
            "with torchrun, or unset it"
        )
        return
    if size == 1 and started > 1 and "save_dir" in options:
        yield (
            f"{started} processes have been started, but --distributed-world-size is 1, so each "
            f"would train alone; give --distributed-world-size {started}"
        )
    if torch.cuda.device_count():
        return
    if options.get("profile"):
        yield "--profile needs a GPU, but there is none; drop the option"
    method = options.get("distributed_init_method")
    alone = method is None and not by_torchrun and not any(name in os.environ for name in SLURM)
    if (size > 1 and alone) or (method is not None and not options.get("distributed_no_spawn")):
        yield (
            "fairseq starts one process for each GPU, but there is none; start the workers with "
            'torchrun --nproc_per_node N "$(command -v fairseq-train)" … '
            "--distributed-world-size N, or start each with --distributed-init-method, its "
            "--distributed-rank and --distributed-no-spawn"
        )
    needs = {"distributed_backend": ("nccl", "gloo"), "ddp_backend": ("pytorch_ddp", "legacy_ddp")}
    for name, (refused, instead) in needs.items():
        if size > 1 and options.get(name) == refused:
            option = as_option(name)
            yield f"{option} {refused} needs GPUs, but there is none; give {option} {instead}"


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
