"""Language modelling over a continuous text: the state of a batch is where the next one starts."""

# No "from __future__ import annotations": fairseq reads the fields' types, and not as text.
import math
import os
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate

import numpy
import torch
from fairseq import utils
from fairseq.data import MonolingualDataset, TokenBlockDataset, data_utils, iterators
from fairseq.distributed import utils as distributed
from fairseq.tasks import register_task
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask

from ..cells.base import at_least_one
from ..data.streams import StreamDataset, piece_lengths, whole_text
from ..errors import UserError
from ..models.config import check_probabilities
from ..models.language_model import CarriedState, check_carries, map_state, state_parts
from ..models.stream_position import StatefulBatches, StreamPosition, with_carried_state


@dataclass
class StatefulLanguageModelingConfig(LanguageModelingConfig):
    """Options of the task beside those of fairseq's ``language_modeling``."""

    bptt: int = field(
        default=70, metadata={"help": "time steps that gradients flow back, and of a batch"}
    )
    bptt_jitter: float = field(
        default=0.0,
        metadata={"help": "standard deviation of the batches' time steps while training"},
    )
    state_reset_prob: float = field(
        default=0.0,
        metadata={
            "help": "probability that a stream goes on from zeros at a batch of training, so that "
            "the model can begin anywhere (Melis et al. 2018: 0.01)"
        },
    )
    sentence_reset: bool = field(
        default=False,
        metadata={"help": "each sentence by itself, from an all-zero state and after </s>"},
    )


@register_task("stateful_language_modeling", dataclass=StatefulLanguageModelingConfig)
class StatefulLanguageModelingTask(LanguageModelingTask):
    """Language modelling over streams, see :mod:`fairseq_casrnn.data.streams`.

    Each batch row reads one stream from its start to its end; an epoch starts from zeros, and so
    does every validation, which leaves the training's state alone. With ``--sentence-reset``,
    batches are of whole sentences instead, each starting from zeros.
    """

    def __init__(self, args, dictionary, output_dictionary=None, targets=None):
        super().__init__(args, dictionary, output_dictionary, targets)
        at_least_one("--bptt", args.bptt)
        if not 0 <= args.bptt_jitter < math.inf:
            raise UserError(f"--bptt-jitter is {args.bptt_jitter}; it must be a number, at least 0")
        check_probabilities(args, ["state_reset_prob"])
        if args.add_bos_token:
            raise UserError("each text begins with </s> already; drop --add-bos-token")
        if self.targets != ["future"]:
            raise UserError("this task predicts the next token; drop --self-target, --past-target")
        self.progress = {"training": StreamPosition(), "evaluation": StreamPosition()}
        self.training_data, self.worker = None, (0, 1)  # streams; number of how many
        self.training_stops = []  # steps read after each piece of the epoch
        self.training_states = None  # of all workers, when a checkpoint is about to be written
        self.epoch_finished = False  # then

    def build_model(self, args, from_checkpoint=False):
        """As fairseq's.

        Raises:
            UserError: a model that carries no state, and not ``--sentence-reset``.
        """
        model = super().build_model(args, from_checkpoint)
        if not self.args.sentence_reset:
            check_carries(model)
        return model

    # --- data ----------------------------------------------------------------------------------

    def load_dataset(self, split, epoch=1, combine=False, **kwargs):
        """Load the split ``split``.

        Raises:
            FileNotFoundError: there is none.
        """
        paths = utils.split_paths(self.args.data)
        path = os.path.join(paths[(epoch - 1) % len(paths)], split)
        sentences = data_utils.load_indexed_dataset(
            path, self.dictionary, self.args.dataset_impl, combine=combine
        )
        if sentences is None:
            raise FileNotFoundError(f"Dataset not found: {split} ({path})")
        if self.args.sentence_reset:
            self.datasets[split] = self.sentence_dataset(sentences)
            return
        self.datasets[split] = StreamDataset(whole_text(sentences), self.dictionary.pad())

    def sentence_dataset(self, sentences) -> MonolingualDataset:
        """The sentences one by one: </s> w₁ … wₙ predicts w₁ … wₙ </s>."""
        pad, eos = self.dictionary.pad(), self.dictionary.eos()
        blocks = TokenBlockDataset(
            sentences, sentences.sizes, None, pad, eos, break_mode="eos", include_targets=True
        )
        vocabulary = (self.dictionary, self.output_dictionary)
        return MonolingualDataset(
            blocks, blocks.sizes, *vocabulary, shuffle=True, targets=["future"]
        )

    def get_batch_iterator(self, dataset, *args, **kwargs):
        """Batches of ``dataset``; those of streams are never shuffled."""
        if not isinstance(dataset, StreamDataset):
            return super().get_batch_iterator(dataset, *args, **kwargs)
        # Of the two, fairseq's trainer gives this option to the training alone; the validation may
        # be of the same data.
        training = "grouped_shuffling" in kwargs
        return self.stream_iterator(dataset, *args, training=training, **kwargs)

    def stream_iterator(
        self,
        dataset,
        max_tokens=None,
        max_sentences=None,
        seed=1,
        num_shards=1,
        shard_id=0,
        num_workers=0,
        epoch=1,
        data_buffer_size=0,
        training=False,
        **unused,
    ):
        """The pieces of all streams in order, those of worker ``shard_id``; the same every epoch
        unless ``training`` with jitter.

        Raises:
            UserError: no ``--batch-size``; a text too short for it.
        """
        if max_sentences is None or max_tokens is not None:
            raise UserError(
                "--batch-size is the number of streams of each worker; give it, and neither "
                "--max-tokens nor --max-tokens-valid (or --sentence-reset for single sentences)"
            )
        bptt, streams = self.args.bptt, max_sentences * num_shards
        if training and len(dataset.tokens) < streams * bptt:
            raise UserError(
                f"the training data has {len(dataset.tokens)} tokens, fewer than --batch-size "
                f"times --bptt ({streams} x {bptt}); lower one of them"
            )
        if training:
            self._check_validation(num_shards)
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

    def _check_validation(self, workers: int) -> None:
        """Raises UserError where validation, after a whole epoch, would find its text too short."""
        rows = self.args.batch_size_valid
        for split, dataset in self.datasets.items():
            if rows is not None and split != "train" and isinstance(dataset, StreamDataset):
                dataset.cut(rows * workers, f"the split '{split}'", "--batch-size-valid")

    def eval_lm_dataloader(self, dataset, max_tokens=None, batch_size=None, **kwargs):
        """Batches for ``fairseq-eval-lm``; of streams, one unless ``--batch-size`` is given."""
        if self.args.sentence_reset:
            return super().eval_lm_dataloader(dataset, max_tokens, batch_size, **kwargs)
        if kwargs.get("num_shards", 1) > 1 or kwargs.get("context_window"):
            raise UserError(
                "the state flows through the whole text; give --distributed-world-size 1 (it is "
                "the number of GPUs unless given), and no --num-shards or --context-window"
            )
        iterator = self.stream_iterator(dataset, max_sentences=batch_size or 1)
        return StatefulBatches(iterator.next_epoch_itr(shuffle=False))

    def inference_step(self, generator, models, sample, *args, **kwargs):
        """As fairseq's: continue each sentence.

        Raises:
            UserError: the batch is of streams, cut anywhere.
        """
        if "start" in sample:
            raise UserError("fairseq-generate continues sentences; give --sentence-reset as well")
        return super().inference_step(generator, models, sample, *args, **kwargs)

    # --- the state -----------------------------------------------------------------------------

    def train_step(self, sample, model, criterion, optimizer, update_num, ignore_grad=False):
        """As fairseq's, from the state that the batch before left, or from zeros now and then."""
        return self.run_with_state(
            "training",
            sample,
            super().train_step,
            model,
            criterion,
            optimizer,
            update_num,
            ignore_grad,
            reset=partial(self.reset_random_streams, update_num=update_num),
        )

    def valid_step(self, sample, model, criterion):
        """As fairseq's, from the state that the batch before left."""
        return self.run_with_state("evaluation", sample, super().valid_step, model, criterion)

    def run_with_state(self, what: str, sample, step, *args, reset=None):
        """Call ``step`` on ``sample`` with the state of ``progress[what]``; keep the new one.

        ``reset(state, start)``, if given, is the state that the model gets instead.
        """
        if "start" not in sample:  # sentences
            return step(sample, *args)
        start, stop = sample["start"], sample["stop"]
        before = self.progress[what].state_at(start, sample["target"].device)
        carried = CarriedState(reset(before, start) if reset and before is not None else before)
        result = step(with_carried_state(sample, carried), *args)
        self.progress[what] = StreamPosition(start, stop, before, carried.state)
        return result

    def reset_random_streams(self, state, start: int, update_num: int):
        """``state`` with zeros for the streams that chance picks (``--state-reset-prob``).

        The same ones for the same arguments, so that a resumed training is the uninterrupted one.
        """
        if not self.args.state_reset_prob:
            return state
        first = state_parts(state)[0]
        streams = first.size(1)
        seed = (self.args.seed, update_num, self.worker[0], start)
        draws = numpy.random.default_rng(seed).random(streams)
        gone = torch.from_numpy(draws < self.args.state_reset_prob).unsqueeze(-1)
        gone = gone.to(first.device, non_blocking=True)
        return map_state(lambda part: part.masked_fill(gone, 0), state)

    def before_checkpoint(self, workers: int, finished: bool) -> None:
        """Collect the states of all workers; called by each of them before one saves.

        ``finished``: whether it is the end of an epoch.
        """
        self.epoch_finished = finished
        after = self.progress["training"].after
        if after is None:
            self.training_states = []
            return
        parts = list(state_parts(after))
        if workers > 1:
            group = distributed.get_data_parallel_group()
            parts = [
                torch.cat(distributed.all_gather(part.contiguous(), group), 1) for part in parts
            ]
        self.training_states = [part.cpu() for part in parts]

    def get_checkpoint_dict(self) -> dict:
        """What fairseq puts into a checkpoint: steps read, and the state of all streams there."""
        if self.training_data is None:  # sentences
            return {}
        if self.training_states is None:
            self.before_checkpoint(1, False)
        step = self.progress["training"].stop
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
            UserError: it is of the middle of an epoch with other streams or pieces.
        """
        state, dataset = content["state"], self.training_data
        finished = content.get("finished", False) or content["step"] == content["steps"]
        if not state or dataset is None or finished:
            return  # sentences, or a new epoch, which begins from zeros
        if state[0].size(1) != len(dataset):
            raise UserError(
                f"the checkpoint is of the middle of an epoch with {state[0].size(1)} streams, but "
                f"--batch-size times workers is {len(dataset)}; give the numbers it was made with, "
                "or --reset-dataloader to begin the epoch anew"
            )
        # fairseq continues after as many batches, wherever in the text those end now.
        pieces = content.get("pieces", bisect_right(self.training_stops, content["step"]))
        if self.training_stops[pieces - 1 : pieces] != [content["step"]]:
            raise UserError(
                f"the checkpoint is of the middle of an epoch, after {pieces} batches of "
                f"{content['step']} steps together, but those of this run are of other lengths; "
                "give the data, --bptt, --bptt-jitter and --seed it was made with, or "
                "--reset-dataloader to begin the epoch anew"
            )
        worker, workers = self.worker
        rows = len(dataset) // workers
        first = rows * worker
        own = [part[:, first : first + rows].contiguous() for part in state]
        after = own[0] if len(own) == 1 else tuple(own)
        self.progress["training"] = StreamPosition(stop=content["step"], after=after)


def collect_states(cfg, trainer, epoch_itr, *args, **kwargs) -> None:
    """Before fairseq's ``save_checkpoint``, in which only the first worker saves.

    The others' states are collected while all are here.
    """
    if isinstance(trainer.task, StatefulLanguageModelingTask) and not cfg.no_save:
        workers = trainer.data_parallel_world_size
        trainer.task.before_checkpoint(workers, epoch_itr.end_of_epoch())
