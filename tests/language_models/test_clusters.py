"""Assignment of tokens to cells by clustering embeddings."""

import numpy as np
import pytest
from fairseq import checkpoint_utils
from models.common import dictionary

from fairseq_casrnn import cli
from fairseq_casrnn.analysis.clusters import cluster
from fairseq_casrnn.diagnostics.explain import explain
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.models.routing import read_assignment

from .conftest import train


def test_clusters_are_found():
    rng = np.random.default_rng(0)
    vectors = np.concatenate([rng.normal(center, 0.1, (5, 3)) for center in (0, 5, 9)])
    cells = cluster(vectors, 3)
    assert [len(set(cells[i : i + 5])) for i in (0, 5, 10)] == [1, 1, 1]
    assert set(cells) == {0, 1, 2}
    with pytest.raises(UserError, match="--num-cells is 16; it must lie between 1 and 15"):
        cluster(vectors, 16)


def test_wrong_seed():
    with pytest.raises(UserError, match="--seed is -1"):
        cluster([[0.0], [1.0]], 2, seed=-1)


def test_command_and_training(data, checkpoint, tmp_path, capsys):
    """--assignment-path reads the written file, in which </s> and <unk> have cells, too."""
    out = tmp_path / "cells"
    command = ["data", "clusters", data, "--path", checkpoint, "--num-cells", 3, "--out", out]
    assert cli.main([str(part) for part in command]) == 0
    assert "22 tokens in 3 clusters of " in capsys.readouterr().out
    tokens = [line.split()[0] for line in out.read_text().splitlines()]
    assert {"</s>", "<unk>", "w4", "w22"} <= set(tokens)
    options = ["--arch", "second_order_lstm_lm_tiny", "--num-cells", 3, "--assignment-path", out]
    done = train(data, tmp_path / "model", *options, epochs=1)
    assert done.records("valid_loss")
    assert not done.records("train_temperature")  # a fixed assignment has no temperature


def test_resuming_with_another_table_is_refused(data, tmp_path):
    cells, model = tmp_path / "cells", tmp_path / "model"
    cells.write_text("".join(f"w{n} 1\n" for n in range(4, 14)))
    options = ["--arch", "second_order_lstm_lm_tiny", "--num-cells", 3, "--assignment-path", cells]
    train(data, model, *options, epochs=1)
    assert train(data, model, *options, epochs=2).records("valid_loss")
    cells.write_text(cells.read_text().replace(" 1", " 2"))
    with pytest.raises(Exception, match="Cannot load model parameters") as caught:
        train(data, model, *options, epochs=3)
    assert explain(caught.value).startswith(f"{cells} assigns other cells than the file that")


def test_tables_for_other_data(tmp_path, caplog):
    """Special symbols are in every table, so that they cannot show which data it is for."""
    words, cells = dictionary(), tmp_path / "cells"
    caplog.set_level("INFO")
    types = len(words) - words.nspecial
    few, many = types // 2 - 1, types // 2 + 1
    for count in (few, many):
        cells.write_text("</s> 1\n" + "".join(f"w{4 + n} 1\n" for n in range(count)))
        assert read_assignment(str(cells), words, 2).sum() == count + 1
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    line = f"{cells}: cells for {{}} of {types} types; the others go to cell 0"
    assert said[0] == ("WARNING", line.format(few) + "; is it for this data?")
    assert said[1] == ("INFO", line.format(many))
    cells.write_text("</s> 1\n<unk> 1\nforeign 1\n")
    with pytest.raises(UserError, match="assigns no token of the dictionary"):
        read_assignment(str(cells), words, 2)


def test_a_checkpoint_needs_no_file_that_training_read(data, tmp_path, capsys):
    cells, vectors = tmp_path / "cells", tmp_path / "vectors"
    cells.write_text("w4 1\nw5 2\n")
    vectors.write_text("w4 1 2 3 4\n")
    options = ["--arch", "second_order_lstm_lm_tiny", "--num-cells", 3, "--decoder-embed-dim", 4]
    options += ["--assignment-path", cells, "--decoder-embed-path", vectors]
    train(data, tmp_path, *options, epochs=1)
    path = tmp_path / "checkpoint_last.pt"
    (before,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    cells.unlink()
    vectors.unlink()
    (after,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(path)])
    assert [int(after.decoder.rnn.assignment[task.dictionary.index(f"w{n}")]) for n in (4, 5)] == [
        1,
        2,
    ]
    for name, tensor in before.state_dict().items():
        assert tensor.equal(after.state_dict()[name]), name
    assert cli.main(["perplexity", str(data), "--path", str(path)]) == 0
