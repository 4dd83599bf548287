"""What a language model reads first, where the task that knows it is gone."""

from types import SimpleNamespace
from unittest import mock

import pytest
from fairseq.tasks import LegacyFairseqTask
from fairseq.tasks.language_modeling import LanguageModelingTask


@pytest.mark.parametrize("reads_bos", [True, False])
def test_a_language_model_knows_what_it_reads_first(reads_bos):
    task = LanguageModelingTask.__new__(LanguageModelingTask)
    task.args, task.targets = SimpleNamespace(add_bos_token=reads_bos), ["future"]
    built = SimpleNamespace(supported_targets={"future"})
    with mock.patch.object(LegacyFairseqTask, "build_model", return_value=built):
        assert task.build_model(None).reads_bos is reads_bos
