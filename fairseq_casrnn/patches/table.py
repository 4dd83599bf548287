"""The list of patches. It imports only :mod:`.patch`, so that ``casrnn patches`` starts fast."""

from __future__ import annotations

from fairseq_casrnn.patches.patch import parse

# Targets with the same hooks stand together. Below them, for each hook: kind, when, function and
# where (see Patch), then what it does.
TABLE = parse("""
# Messages come first, so that mistakes found by later patches are also printed as one sentence.
sys.excepthook
    message call patches.messages.set_excepthook in programs
        print known mistakes as one sentence; CASRNN_TRACEBACK=1 shows the traceback
fairseq.distributed.utils.distributed_main
    message replace patches.messages.worker_with_messages in programs
        print known mistakes in one of several training processes as one sentence
fairseq.options.gen_parser_from_dataclass
    message before patches.messages.shorten_usage in programs
        report a wrong option without printing the hundreds of options of fairseq
    feature after precision.add_option_to_common
        add --float32-matmul-precision to every program
logging.Filterer.filters
    message call patches.messages.filter_logs in programs
        when a program fails, do not first print all options or weights
warnings.filters
    message call patches.messages.filter_warnings in programs
        hide warnings about how fairseq's dependencies use each other
sys.stdout
    message call patches.messages.prepare_output in programs
        write UTF-8 in any locale; fail with one sentence if stdout cannot be written
# Checkpoints.
torch.serialization.safe_globals
    fix call patches.safe_loading.allow_checkpoint_globals
        let torch.load(weights_only=True) read the options and arrays in fairseq's checkpoints
fairseq.distributed.utils._broadcast_object_slow
    fix around patches.safe_loading.allow_broadcast_globals
        let rank 0 broadcast the checkpoint it has loaded, so that several processes can resume
fairseq.checkpoint_utils.torch_persistent_save
    safety around patches.checkpoint_files.save_whole_file
        write each checkpoint completely or not at all
fairseq.file_io.PathManager.copy
    safety around patches.checkpoint_files.copy_whole_file
        replace checkpoint_last.pt atomically; fairseq overwrites it in place
fairseq.checkpoint_utils.load_checkpoint
    safety before patches.save_dir_lock.claim_save_dir
        lock --save-dir: two trainings would overwrite each other's checkpoints
    fix before patches.early_stopping.forget_last_training
        forget the best score of an earlier training in this process, as in a sweep of Hydra
    safety around patches.checkpoint_files.check_before_resuming
        refuse a missing checkpoint, or one without its epoch and batch; fairseq starts anew
fairseq.checkpoint_utils.load_checkpoint_to_cpu
    safety before patches.checkpoint_files.check_archive
        refuse a checkpoint whose contents do not match its checksums
fairseq.checkpoint_utils.load_model_ensemble_and_task
    feature around models.packed.load_packed
        let --path take a file written by casrnn pack
fairseq.checkpoint_utils.save_checkpoint
    safety before patches.divergence.check_before_saving
        do not save a model with NaN or infinite weights
    resumption before tasks.stateful_language_modeling.collect_states
        collect the stream states of all processes in the one checkpoint that rank 0 writes
    feature after runs.training.write
        write run.json: what was trained, on which data, with which scores
fairseq.trainer.Trainer.save_checkpoint
    resumption before patches.resumption.save_state
        save task, dictionaries' digests, --patience, annealing and options that change the output
fairseq.trainer.Trainer.load_checkpoint
    resumption after patches.resumption.restore_state
        restore what is saved above; refuse other dictionaries or options that change the output
fairseq.optim.lr_scheduler.reduce_lr_on_plateau.ReduceLROnPlateauLRSchedule.state_dict
    resumption after patches.early_stopping.save_plateau_counters
        save how many epochs reduce_lr_on_plateau has waited; fairseq saves only its best loss
fairseq.optim.lr_scheduler.reduce_lr_on_plateau.ReduceLROnPlateauLRSchedule.load_state_dict
    resumption around patches.early_stopping.restore_plateau_counters
        restore how many epochs reduce_lr_on_plateau has waited
fairseq.tasks.FairseqTask.state_dict
    safety after patches.vocabularies.add_digests
        add a digest of each of the task's dictionaries to its state
fairseq.tasks.FairseqTask.load_state_dict
    safety before patches.vocabularies.check_words
        refuse a model that was trained with other dictionaries than the task has
fairseq.tasks.FairseqTask.get_batch_iterator
    resumption around patches.batching.keep_batches_on_resume
        form the same batches after resuming; fairseq seeds them with the epoch it starts in
    fix around patches.batching.separate_validation
        validate on the training set without advancing the training's place in it
fairseq.models.build_model
    fix around models.loading_checkpoint.build_model
        load old checkpoints that lack newer options, without files such as the word vectors
# Training.
fairseq_cli.train.validate
    safety around patches.divergence.check_validation
        ignore the metrics of a model with NaN or infinite weights
fairseq_cli.train.get_valid_stats
    safety before patches.divergence.check_loss
        stop the training if the validation loss is not finite
    fix before patches.generation.score_empty_translations
        report --eval-bleu as 0 if all translations are empty; fairseq reports none and fails
    feature after runs.training.keep_scores
        write the scores of each validation to run.json
fairseq_cli.train.should_stop_early
    fix around patches.early_stopping.ignore_zero_metric
        let --patience ignore epochs in which F1 or BLEU is still 0
fairseq.optim.lr_scheduler.reduce_lr_on_plateau.ReduceLROnPlateauLRSchedule.step
    fix around patches.early_stopping.ignore_zero_metric_on_plateau
        let reduce_lr_on_plateau ignore epochs in which F1 or BLEU is still 0
fairseq.distributed.utils.call_main
    feature after runs.training.finish in train
        record in run.json that the training finished
fairseq_cli.train.train
    safety around patches.signals.stop_between_epochs in train
        save a checkpoint and stop on SIGTERM or SIGUSR1 between epochs
    resumption around patches.early_stopping.stay_stopped_early
        train no further epoch when a training that stopped early is started again
fairseq_cli.train.validate_and_save
    safety after patches.signals.stop_after_update in train
        save a checkpoint and stop on SIGTERM or SIGUSR1 within an epoch
torch.multiprocessing.spawn
    safety around patches.signals.forward_signals in train
        forward SIGTERM and SIGUSR1 to the training process of each GPU
torch.utils.data._utils.worker._worker_loop
    safety before patches.signals.ignore_sigterm_in_workers in train
        keep data-loading workers alive on a job's SIGTERM, so that the update completes
fairseq.distributed.utils._infer_torch_distributed_launch_init
    fix around patches.distributed.start_without_gpus
        support torchrun without GPUs; fairseq divides by their number
fairseq.criterions.adaptive_loss.AdaptiveLoss.forward
    fix around patches.adaptive_loss.forward
        train the second word of each cluster; fairseq takes it for padding
fairseq.trainer.Trainer.begin_epoch
    feature after models.annealing.begin_epoch
        lower the temperature of a second-order LSTM after each epoch
fairseq.trainer.Trainer.train_step
    feature before models.annealing.begin_update
        lower the temperature of a second-order LSTM after each update
# Options.
fairseq.options.parse_args_and_arch
    fix after patches.half_precision.use_tpu_only_if_asked
        --bf16: train on the GPU or CPU, as with fairseq-hydra-train; fairseq looks for a TPU
    message around patches.checks.check_command_line
        reject invalid or useless values of options before the work begins
fairseq.trainer.Trainer.__init__
    message around patches.checks.check_trainer
        check that options, model, criterion and device fit; fairseq-hydra-train, too
    speed after models.compiling.compile_ahead
        compile the GPU's kernels in parallel while the data is loaded
# Data.
fairseq.data.data_utils.batch_by_size
    fix around patches.batching.keep_last_batch
        keep a last batch that 8 does not divide (facebookresearch/fairseq#5036)
fairseq.data.ConcatDataset.__init__
    fix around patches.batching.read_first_part_once
        read the first shard of a split (train, train1, …) once; fairseq passes a repeat count of -1
numpy.compat
    fix call patches.batching.restore_numpy_long
        define numpy.compat.long, absent from numpy 2.4, for --sample-break-mode eos and sampling
fairseq.data.bucket_pad_length_dataset.get_buckets
    fix around patches.batching.get_buckets
        support --num-batch-buckets with numpy 2.4, which lacks percentile(interpolation=)
fairseq.data.indexed_dataset.make_dataset
    safety around patches.checks.check_dataset
        refuse binarised data that is truncated, damaged or made with another dictionary
fairseq.data.indexed_dataset.IndexedRawTextDataset.read_data
    fix around patches.text.read_raw
        raw text: end lines at line feeds only, skip a byte-order mark, refuse words like <pad>
fairseq.data.dictionary.Dictionary.add_from_file
    fix around patches.text.add_from_file
        dictionaries: end lines at line feeds only, skip a byte-order mark, report bad lines
fairseq.data.dictionary.find_offsets
fairseq.binarizer.find_offsets
    fix around patches.text.find_offsets
        fairseq-preprocess: split a file between workers at line feeds only
fairseq.file_chunker_utils.Chunker.__enter__
    fix around patches.text.open_chunk
        fairseq-preprocess: end lines at line feeds only, skip a byte-order mark
fairseq.hub_utils.GeneratorHubInterface.binarize
    fix around patches.text.escape_sentence
        do not read a word such as <pad> in a sentence as padding
fairseq_cli.interactive.buffered_read
    fix around patches.text.read_buffers in interactive
        fairseq-interactive: end lines at line feeds only, skip a byte-order mark
fairseq_cli.interactive.make_batches
    fix around patches.text.escape_batches in interactive
        do not read a word such as <pad> in a sentence as padding
    fix around patches.replace_unk.keep_source_words in interactive
        --replace-unk: keep the source words of each batch
fairseq_cli.preprocess.main
    safety around patches.checks.preprocess in preprocess
        check text and options first, and remove the output after a failure
# Generation and evaluation.
fairseq.sequence_generator.SequenceGenerator.__init__
    safety before patches.vocabularies.check_generator
        refuse an ensemble of models with different dictionaries
fairseq.tasks.language_modeling.LanguageModelingTask.build_model
    safety after patches.vocabularies.record_add_bos_token
        record --add-bos-token: a search starts with </s> and refuses a model that needs <s>
fairseq.data.LanguagePairDataset.collater
    fix after patches.replace_unk.add_source_words
        --replace-unk: add the source words to each batch of raw text
fairseq.sequence_generator.SequenceGenerator.generate
fairseq.sequence_generator.SequenceGeneratorWithAlignment.generate
fairseq.sequence_scorer.SequenceScorer.generate
    fix after patches.replace_unk.add_alignments
        --replace-unk: align by attention; fairseq reads an alignment that it never computed
fairseq.utils.load_align_dict
    fix around patches.replace_unk.load_align_dict
        --replace-unk: read the dictionary as UTF-8, and report lines of one word
fairseq.utils.post_process_prediction
    fix around patches.replace_unk.post_process_prediction
        --replace-unk: replace words before subwords are joined, not afterwards
fairseq.ngram_repeat_block.NGramRepeatBlock._no_repeat_ngram
    fix around patches.generation.no_repeat_ngram
        make --no-repeat-ngram-size work on the CPU; fairseq compares padding, not the last words
fairseq.search.DiverseBeamSearch.step
    fix around patches.generation.step_with_batch_positions in programs
        --diverse-beam-groups: identify sentences by position in the batch, not in the data set
fairseq_cli.eval_lm.eval_lm
    safety after patches.generation.check_tokens_evaluated in eval_lm
        fail if no token was evaluated; fairseq reports a perplexity of 1
fairseq.tasks.fairseq_task.StatefulContainer.__getattr__
    fix before patches.pickling.reject_private_attribute
        let tasks, and models that hold one, be copied and pickled
copyreg.dispatch_table
    fix call patches.pickling.register_choice_enums
        let fairseq's choice enums, which all have one name, be pickled
# Speed.
fairseq.sequence_generator.SequenceGenerator._generate
    speed around patches.beam_loop.generate
        search with a third of the operations, and a single GPU synchronisation, per step
fairseq.optim.fp16_optimizer._FP16OptimizerMixin._sync_fp16_grads_to_fp32
    speed around patches.half_precision.sync_fp16_grads_to_fp32
        --fp16: convert all gradients to float32 in one launch, not one by one
fairseq.optim.fp16_optimizer._FP16OptimizerMixin._sync_fp32_params_to_fp16
    speed around patches.half_precision.sync_fp32_params_to_fp16
        --fp16: convert all weights to float16 in one launch, not one by one
fairseq.optim.fp16_optimizer._FP16OptimizerMixin.zero_grad
    speed around patches.half_precision.zero_grad
        --fp16: clear the gradients of all float32 weights in one launch
fairseq.utils.multi_tensor_l2norm
    speed call patches.gradient_norm.install
        without apex, compute the norm of all gradients in a few launches, not two per parameter
fairseq.trainer.Trainer.clip_grad_norm
    speed around patches.logged_numbers.clip_grad_norm
        copy the gradients' norm from the GPU once
fairseq.trainer.Trainer._reduce_and_log_stats
    speed around patches.logged_numbers.reduce_and_log_stats
        copy the numbers that an update logs from the GPU together
glibc.mallopt
    speed call patches.allocation.keep_freed_memory in programs
        keep freed memory for the next batch instead of returning it to the system
torch.set_flush_denormal
    speed call precision.flush_denormals in programs
        flush denormal numbers to zero; CPUs are slow at computing with them
""")
