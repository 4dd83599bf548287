"""The table of changes. It imports nothing, so that ``casrnn patches`` answers at once."""

from __future__ import annotations

from collections.abc import Iterator, Set

from .patch import VERSIONS, Patch

# What is changed (functions with the same pieces together); below, for each piece its kind, when,
# function and where, and why.
_TABLE = """
# Messages come first: the mistakes of the others are told in one sentence as well.
sys.excepthook
    message call patches.messages.set_excepthook in programs
        a known mistake is told in one sentence; CASRNN_TRACEBACK=1 shows the traceback
fairseq.distributed.utils.distributed_main
    message replace patches.messages.explained_worker in programs
        a known mistake in one of several training processes is told in one sentence
fairseq.options.gen_parser_from_dataclass
    message before patches.messages.shorten_usage in programs
        a wrong option is told without fairseq's hundreds of options
    feature after precision.add_option_to_common
        every program has --float32-matmul-precision
logging.Filterer.filters
    message call patches.messages.filter_logs in programs
        two loggers of fairseq do not print every option or weight before an error
warnings.filters
    message call patches.messages.filter_warnings in programs
        no warnings of fairseq's libraries about each other, of which no user can do anything
sys.stdout
    message call patches.messages.prepare_output in programs
        text goes out in UTF-8, and output that cannot be written ends with a sentence
# Checkpoints.
torch.serialization.safe_globals
    fix call patches.safe_loading.allow_checkpoint_globals
        torch.load(weights_only=True) reads the options and counts in fairseq's checkpoints
fairseq.distributed.utils._broadcast_object_slow
    fix around patches.safe_loading.allow_broadcast_globals
        several processes can resume: the first hands its checkpoint on by torch.load
fairseq.checkpoint_utils.torch_persistent_save
    safety around patches.checkpoint_files.save_whole_file
        a checkpoint is written completely or not at all
fairseq.file_io.PathManager.copy
    safety around patches.checkpoint_files.copy_whole_file
        checkpoint_last.pt is not overwritten in place, where a full disk would destroy it
fairseq.checkpoint_utils.load_checkpoint
    safety before patches.save_dir_lock.claim_save_dir
        two trainings do not overwrite each other's checkpoints in one folder
    safety around patches.checkpoint_files.check_before_resuming
        no new training begins where a checkpoint is missing or does not say how far it got
fairseq.checkpoint_utils.load_checkpoint_to_cpu
    safety before patches.checkpoint_files.check_archive
        a checkpoint whose contents do not match their checksums is refused
fairseq.checkpoint_utils.load_model_ensemble_and_task
    feature around models.packed.load_packed
        --path of fairseq's programs takes a file of casrnn pack
fairseq.checkpoint_utils.save_checkpoint
    safety before patches.divergence.check_before_saving
        a model that is not finite is not saved
    resumption before tasks.stateful_language_modeling.collect_states
        the states of all streams go into the checkpoint, of which one process writes
    feature after runs.training.write
        run.json says what was trained, on what and how well
fairseq.trainer.Trainer.save_checkpoint
    safety before patches.vocabularies.keep_digests
        a checkpoint knows the dictionaries of its training
    safety before patches.resumption.keep_functional_options
        a checkpoint knows the options with which the same weights compute something else
    resumption before patches.resumption.keep_task_state
        the state of a task is kept where it is read again
    resumption before patches.early_stopping.keep
        --patience counts on after an interruption
    resumption before models.annealing.save_annealing
        the annealing of a second-order LSTM goes on as it began
fairseq.trainer.Trainer.load_checkpoint
    safety after patches.vocabularies.check_digests
        a training does not go on with other words than it began with
    safety after patches.resumption.check_functional_options
        a training does not go on with a function that its weights were not trained for
    resumption after patches.resumption.restore_task_state
        fairseq writes the state of a task and does not read it when training
    resumption after patches.early_stopping.restore
        --patience counts on after an interruption
    resumption after patches.early_stopping.step_plateau
        a checkpoint of the end of an epoch is written before reduce_lr_on_plateau's step
    resumption after patches.resumption.restore_annealing
        the annealing of a second-order LSTM goes on as it began
fairseq.optim.lr_scheduler.reduce_lr_on_plateau.ReduceLROnPlateauLRSchedule.state_dict
    resumption after patches.early_stopping.keep_counters
        fairseq keeps the best loss of reduce_lr_on_plateau, but not the epochs since
fairseq.optim.lr_scheduler.reduce_lr_on_plateau.ReduceLROnPlateauLRSchedule.load_state_dict
    resumption around patches.early_stopping.restore_counters
        fairseq keeps the best loss of reduce_lr_on_plateau, but not the epochs since
fairseq.tasks.FairseqTask.state_dict
    safety after patches.vocabularies.add_digests
        the state of a task knows its dictionaries
fairseq.tasks.FairseqTask.load_state_dict
    safety before patches.vocabularies.check_before_loading
        a model is not used with other words than it was trained with
fairseq.tasks.FairseqTask.get_batch_iterator
    resumption around patches.batching.keep_batches_on_resume
        fairseq forms other batches when a training starts in a later epoch
fairseq.models.build_model
    fix around models.loading_checkpoint.build_model
        a checkpoint needs neither later options nor the files that its training began with
# Training.
fairseq_cli.train.validate
    safety around patches.divergence.check_validation
        metrics of a model that is not finite do not count
fairseq_cli.train.get_valid_stats
    safety before patches.divergence.check_loss
        a validation loss that is not finite ends the training
    fix before patches.generation.score_empty_translations
        --eval-bleu is 0, not missing, where all translations are empty
    message before patches.checks.check_metric
        a --best-checkpoint-metric that the criterion does not give is told with those it gives
    feature after runs.training.keep_scores
        the scores of each validation go into run.json
fairseq_cli.train.should_stop_early
    fix around patches.early_stopping.wait_for_success
        --patience does not count epochs before F1 or BLEU is above 0
fairseq.optim.lr_scheduler.reduce_lr_on_plateau.ReduceLROnPlateauLRSchedule.step
    fix around patches.early_stopping.wait_for_success_on_plateau
        reduce_lr_on_plateau does not count epochs before F1 or BLEU is above 0
fairseq.distributed.utils.call_main
    feature after runs.training.finish in train
        run.json says that a training came to its end
fairseq_cli.train.train
    safety around patches.signals.stop_between_epochs in train
        SIGTERM and SIGUSR1 stop a training with a checkpoint
    resumption around patches.early_stopping.stay_stopped
        no epoch follows when a training that had stopped early is started again
fairseq_cli.train.validate_and_save
    safety after patches.signals.stop_after_update in train
        SIGTERM and SIGUSR1 stop a training with a checkpoint
torch.multiprocessing.spawn
    safety around patches.signals.pass_signals_on in train
        the process that waits for those of several GPUs passes the signal on
torch.utils.data._utils.worker._worker_loop
    safety before patches.signals.survive_in_workers in train
        a process that loads data does not die of the job's SIGTERM in the middle of an update
fairseq.distributed.utils._infer_torch_distributed_launch_init
    fix around patches.distributed.start_without_gpus
        torchrun works without GPUs, by whose number fairseq divides
fairseq.criterions.adaptive_loss.AdaptiveLoss.forward
    fix around patches.adaptive_loss.forward
        adaptive_loss trains the second word of each cluster, which it takes for padding
fairseq.trainer.Trainer.begin_epoch
    feature after models.annealing.begin_epoch
        the temperature of a second-order LSTM falls with the epochs
fairseq.trainer.Trainer.train_step
    feature before models.annealing.begin_update
        the temperature of a second-order LSTM falls with the updates
# Options.
fairseq.options.parse_args_and_arch
    message around patches.checks.check_command_line
        a wrong or idle value of an option is told before the work begins
fairseq.trainer.Trainer.__init__
    message around patches.checks.check_trainer
        options of fairseq-hydra-train, model, criterion and device are checked together
    speed after models.compiling.compile_ahead
        a GPU's kernels are compiled several at a time, while the data is loaded
# Data.
fairseq.data.data_utils.batch_by_size
    fix around patches.batching.keep_last_batch
        fairseq drops the last batch where 8 does not divide it (facebookresearch/fairseq#5036)
fairseq.data.ConcatDataset.__init__
    fix around patches.batching.read_first_part_once
        the first part of a split in several (train, train1, …) is read once, not -1 times
numpy.compat
    fix call patches.batching.restore_numpy_long
        --sample-break-mode eos and sampling work with numpy 2.4, which lacks numpy.compat.long
fairseq.data.bucket_pad_length_dataset.get_buckets
fairseq.data.data_utils.get_buckets
    fix around patches.batching.get_buckets
        --num-batch-buckets works with numpy 2.4, which lacks percentile(interpolation=)
fairseq.data.indexed_dataset.make_dataset
    safety around patches.checks.check_dataset
        binarised data that is truncated, damaged or of another dictionary is refused
fairseq.data.data_utils.infer_language_pair
    message after patches.checks.check_languages
        a folder that holds no binarised translation data is named
fairseq.tasks.setup_task
    message before patches.checks.check_data in train
        task.data of fairseq-hydra-train must be given
fairseq.data.indexed_dataset.MMapIndexedDataset.__del__
fairseq.data.indexed_dataset.MMapIndexedDataset.Index.__del__
    message around patches.checks.close_map
        no second error where a file could not be mapped
fairseq.data.indexed_dataset.IndexedRawTextDataset.read_data
    fix around patches.text.read_raw
        raw text: lines end at a line feed only, a byte-order mark is no word, <pad> is refused
fairseq.data.dictionary.Dictionary.add_from_file
    fix around patches.text.add_from_file
        dictionaries: likewise
fairseq.data.dictionary.find_offsets
fairseq.binarizer.find_offsets
    fix around patches.text.find_offsets
        text of fairseq-preprocess: likewise
fairseq.file_chunker_utils.Chunker.__enter__
    fix around patches.text.open_chunk
        text of fairseq-preprocess: likewise
fairseq.hub_utils.GeneratorHubInterface.binarize
    fix around patches.text.escape_sentence
        a word such as <pad> in a sentence to be translated is not padding
fairseq_cli.interactive.buffered_read
    fix around patches.text.read_buffers in interactive
        fairseq-interactive reads lines as training does
fairseq_cli.interactive.make_batches
    fix around patches.text.escape_batches in interactive
        a word such as <pad> in a sentence to be translated is not padding
    fix around patches.replace_unk.keep_source_words in interactive
        --replace-unk finds the words of the source
fairseq_cli.preprocess.main
    safety around patches.checks.preprocess in preprocess
        text and options are checked first, and nothing half-written is left
# Generation and evaluation.
fairseq.sequence_generator.SequenceGenerator.__init__
    safety before patches.vocabularies.check_generator
        models with different words do not search together
fairseq.tasks.language_modeling.LanguageModelingTask.build_model
    safety after patches.vocabularies.note_first_token
        a language model that reads <s> first does not join a search that begins with </s>
fairseq.data.LanguagePairDataset.collater
    fix after patches.replace_unk.add_source_words
        --replace-unk finds the words of the source
fairseq.sequence_generator.SequenceGenerator.generate
fairseq.sequence_generator.SequenceGeneratorWithAlignment.generate
fairseq.sequence_scorer.SequenceScorer.generate
    fix after patches.replace_unk.add_alignments
        --replace-unk goes by attention, where fairseq looks for an alignment it has not made
fairseq.utils.load_align_dict
    fix around patches.replace_unk.load_align_dict
        --replace-unk's dictionary is UTF-8, and a line of one word is told
fairseq.utils.post_process_prediction
    fix around patches.replace_unk.post_process_prediction
        --replace-unk replaces words before subwords are joined
fairseq.ngram_repeat_block.NGramRepeatBlock._no_repeat_ngram
    fix around patches.generation.no_repeat_ngram
        --no-repeat-ngram-size works on the CPU, where fairseq compares with padding
fairseq.search.DiverseBeamSearch.step
    fix around patches.beam_search.step_by_places in programs
        --diverse-beam-groups knows finished sentences by their places in the batch
fairseq_cli.eval_lm.eval_lm
    safety after patches.generation.check_evaluated in eval_lm
        a perplexity of nothing is not 1
fairseq.tasks.fairseq_task.StatefulContainer.__getattr__
    fix before patches.pickling.get_attribute
        tasks, and models that have one, can be copied and pickled
copyreg.dispatch_table
    fix call patches.pickling.register_choices
        fairseq's types of choices, which all have one name, can be pickled
# Speed.
fairseq.sequence_generator.SequenceGenerator._generate
    speed around patches.beam_loop.generate
        beam search takes a third of the operations a step, and waits for a GPU once a step
fairseq.search.BeamSearch.step
    speed around patches.beam_search.step in programs
        candidates are chosen in one pass over the scores
fairseq.sequence_generator.EnsembleModel.forward_decoder
    speed around patches.next_tokens.forward_decoder in programs
        log-probabilities of the next tokens are computed in one pass
fairseq.optim.fp16_optimizer._FP16OptimizerMixin._sync_fp16_grads_to_fp32
    speed around patches.half_precision.sync_fp16_grads_to_fp32
        the gradients of --fp16 become float32 in one launch, not one by one
fairseq.optim.fp16_optimizer._FP16OptimizerMixin._sync_fp32_params_to_fp16
    speed around patches.half_precision.sync_fp32_params_to_fp16
        the weights of --fp16 become float16 in one launch, not one by one
fairseq.optim.fp16_optimizer._FP16OptimizerMixin.zero_grad
    speed around patches.half_precision.zero_grad
        the gradients of float32 weights are cleared in one launch
fairseq.utils.multi_tensor_l2norm
    speed call patches.gradient_norm.install
        without apex the norm of all gradients takes few launches, not two a parameter
fairseq.trainer.Trainer.clip_grad_norm
    speed around patches.logged_numbers.clip_grad_norm
        the gradients' norm is copied from the GPU once
fairseq.trainer.Trainer._reduce_and_log_stats
    speed around patches.logged_numbers.reduce_and_log_stats
        the numbers that an update logs are copied from the GPU together
glibc.mallopt
    speed call patches.allocation.keep_freed_memory in programs
        freed memory is kept for the next batch
torch.set_flush_denormal
    speed call precision.flush_denormals in programs
        denormal numbers, at which processors are slow, are taken for zero
"""


def _parse(text: str) -> Iterator[Patch]:
    targets: list[str] = []
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    complete = False
    for line in lines:
        if line.startswith(" "):
            kind, when, piece, *where = line.split()
            why, complete = next(lines).strip(), True
            for target in targets:
                yield Patch(target, kind, piece, why, when, "".join(where[1:]))
        else:
            targets, complete = [line] if complete else [*targets, line], False


TABLE = tuple(_parse(_TABLE))


def columns(omitted: Set[str] = frozenset()) -> str:
    """The table in plain columns: target, kind, where, why; ``omitted`` kinds are marked."""
    rows = [(f"changed in fairseq {VERSIONS[-1]}", "kind", "where", "why")]
    rows += [
        (
            patch.target,
            f"{patch.kind} (off)" if patch.kind in omitted else patch.kind,
            patch.where or "all",
            patch.why,
        )
        for patch in TABLE
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]))
        for row in rows
    )
