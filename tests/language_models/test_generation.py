"""fairseq-generate with language models."""

import pytest
from command_lines.programs import fairseq

from fairseq_casrnn.diagnostics.explain import explain


def generate(data, checkpoint, *options, split="eos"):
    """Continue the sentences of the test set."""
    task = ["--task", "language_modeling", "--sample-break-mode", split, "--cpu"]
    options = ["--num-workers", "0", "--batch-size", "4", "--path", checkpoint, *options]
    return fairseq("generate", data, *task, *options)


@pytest.mark.parametrize(
    ("options", "split", "sentence"),
    [
        (["--print-alignment"], "eos", "--print-alignment needs a model with attention, but this"),
        (["--tokens-per-sample", "9"], "none", "fairseq-generate continues single sentences, but"),
        (["--add-bos-token"], "eos", "fairseq-generate cannot continue a text with --add-bos-"),
    ],
)
def test_refused_options(data, checkpoint, options, split, sentence):
    with pytest.raises((IndexError, AssertionError)) as caught:
        generate(data, checkpoint, *options, split=split)
    assert explain(caught.value).startswith(sentence)


def test_no_repeat_ngram_size_ignores_prefixes(data, checkpoint):
    """Prefixes may repeat words; only their continuation may not."""
    done = generate(data, checkpoint, "--no-repeat-ngram-size", "1", "--beam", "2")
    lines = (data.parent / "test").read_text().splitlines()
    assert any(len(set(line.split())) < len(line.split()) for line in lines)
    found = [line[-1] for line in done.lines("H")]
    assert all(text.startswith(line) for text, line in zip(found, lines, strict=True))
