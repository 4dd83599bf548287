"""Invalid values of fairseq's options."""

import dataclasses

import pytest
import torch
from fairseq import options
from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY

from fairseq_casrnn.checks.option_ranges import BOUNDS, TORCHRUN, check_options
from fairseq_casrnn.errors import UserError


def refused(name: str, value) -> str:
    with pytest.raises(UserError) as caught:
        check_options({name: value})
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("update_freq", [1, 0], "--update-freq is 0; it must be at least 1"),
        ("batch_size", 0, "--batch-size is 0; it must be at least 1"),
        ("batch_size_valid", 0, "--batch-size-valid is 0; it must be at least 1"),
        ("max_tokens", 0, "--max-tokens is 0; it must be at least 1"),
        ("save_interval", 0, "--save-interval is 0; it must be at least 1"),
        ("lr", [0.1, -1.0], "--lr is -1.0; it must be at least 0"),
        ("lr", [float("nan")], "--lr is nan; it must be at least 0"),
        ("max_epoch", -1, "--max-epoch is -1; it must be at least 0, where 0 means no limit"),
        ("clip_norm", -1.0, "--clip-norm is -1.0; it must be at least 0, where 0 means no limit"),
        ("tokens_per_sample", 0, "--tokens-per-sample is 0; it must be at least 1"),
        ("sampling_topp", 2.0, "--sampling-topp is 2.0; it must lie in [0, 1]"),
        ("sampling_topp", -0.5, "--sampling-topp is -0.5; it must lie in [0, 1]"),
        ("lenpen", float("nan"), "--lenpen is nan; it must be a number"),
        ("temperature", 1e-7, "--temperature is 1e-07; it must be at least 1e-06"),
        ("temperature_floor", 0.0, "--temperature-floor is 0.0; it must be at least 1e-06"),
        ("seed", 2**32, "--seed is 4294967296; it must lie in [0, 4294967295]"),
        (
            "model_overrides",
            "{[1]: 2}",
            "--model-overrides is '{[1]: 2}', which is not a Python literal; write it as "
            "\"{'name': 'text', 'other': 3}\"",
        ),
        (
            "eval_bleu_remove_bpe",
            "nope",
            "--eval-bleu-remove-bpe 'nope' is unknown; choose from subword_nmt, sentencepiece, "
            "wordpiece, letter, silence, _EOW, none",
        ),
    ],
)
def test_values_out_of_range(name, value, sentence):
    assert refused(name, value) == sentence


@pytest.mark.parametrize(
    "value", ["abc", "0.9", "(0.9,)", "(0.9, 0.99, 1)", "(0.9, 1.0)", "('a', 'b')", [0.9, -1], "("]
)
def test_betas(value):
    assert refused("adam_betas", value).endswith("it must be two numbers in [0, 1), such as '(0.9, "
                                                 "0.999)'")  # fmt: skip


@pytest.mark.parametrize(
    ("metric", "maximize", "sentence"),
    [
        (
            "accuracy",
            False,
            "accuracy is better if it is higher; add --maximize-best-checkpoint-metric",
        ),
        ("f1", False, "f1 is better if"),
        ("loss", True, "loss is better if it is lower; drop --maximize-best-checkpoint-metric"),
        ("accuracy", True, None),
        ("loss", False, None),
        ("my_own", False, None),
        ("my_own", True, None),
    ],
)
def test_the_best_metric(metric, maximize, sentence):
    given = {"best_checkpoint_metric": metric, "maximize_best_checkpoint_metric": maximize}
    check_options({**given, "disable_validation": True})
    if sentence is None:
        check_options(given)
        return
    with pytest.raises(UserError, match=f"^--best-checkpoint-metric {sentence}"):
        check_options(given)


def test_batch_normalisation_of_single_sentences():
    with pytest.raises(UserError, match="--mlp-batch-norm needs several sentences in a batch"):
        check_options({"mlp_batch_norm": True, "batch_size": 1})
    check_options({"mlp_batch_norm": True, "batch_size": 2})
    check_options({"mlp_batch_norm": True, "batch_size": None})
    check_options({"mlp_batch_norm": False, "batch_size": 1})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"lm_path": "x", "score_reference": True}, "--score-reference ignores --lm-path"),
        (
            {"print_alignment": "soft", "score_reference": True},
            "--score-reference prints hard align",
        ),
        ({"lm_path": "x", "buffer_size": 1}, "fairseq-interactive ignores --lm-path; use"),
        ({"prefix_size": 2, "buffer_size": 1}, "fairseq-interactive ignores --prefix-size"),
        ({"results_path": "x", "buffer_size": 1}, "fairseq-interactive ignores --results-"),
        (
            {"pad_to_fixed_bsz": True, "context_window": 0},
            "fairseq-eval-lm ignores --pad-to-fixed",
        ),
    ],
)
def test_options_without_effect(options, sentence):
    with pytest.raises(UserError, match=f"^{sentence}"):
        check_options(options)


def test_context_window_as_long_as_the_sample():
    options = {"context_window": 20, "tokens_per_sample": 20, "sample_break_mode": "none"}
    with pytest.raises(UserError, match=r"^--context-window is 20; it must be less"):
        check_options(options)
    check_options({**options, "tokens_per_sample": 21})
    check_options({**options, "sample_break_mode": "eos"})  # a sample is a sentence


@pytest.mark.parametrize(("shard", "shards"), [(5, 2), (2, 2), (-1, 2), (1, 1)])
def test_shards(shard, shards):
    with pytest.raises(UserError, match=rf"^--shard-id is {shard}; .* than --num-shards {shards}$"):
        check_options({"shard_id": shard, "num_shards": shards})


@pytest.mark.parametrize(
    "values",
    [
        {"max_epoch": 0, "max_update": 0, "clip_norm": 0.0, "lr": [0.0, 1.0]},
        {"sampling_topk": -1, "sampling_topp": -1.0, "lenpen": -2.0, "num_workers": 0},
        {"sampling_topp": 1.0, "clip_norm": float("inf"), "max_tokens": None},
        {"adam_betas": "(0.9, 0.98)"},
        {"adam_betas": (0, 0.9)},
        {"beam": 5, "shard_id": 1, "num_shards": 2},
        {"beam": 5, "post_process": "@@ "},
        {"post_process": "##"},  # an option of fairseq-eval-lm
        {"eval_bleu_remove_bpe": None, "no_such_option": -1},
    ],
)
def test_valid_values(values):
    check_options(values)


def test_defaults_are_valid():
    """Users never see an error about an option that they did not give."""
    classes = [field.type for field in dataclasses.fields(FairseqConfig)]
    classes += [*TASK_DATACLASS_REGISTRY.values(), *MODEL_DATACLASS_REGISTRY.values()]
    for registry in REGISTRIES.values():
        classes += registry["dataclass_registry"].values()
    seen = set()
    for made in filter(dataclasses.is_dataclass, classes):
        check_options(vars(made()))
        seen |= vars(made()).keys()
    preprocess = vars(options.get_preprocessing_parser().parse_args([]))
    check_options(preprocess)
    assert BOUNDS.keys() <= seen | preprocess.keys()  # BOUNDS has no misspelt option


def test_several_processes_without_gpus(monkeypatch):
    """fairseq would start as many processes as GPUs, that is none, and end without an error."""
    asked = {"distributed_init_method": "tcp://127.0.0.1:29500", "distributed_world_size": 2}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(UserError, match="one process for each GPU, but there is none; start"):
        check_options(asked)
    check_options({**asked, "distributed_no_spawn": True})
    with pytest.raises(UserError, match="one process for each GPU, but there is none; start"):
        check_options({**asked, "distributed_init_method": None})
    monkeypatch.setenv("SLURM_JOB_NODELIST", "one")
    check_options({**asked, "distributed_init_method": None})
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    check_options(asked)


def test_workers_of_torchrun(monkeypatch):
    for name, value in (("MASTER_ADDR", "here"), ("MASTER_PORT", "1"), ("RANK", "0")):
        monkeypatch.setenv(name, value)
    training = {"save_dir": "checkpoints", "distributed_world_size": 1}
    check_options(training)
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(UserError, match="WORLD_SIZE in the environment is 'two', not a number"):
        check_options(training)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(UserError, match="alone; give --distributed-world-size 2"):
        check_options(training)
    two = {**training, "distributed_world_size": 2}
    check_options(two)
    for name, value, instead in (
        ("distributed_backend", "nccl", "--distributed-backend gloo"),
        ("ddp_backend", "pytorch_ddp", "--ddp-backend legacy_ddp"),
    ):
        with pytest.raises(UserError, match=f"needs GPUs, but there is none; give {instead}"):
            check_options({**two, name: value})
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        check_options({**two, name: value})
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


def test_torchrun_without_gpus(monkeypatch):
    """fairseq computes modulo the number of GPUs."""
    from fairseq.dataclass.configs import DistributedTrainingConfig
    from fairseq.distributed import utils as distributed

    for name, value in zip(TORCHRUN, ("here", "1", "3", "2"), strict=True):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    cfg = DistributedTrainingConfig(distributed_world_size=3, tpu=False, device_id=2)
    distributed.infer_init_method(cfg)
    assert (cfg.distributed_init_method, cfg.distributed_no_spawn) == ("env://", True)
    assert (cfg.distributed_rank, cfg.distributed_world_size, cfg.device_id) == (2, 3, 0)
