"""Checks that tasks, models, criterions and options fit each other."""

from argparse import Namespace

from fairseq_casrnn.errors import UserError, as_option
from fairseq_casrnn.kinds import LANGUAGE_MODEL, TRANSLATION

COMMON = (
    "cross_entropy",
    "label_smoothed_cross_entropy",
    "label_smoothed_cross_entropy_with_rdrop",
)
FITTING = {
    TRANSLATION: {
        "task": ("translation", "translation_multi_simple_epoch", "denoising", "span_masked_lm"),
        "criterion": (*COMMON, "label_smoothed_cross_entropy_with_alignment", "adaptive_loss"),
    },
    LANGUAGE_MODEL: {
        "task": ("language_modeling", "multilingual_language_modeling"),
        "criterion": (*COMMON, "adaptive_loss"),
    },
}
"""fairseq's tasks and criterions for this package's models that generate text."""


def check_fit(arch: str | None, task: str | None, criterion: str | None) -> None:
    """Refuse fairseq's tasks and criterions that are made for other kinds of models.

    Most of them would fail with an obscure traceback, some would train something else. Unknown ones
    and those of other packages are accepted.

    Raises:
        UserError: they do not fit an architecture of this package.
    """
    from fairseq.criterions import CRITERION_REGISTRY
    from fairseq.models import ARCH_MODEL_REGISTRY
    from fairseq.tasks import TASK_REGISTRY

    from fairseq_casrnn.models.generator_model import GeneratorModel

    model = ARCH_MODEL_REGISTRY.get(arch, object)
    if not issubclass(model, GeneratorModel):
        return
    fitting = FITTING[model.kind]
    for option, name, registry in (
        ("task", task, TASK_REGISTRY),
        ("criterion", criterion, CRITERION_REGISTRY),
    ):
        known = registry.get(name)
        if known is None or not known.__module__.startswith("fairseq."):
            continue
        if name not in fitting[option]:
            raise UserError(
                f"--arch and --{option} do not fit: {arch} cannot be trained with {name}; give "
                f"another --arch, or one of {', '.join(fitting[option])}"
            )


def check_program(args: Namespace) -> None:
    """Check for missing and useless options of one of fairseq's programs.

    Raises:
        UserError: an option is missing, or has no effect with this task.
    """
    from fairseq.tasks import TASK_REGISTRY
    from fairseq.tasks.translation_lev import TranslationLevenshteinTask

    if "path" in args and args.path is None:
        raise UserError("--path is missing; give it the file of a checkpoint")
    streams = getattr(args, "task", None) == "stateful_language_modeling"
    if streams and "arch" in args and args.batch_size is None and not args.sentence_reset:
        raise UserError("--batch-size is missing; give the number of streams of each worker")
    task = TASK_REGISTRY.get(getattr(args, "task", None), object)
    if not task.__module__.startswith("fairseq.") or issubclass(task, TranslationLevenshteinTask):
        return
    for name in ("print_step", "retain_iter_history"):
        if getattr(args, name, False):
            raise UserError(
                f"{as_option(name)} needs a model that refines its output iteratively, "
                f"unlike those of --task {args.task}; drop the option"
            )
