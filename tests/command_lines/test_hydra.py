"""fairseq-hydra-train with the YAML file of examples/hydra."""

from pathlib import Path

import pytest

from .programs import USER_DIR, checkpoint, generate, run

EXAMPLES = Path(__file__).parents[2] / "examples" / "hydra"
SMALL = [
    *(f"model.{side}_{size}=12" for side in ("encoder", "decoder") for size in ("embed_dim",)),
    *("model.encoder_hidden_size=12", "model.decoder_hidden_size=12"),
    *("model.decoder_out_embed_dim=12", "dataset.max_tokens=100", "dataset.num_workers=0"),
    *("common.cpu=true", "optimization.max_epoch=1"),
]


def hydra_train(data, folder, *overrides):
    command = ["fairseq-hydra-train", "--config-dir", EXAMPLES, "--config-name", "cas_lstm"]
    command += [f"common.user_dir={USER_DIR}", f"task.data={data}"]
    command += [f"checkpoint.save_dir={folder}/checkpoints", *SMALL, *overrides]
    return run(*command, cwd=folder)


@pytest.mark.full
def test_an_architecture_is_not_accepted_as_model(data, tmp_path):
    """Only fairseq-train knows an architecture's sizes; hydra would silently use the defaults."""
    done = hydra_train(data, tmp_path, "model._name=cas_lstm_iwslt_247")
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1] == (
        "error: cas_lstm_iwslt_247 is an architecture, whose sizes only fairseq-train --arch "
        "knows; name the model, model._name=cas_lstm, and give its sizes"
    )
    assert not list(tmp_path.glob("checkpoints/*.pt"))


@pytest.mark.full
def test_a_misspelt_option(data, tmp_path):
    done = hydra_train(data, tmp_path, "+model.encoder_bidirectionl=true")
    assert done.returncode != 0
    sentence = "error: unknown option 'encoder_bidirectionl'; did you mean encoder_bidirectional"
    assert done.stderr.splitlines()[-1].startswith(sentence)
    assert "Traceback" not in done.stderr


@pytest.mark.full
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [1\nb", r"line 2, is not a YAML file of options (expected ',' or ']'"),
        ("a: \x01", "yaml is not a YAML file of options (ReaderError); correct it, or check"),
        ("[" * 3000, "yaml is not a YAML file of options (RecursionError); correct it"),
        ("5", "yaml is not a YAML file of options (OSError); correct it"),
    ],
)
def test_invalid_yaml_files(tmp_path, content, message):
    """hydra reads the file before it imports this package."""
    (tmp_path / "bad.yaml").write_text(content)
    done = run(
        "fairseq-hydra-train", "--config-dir", tmp_path, "--config-name", "bad", cwd=tmp_path
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert message in line


@pytest.mark.full
def test_the_example_trains_and_its_checkpoint_translates(data, tmp_path):
    done = hydra_train(data, tmp_path, "model.lam=0.25", "+model.no_input_feed=true")
    assert done.returncode == 0, done.stdout + done.stderr
    path = tmp_path / "checkpoints" / "checkpoint_last.pt"
    model = checkpoint(path)["cfg"]["model"]
    assert model["_name"] == "cas_lstm"
    assert float(model["lam"]) == 0.25
    assert model["encoder_layers"] == model["decoder_layers"] == 2
    assert model["no_input_feed"] is True
    assert model["max_source_positions"] == 1024
    assert len(generate(data, path, "--beam", "4").lines("H")) == 9
