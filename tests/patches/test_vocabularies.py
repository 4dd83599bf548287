"""Language models record whether they read a beginning-of-sentence symbol first."""

from types import SimpleNamespace
from unittest import mock

import pytest
from fairseq.tasks import LegacyFairseqTask
from fairseq.tasks.language_modeling import LanguageModelingTask


@pytest.mark.parametrize("reads_bos", [True, False])
def test_language_model_records_reads_bos(reads_bos):
    task = LanguageModelingTask.__new__(LanguageModelingTask)
    task.args, task.targets = SimpleNamespace(add_bos_token=reads_bos), ["future"]
    built = SimpleNamespace(supported_targets={"future"})
    with mock.patch.object(LegacyFairseqTask, "build_model", return_value=built):
        assert task.build_model(None).reads_bos is reads_bos
