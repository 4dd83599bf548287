"""Annealing of the temperature of a model's mixture layers while fairseq trains it.

With ``--temperature-decay auto``, the temperature reaches its floor in the last epoch of
``--max-epoch`` or at the last update of ``--max-update``, whichever comes first, because evaluation
uses hard routing. A resumed training keeps the annealing it began with, even if ``--max-epoch`` or
``--max-update`` has changed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fairseq.dataclass.configs import OptimizationConfig
from fairseq.logging import metrics
from torch import nn

from ..cells.second_order_lstm import SecondOrderOptions
from ..layers import SecondOrderLSTM

if TYPE_CHECKING:
    from fairseq.trainer import Trainer

logger = logging.getLogger(__name__)

# Scores shrink along with the temperature. With a final temperature of 0.016, hard routing still
# increased WikiText-2's perplexity by a tenth; with 2e-4 it made no difference.
MIXED_ABOVE, RECOMMENDED_FLOOR = 1e-3, 1e-4


@dataclass(frozen=True)
class Annealing:
    """How the temperature falls: by a factor per epoch, or to its floor within ``updates``.

    Attributes:
        decay: the factor per epoch.
        updates: the number of updates after which the temperature is at its floor, whatever the
            epoch; 0 if it depends on the epoch alone.
    """

    decay: float = SecondOrderOptions.temperature_decay
    updates: int = 0

    def temperature(self, layer: SecondOrderLSTM, epoch: int, update: int) -> float:
        """Temperature of ``layer`` in the 1-based ``epoch`` and the 0-based ``update``."""
        by_epoch = layer.temperature_at(epoch)
        if self.updates < 2:
            return by_epoch
        start, floor = temperature_range(layer.options)
        progress = min(update / (self.updates - 1), 1.0)
        return max(min(by_epoch, start * (floor / start) ** progress), floor)


def temperature_range(options: SecondOrderOptions) -> tuple[float, float]:
    """The first and the last temperature."""
    return options.temperature, min(options.temperature_floor, options.temperature)


def new_annealing(layer: SecondOrderLSTM, optimization: OptimizationConfig) -> Annealing:
    """The annealing of ``layer`` in a new training.

    Args:
        layer: a mixture layer.
        optimization: fairseq's ``OptimizationConfig``, with ``max_epoch`` and ``max_update``
            (0: no limit).
    """
    if not is_automatic(layer):
        return Annealing(layer.options.temperature_decay)
    epochs, updates = optimization.max_epoch or 0, optimization.max_update or 0
    start, floor = temperature_range(layer.options)
    if epochs > 1:
        return Annealing((floor / start) ** (1 / (epochs - 1)), updates)
    return Annealing(1.0, updates) if updates > 1 else Annealing()


def is_automatic(layer: SecondOrderLSTM) -> bool:
    """Whether ``layer`` was built with ``--temperature-decay auto``."""
    return getattr(layer, "anneals_with_training", False)


def mixture_layers(model: nn.Module) -> list[SecondOrderLSTM]:
    """The layers of ``model`` that have a temperature."""
    layers = [layer for layer in model.modules() if isinstance(layer, SecondOrderLSTM)]
    return [layer for layer in layers if layer.routing == "attention"]


def choose_annealing(trainer: Trainer, layers: Sequence[SecondOrderLSTM]) -> None:
    """Give ``trainer`` an annealing, unless a checkpoint had one, and the layers its decay."""
    restored = getattr(trainer, "annealing", None)
    trainer.annealing = restored or new_annealing(layers[0], trainer.cfg.optimization)
    for layer in layers:
        layer.options.temperature_decay = trainer.annealing.decay
    warn_of_mixing(layers, trainer.annealing, trainer.cfg.optimization.max_epoch or 0)


def warn_of_mixing(layers: Sequence[SecondOrderLSTM], annealing: Annealing, max_epoch: int) -> None:
    """Warn if cells are still mixed in the last of ``max_epoch`` epochs (0: no limit)."""
    mixtures = [layer for layer in layers if layer.options.num_cells > 1]
    if not mixtures or max_epoch < 1 or annealing.updates:
        return
    last = mixtures[0].temperature_at(max_epoch)
    if last <= MIXED_ABOVE:
        return
    if max_epoch == 1:
        logger.warning(
            "in the only epoch the temperature is %.2g, at which cells are still mixed, but "
            "evaluation uses hard routing; train for more epochs, or give --temperature %.0e",
            last,
            RECOMMENDED_FLOOR,
        )
        return
    logger.warning(
        "in the last of %d epochs the temperature is %.2g, at which cells are still mixed, but "
        "evaluation uses hard routing; start a new training with --temperature-decay auto "
        "--temperature-floor %.0e to end with hard routing",
        max_epoch,
        last,
        RECOMMENDED_FLOOR,
    )


def set_temperatures(trainer: Trainer, layers: Sequence[SecondOrderLSTM]) -> None:
    """Set and log the temperature of the next update."""
    epoch, update = trainer.annealing_epoch, trainer.get_num_updates()
    for layer in reversed(layers):  # the first layer's temperature is logged
        value = trainer.annealing.temperature(layer, epoch, update)
        layer.temperature.fill_(value)
    metrics.log_scalar("temperature", value, weight=0, round=4)


def begin_epoch(result: None, trainer: Trainer, epoch: int) -> None:
    """After ``Trainer.begin_epoch``."""
    layers = mixture_layers(trainer.get_model())
    if layers:
        if not hasattr(trainer, "annealing_epoch"):
            choose_annealing(trainer, layers)
        trainer.annealing_epoch = epoch
        set_temperatures(trainer, layers)


def begin_update(trainer: Trainer, *args: Any, **kwargs: Any) -> None:
    """Before ``Trainer.train_step``."""
    annealing = getattr(trainer, "annealing", None)
    if annealing is not None and annealing.updates:
        set_temperatures(trainer, mixture_layers(trainer.get_model()))


def save_annealing(trainer: Trainer, extra_state: dict[str, Any]) -> None:
    """Put the annealing into the checkpoint."""
    annealing = getattr(trainer, "annealing", None)
    if annealing is not None:
        extra_state["annealing"] = asdict(annealing)


def restore_annealing(trainer: Trainer, extra_state: dict[str, Any]) -> None:
    """Take the annealing of a resumed training from its checkpoint.

    Checkpoints without it come from versions in which a decay of 0.9 was the default.
    """
    if any(map(is_automatic, mixture_layers(trainer.get_model()))):
        trainer.annealing = Annealing(**extra_state.get("annealing", {}))
