"""Language modelling over a continuous text: each batch starts from the previous one's state."""

# No "from __future__ import annotations": fairseq reads the fields' types, and not as text.
import logging
import math
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy
import torch
from fairseq import utils
from fairseq.criterions import FairseqCriterion
from fairseq.data import Dictionary, FairseqDataset, data_utils, iterators
from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.configs import CheckpointConfig
from fairseq.models import BaseFairseqModel
from fairseq.optim import FairseqOptimizer
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks import register_task
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask

from ..cells.base import at_least_one
from ..data.streams import StreamDataset, piece_lengths, sentence_dataset, whole_text
from ..errors import UserError, as_option
from ..layers.state import State, as_state, map_state, state_parts
from ..models.config import check_probabilities
from ..models.language_decoder import CarriedState, check_carries
from .stream_state import (
    StatefulBatches,
    StreamPosition,
    check_position,
    gather_streams,
    streams_of_worker,
    with_carried_state,
)

if TYPE_CHECKING:
    from fairseq.trainer import Trainer


@dataclass
class StatefulLanguageModelingConfig(LanguageModelingConfig):
    """Options of the task, in addition to those of fairseq's ``language_modeling``."""

    bptt: int = field(
        default=70, metadata={"help": "time steps of a batch, through which gradients flow"}
    )
    bptt_jitter: float = field(
        default=0.0,
        metadata={"help": "standard deviation of the batches' time steps in training"},
    )
    state_reset_prob: float = field(
        default=0.0,
        metadata={
            "help": "probability that a stream's state is reset to zero before a training batch, "
            "so that the model learns to start anywhere (Melis et al. 2018: 0.01)"
        },
    )
    sentence_reset: bool = field(
        default=False,
        metadata={"help": "read each sentence by itself, from a zero state and after </s>"},
    )


logger = logging.getLogger(__name__)

UNUSED_BY_STREAMS = ("tokens_per_sample", "sample_break_mode", "shorten_method")
UNUSED_BY_SENTENCES = (*UNUSED_BY_STREAMS, "bptt", "bptt_jitter", "state_reset_prob")


@register_task("stateful_language_modeling", dataclass=StatefulLanguageModelingConfig)
class StatefulLanguageModelingTask(LanguageModelingTask):
    """Language modelling over streams, see :mod:`fairseq_casrnn.data.streams`.

    Each batch row reads one stream from start to end. An epoch starts from a zero state. So does
    each validation, which does not touch the training's state. With ``--sentence-reset`` the
    batches hold whole sentences, each read from a zero state.
    """

    training_data: StreamDataset | None
    training_states: list[torch.Tensor] | None

    def __init__(
        self,
        args: StatefulLanguageModelingConfig,
        dictionary: Dictionary,
        output_dictionary: Dictionary | None = None,
        targets: list[str] | None = None,
    ):
        super().__init__(args, dictionary, output_dictionary, targets)
        at_least_one("--bptt", args.bptt)
        if not 0 <= args.bptt_jitter < math.inf:
            raise UserError(f"--bptt-jitter is {args.bptt_jitter}; it must be a number, at least 0")
        check_probabilities(args, ["state_reset_prob"])
        if args.add_bos_token:
            raise UserError("each text already starts with </s>; drop --add-bos-token")
        if self.targets != ["future"]:
            raise UserError("this task predicts the next token; drop --self-target, --past-target")
        self.positions = {"training": StreamPosition(), "evaluation": StreamPosition()}
        self.training_data, self.worker = None, (0, 1)  # streams; rank and number of workers
        self.training_stops: list[int] = []  # time steps read after each batch of the epoch
        # Set before a checkpoint is written: the state of all workers' streams, and whether it is
        # the end of an epoch.
        self.training_states, self.epoch_finished = None, False

    def build_model(
        self, args: FairseqDataclass, from_checkpoint: bool = False
    ) -> BaseFairseqModel:
        """Build the model.

        Raises:
            UserError: the model carries no state, and ``--sentence-reset`` is not given.
        """
        model = super().build_model(args, from_checkpoint)
        if not self.args.sentence_reset:
            check_carries(model)
        return model

    # --- data ----------------------------------------------------------------------------------

    def load_dataset(
        self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any
    ) -> None:
        """Load ``split``.

        Raises:
            FileNotFoundError: it does not exist.
        """
        if split == "train":
            warn_of_unused_options(self.args)
        paths = utils.split_paths(self.args.data)
        path = os.path.join(paths[(epoch - 1) % len(paths)], split)
        sentences = data_utils.load_indexed_dataset(
            path, self.dictionary, self.args.dataset_impl, combine=combine
        )
        if sentences is None:
            raise FileNotFoundError(f"Dataset not found: {split} ({path})")
        if self.args.sentence_reset:
            self.datasets[split] = sentence_dataset(
                sentences, self.dictionary, self.output_dictionary
            )
        else:
            self.datasets[split] = StreamDataset(whole_text(sentences), self.dictionary.pad())

    def get_batch_iterator(
        self, dataset: FairseqDataset, *args: Any, **kwargs: Any
    ) -> iterators.EpochBatchIterator:
        """Batches of ``dataset``; batches of streams are never shuffled."""
        if not isinstance(dataset, StreamDataset):
            return super().get_batch_iterator(dataset, *args, **kwargs)
        # fairseq's trainer passes this option for training only. A validation may use the same
        # data.
        training = "grouped_shuffling" in kwargs
        return self.stream_iterator(  # type: ignore[misc]
            dataset, *args, training=training, **kwargs
        )

    def stream_iterator(
        self,
        dataset: StreamDataset,
        max_tokens: int | None = None,
        max_sentences: int | None = None,
        seed: int = 1,
        num_shards: int = 1,
        shard_id: int = 0,
        num_workers: int = 0,
        epoch: int = 1,
        data_buffer_size: int = 0,
        training: bool = False,
        **unused: Any,
    ) -> iterators.EpochBatchIterator:
        """The batches of worker ``shard_id``, in the order of the text.

        They differ between epochs only in ``training`` with ``--bptt-jitter``.

        Raises:
            UserError: ``--batch-size`` is missing, or the text is too short for it.
        """
        if max_sentences is None or max_tokens is not None:
            raise UserError(
                "--batch-size is the number of streams of each worker; give it without "
                "--max-tokens and --max-tokens-valid (or --sentence-reset for single sentences)"
            )
        bptt, streams = self.args.bptt, max_sentences * num_shards
        if training:
            self._check_lengths(dataset, streams, num_shards)
        dataset = dataset.cut(streams)
        if training:
            self.training_data, self.worker = dataset, (shard_id, num_shards)
        jitter = self.args.bptt_jitter if training else 0.0
        lengths = piece_lengths(int(dataset.sizes.max()), bptt, jitter, (seed, epoch))
        if training:
            self.training_stops = list(accumulate(lengths))
        return iterators.EpochBatchIterator(
            dataset=dataset,
            collate_fn=dataset.collater,
            batch_sampler=dataset.batches(num_shards, lengths),
            seed=seed,
            num_shards=num_shards,
            shard_id=shard_id,
            num_workers=num_workers,
            epoch=epoch,
            buffer_size=data_buffer_size,
            disable_shuffling=True,
            reuse_dataloader=False,
            persistent_workers=False,
        )

    def _check_lengths(self, training_data: StreamDataset, streams: int, workers: int) -> None:
        """Raise UserError before the first epoch if a text is too short for its streams."""
        tokens, bptt = len(training_data.tokens), self.args.bptt
        if tokens < streams * bptt:
            raise UserError(
                f"the training data has {tokens} tokens, fewer than --batch-size times --bptt "
                f"({streams} x {bptt}); lower one of them"
            )
        rows = self.args.batch_size_valid
        for split, dataset in self.datasets.items():
            if rows is not None and split != "train" and isinstance(dataset, StreamDataset):
                dataset.cut(rows * workers, f"the split '{split}'", "--batch-size-valid")

    def eval_lm_dataloader(
        self,
        dataset: FairseqDataset,
        max_tokens: int | None = None,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> Iterable[dict[str, Any]]:
        """Batches for ``fairseq-eval-lm``: one stream unless ``--batch-size`` is given."""
        if self.args.sentence_reset:
            return super().eval_lm_dataloader(dataset, max_tokens, batch_size, **kwargs)
        if kwargs.get("num_shards", 1) > 1 or kwargs.get("context_window"):
            raise UserError(
                "the state flows through the whole text; give --distributed-world-size 1 (the "
                "default is the number of GPUs), and no --num-shards or --context-window"
            )
        iterator = self.stream_iterator(dataset, max_sentences=batch_size or 1)
        return StatefulBatches(iterator.next_epoch_itr(shuffle=False))

    def inference_step(
        self,
        generator: SequenceGenerator,
        models: list[BaseFairseqModel],
        sample: dict[str, Any],
        *args: Any,
        **kwargs: Any,
    ) -> list[list[dict[str, Any]]]:
        """Generate a continuation of each sentence.

        Raises:
            UserError: the batch holds pieces of streams, not sentences.
        """
        if "start" in sample:
            raise UserError("fairseq-generate continues sentences; give --sentence-reset as well")
        return super().inference_step(generator, models, sample, *args, **kwargs)

    # --- the state -----------------------------------------------------------------------------

    def train_step(
        self,
        sample: dict[str, Any],
        model: BaseFairseqModel,
        criterion: FairseqCriterion,
        optimizer: FairseqOptimizer,
        update_num: int,
        ignore_grad: bool = False,
    ) -> tuple[torch.Tensor, int, dict[str, Any]]:
        """Train on a batch from the previous batch's state, with ``--state-reset-prob``."""
        step = super().train_step
        reset = partial(self.reset_random_streams, update_num=update_num)
        rest = model, criterion, optimizer, update_num, ignore_grad
        return self.run_with_state("training", sample, step, *rest, reset=reset)

    def valid_step(
        self, sample: dict[str, Any], model: BaseFairseqModel, criterion: FairseqCriterion
    ) -> tuple[torch.Tensor, int, dict[str, Any]]:
        """Validate on a batch from the previous batch's state."""
        return self.run_with_state("evaluation", sample, super().valid_step, model, criterion)

    def run_with_state(
        self,
        what: str,
        sample: dict[str, Any],
        step: Callable[..., tuple[torch.Tensor, int, dict[str, Any]]],
        *args: Any,
        reset: Callable[[State, int], State] | None = None,
    ) -> tuple[torch.Tensor, int, dict[str, Any]]:
        """Call ``step`` on ``sample`` with the state in ``positions[what]``, and update that.

        If given, ``reset(state, start)`` returns the state that the model gets instead.
        """
        if "start" not in sample:  # sentences
            return step(sample, *args)
        start, stop = sample["start"], sample["stop"]
        before = self.positions[what].state_at(start, sample["target"].device)
        carried = CarriedState(reset(before, start) if reset and before is not None else before)
        result = step(with_carried_state(sample, carried), *args)
        self.positions[what] = StreamPosition(start, stop, before, carried.state)
        return result

    def reset_random_streams(self, state: State, start: int, update_num: int) -> State:
        """``state`` with zeros for randomly chosen streams (``--state-reset-prob``).

        The choice depends only on the arguments, so a resumed training makes the same one.
        """
        if not self.args.state_reset_prob:
            return state
        first = state_parts(state)[0]
        streams = first.size(1)
        seed = (self.args.seed, update_num, self.worker[0], start)
        draws = numpy.random.default_rng(seed).random(streams)
        chosen = torch.from_numpy(draws < self.args.state_reset_prob).unsqueeze(-1)
        chosen = chosen.to(first.device, non_blocking=True)
        return map_state(lambda part: part.masked_fill(chosen, 0), state)

    def before_checkpoint(self, workers: int, finished: bool) -> None:
        """Gather the states of all workers; each worker calls this before one of them saves.

        Args:
            workers: number of workers.
            finished: whether it is the end of an epoch.
        """
        self.epoch_finished = finished
        after = self.positions["training"].after
        parts = [] if after is None else state_parts(after)
        self.training_states = gather_streams(parts, workers)

    def get_checkpoint_dict(self) -> dict[str, Any]:
        """The position in the streams and the state of all streams, for a checkpoint."""
        if self.training_data is None:
            return {}
        if self.training_states is None:
            self.before_checkpoint(1, False)
        step = self.positions["training"].stop
        content = {
            "step": step,
            "pieces": bisect_right(self.training_stops, step),
            "steps": int(self.training_data.sizes.max()),
            "state": self.training_states,
            "finished": self.epoch_finished,
        }
        self.training_states = None
        return {type(self).__name__: content}

    def set_checkpoint_dict(self, content: dict) -> None:
        """Continue from a checkpoint's ``content``.

        Raises:
            UserError: the checkpoint was made in the middle of an epoch, with other streams or
                batches.
        """
        state, dataset = content["state"], self.training_data
        finished = content.get("finished", False) or content["step"] == content["steps"]
        if not state or dataset is None or finished:
            return  # sentences, or a new epoch, which starts from a zero state
        check_position(content, len(dataset), self.training_stops)
        own = streams_of_worker(state, *self.worker)
        after = as_state(own[0], own[1] if len(own) > 1 else None)
        self.positions["training"] = StreamPosition(stop=content["step"], after=after)


def collect_states(
    cfg: CheckpointConfig,
    trainer: "Trainer",
    epoch_itr: iterators.EpochBatchIterator,
    *args: Any,
    **kwargs: Any,
) -> None:
    """Before fairseq's ``save_checkpoint``, in which only rank 0 saves: gather the states."""
    if isinstance(trainer.task, StatefulLanguageModelingTask) and not cfg.no_save:
        workers = trainer.data_parallel_world_size
        trainer.task.before_checkpoint(workers, epoch_itr.end_of_epoch())


def warn_of_unused_options(cfg: StatefulLanguageModelingConfig) -> None:
    """Log the options that were given, but that have no effect on how these data are batched."""
    why = "streams are read --bptt tokens at a time"
    if cfg.sentence_reset:
        why = "with --sentence-reset, a batch has whole sentences"
    defaults = StatefulLanguageModelingConfig.__dataclass_fields__
    for name in UNUSED_BY_SENTENCES if cfg.sentence_reset else UNUSED_BY_STREAMS:
        if getattr(cfg, name) not in (defaults[name].default, None):
            logger.warning("%s has no effect: %s", as_option(name), why)
