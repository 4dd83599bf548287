"""Explain numbers that are not finite."""

import re
from typing import Any

from fairseq_casrnn.diagnostics.frames import GENERATE, Rules, frame_local

SEARCH = "fairseq.sequence_generator.SequenceGenerator._generate"


def _diverged(error: FloatingPointError) -> str | None:
    # Distributed training first compares the norms, and NaN is not equal to NaN.
    if not re.search(r"Nan/Inf|^rank +\d+ = -?(nan|inf)", str(error), re.MULTILINE):
        return None
    return (
        "the gradients are not finite: the training has diverged; continue from an earlier "
        "checkpoint, with a lower --lr or with --clip-norm"
    )


def _no_finite_score(error: Exception) -> str | None:
    """With NaN weights fairseq's search ends without a hypothesis."""
    ensemble: Any = getattr(frame_local(error, SEARCH, "self"), "model", None)
    lost = re.search(r"^\d+ < \d+$|multinomial|probability tensor", str(error))
    if not (lost and hasattr(ensemble, "parameters")):
        return None
    if all(bool(weight.isfinite().all()) for weight in ensemble.parameters()):
        return None
    programs = (GENERATE, "fairseq_cli.interactive.main")
    cfg = next(filter(None, (frame_local(error, program, "cfg") for program in programs)), None)
    path = getattr(getattr(cfg, "common_eval", None), "path", None)
    where = f"checkpoint {path}: " if path else ""
    return (
        f"{where}the scores are not finite because the model's weights are not: its training "
        "probably diverged; use an earlier checkpoint, or train again with a lower --lr or with "
        "--clip-norm"
    )


def _all_hypotheses_lost(error: AssertionError) -> str | None:
    """The search ends without a hypothesis although the weights are finite."""
    step, last = (frame_local(error, SEARCH, name) for name in ("step", "max_len"))
    if step is None or str(error) != f"{step} < {last}":
        return None
    task = frame_local(error, GENERATE, "task")
    if getattr(getattr(task, "args", None), "add_bos_token", False):
        return (
            "fairseq-generate cannot continue a text with --add-bos-token, since </s> follows <s> "
            "there; use fairseq-interactive"
        )
    return (
        "no hypothesis of a sentence has a finite score; drop --fp16, --temperature, --unkpen or "
        "--no-repeat-ngram-size, or use an earlier checkpoint"
    )


RULES: Rules = (
    (FloatingPointError, _diverged),
    ((AssertionError, RuntimeError), _no_finite_score),
    (AssertionError, _all_hypotheses_lost),
)
