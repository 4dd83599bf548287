"""Annealing: the temperature of a model's mixture layers while fairseq trains it.

``--temperature-decay auto`` reaches the floor in the last epoch of ``--max-epoch`` and at the last
update of ``--max-update``, whichever comes first, because evaluation routes hard. A training that
is resumed keeps the annealing it began with, also when it is to become longer.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass

from fairseq.logging import metrics

from ..cells.second_order_lstm import SecondOrderOptions
from ..layers import SecondOrderLSTM

logger = logging.getLogger(__name__)

# At a last temperature of 0.016 hard routing still cost a tenth of WikiText-2's perplexity, for the
# scores shrink along with the temperature; at 2e-4 nothing.
MIXED, HARD = 1e-3, 1e-4


@dataclass(frozen=True)
class Annealing:
    """How the temperature falls: by a factor per epoch, and to its floor within ``updates``.

    Attributes:
        decay: the factor per epoch.
        updates: the number of updates after which it is at the floor, whatever the epoch; 0 where
            it depends on the epoch alone.
    """

    decay: float = SecondOrderOptions.temperature_decay
    updates: int = 0

    def temperature(self, layer, epoch: int, update: int) -> float:
        """Temperature of ``layer`` in the 1-based ``epoch``, in the 0-based ``update``."""
        by_epoch = layer.temperature_at(epoch)
        if self.updates < 2:
            return by_epoch
        start, floor = ends(layer.options)
        passed = min(update / (self.updates - 1), 1.0)
        return max(min(by_epoch, start * (floor / start) ** passed), floor)


def ends(options) -> tuple[float, float]:
    """The first and the last temperature."""
    return options.temperature, min(options.temperature_floor, options.temperature)


def planned(layer, optimization) -> Annealing:
    """The annealing of ``layer`` in a new training.

    ``optimization`` are fairseq's options, of which ``max_epoch`` and ``max_update`` (0: no limit).
    """
    if not is_automatic(layer):
        return Annealing(layer.options.temperature_decay)
    epochs, updates = optimization.max_epoch or 0, optimization.max_update or 0
    start, floor = ends(layer.options)
    if epochs > 1:
        return Annealing((floor / start) ** (1 / (epochs - 1)), updates)
    return Annealing(1.0, updates) if updates > 1 else Annealing()


def is_automatic(layer) -> bool:
    """Whether ``layer`` was built with ``--temperature-decay auto``."""
    return getattr(layer, "anneals_with_training", False)


def mixtures(model) -> list:
    """The layers of ``model`` that have a temperature."""
    layers = [layer for layer in model.modules() if isinstance(layer, SecondOrderLSTM)]
    return [layer for layer in layers if layer.routing == "attention"]


def prepare(trainer, layers) -> None:
    """Decide on the annealing of ``trainer`` if that has not been done, and tell the layers."""
    known = getattr(trainer, "annealing", None)
    trainer.annealing = known or planned(layers[0], trainer.cfg.optimization)
    for layer in layers:
        layer.options.temperature_decay = trainer.annealing.decay
    warn_of_mixing(layers, trainer.annealing, trainer.cfg.optimization.max_epoch or 0)


def warn_of_mixing(layers, annealing: Annealing, max_epoch: int) -> None:
    """Warn where cells are still mixed in the last of ``max_epoch`` epochs (0: no limit)."""
    mixing = [layer for layer in layers if layer.options.num_cells > 1]
    if not mixing or max_epoch < 1 or annealing.updates:
        return
    last = mixing[0].temperature_at(max_epoch)
    if last <= MIXED:
        return
    if max_epoch == 1:
        logger.warning(
            "in the only epoch the temperature is %.2g, at which cells are still mixed, but "
            "evaluation routes hard; train for more epochs, or give --temperature %.0e",
            *(last, HARD),
        )
        return
    logger.warning(
        "in the last of %d epochs the temperature is %.2g, at which cells are still mixed, but "
        "evaluation routes hard; a new training with --temperature-decay auto --temperature-floor "
        "%.0e ends hard, too",
        *(max_epoch, last, HARD),
    )


def set_temperatures(trainer, layers) -> None:
    """Set and log the temperature of the update that comes next."""
    place = trainer.annealing_epoch, trainer.get_num_updates()
    for layer in reversed(layers):  # the first one's is logged
        value = trainer.annealing.temperature(layer, *place)
        layer.temperature.fill_(value)
    metrics.log_scalar("temperature", value, weight=0, round=4)


def begin_epoch(result, trainer, epoch) -> None:
    """After ``Trainer.begin_epoch``."""
    layers = mixtures(trainer.get_model())
    if layers:
        if not hasattr(trainer, "annealing_epoch"):
            prepare(trainer, layers)
        trainer.annealing_epoch = epoch
        set_temperatures(trainer, layers)


def begin_update(trainer, *args, **kwargs) -> None:
    """Before ``Trainer.train_step``."""
    annealing = getattr(trainer, "annealing", None)
    if annealing is not None and annealing.updates:
        set_temperatures(trainer, mixtures(trainer.get_model()))


def keep(trainer, filename, extra_state: dict) -> None:
    """Keep the annealing in a checkpoint: before ``Trainer.save_checkpoint``."""
    annealing = getattr(trainer, "annealing", None)
    if annealing is not None:
        extra_state["annealing"] = asdict(annealing)


def restore(trainer, extra_state: dict, resumes: bool) -> None:
    """Checkpoints that do not have it are of versions in which 0.9 was the default."""
    if resumes and any(map(is_automatic, mixtures(trainer.get_model()))):
        trainer.annealing = Annealing(**extra_state.get("annealing", {}))
