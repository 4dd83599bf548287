"""``casrnn export``: a trained model as ONNX or as a program of torch.export."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from pathlib import Path

from fairseq_casrnn import __version__
from fairseq_casrnn.errors import UserError

FORMATS = {"onnx": ".onnx", "int8": ".onnx", "torch": ".pt2"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``casrnn export``."""
    parser.description = (
        "Write a trained model as ONNX files, with run.py, which runs them on numpy and "
        "onnxruntime alone; with weights in int8; or as programs for torch.export.load."
    )
    parser.add_argument(
        "--path", required=True, type=Path, help="file of casrnn pack, checkpoint, or its folder"
    )
    parser.add_argument(
        "--data", type=Path, help="folder of the dictionaries (default: that of the training)"
    )
    parser.add_argument(
        "--format", choices=FORMATS, default="onnx", help="of the files (default: onnx)"
    )
    parser.add_argument("--output", required=True, type=Path, help="folder to be made")


def run(args: argparse.Namespace) -> None:
    """Write the folder. Raises UserError."""
    from . import write
    from .graphs import graphs

    check_output(args.output)
    if args.format != "torch":
        write.require("onnx", "onnxscript", "onnxruntime")
    model, task = load(args.path, args.data)
    writer = {"onnx": write.write_onnx, "int8": write.write_int8, "torch": write.write_torch}
    with tempfile.TemporaryDirectory(
        dir=args.output.parent, prefix=f".{args.output.name}."
    ) as folder:
        made = Path(folder) / "model"
        made.mkdir()
        parts = graphs(model, task)
        for name, graph in parts.items():
            writer[args.format](graph, made / f"{name}{FORMATS[args.format]}")
        about = describe(model, task, made)
        about |= {"graphs": list(parts), "format": args.format, "fairseq-casrnn": __version__}
        if args.format != "torch":
            about["opset"] = write.OPSET
            shutil.copy(Path(__file__).with_name("runtime.py"), made / "run.py")
        (made / "export.json").write_text(json.dumps(about, indent=2, ensure_ascii=False) + "\n")
        made.rename(args.output)
    total = sum(file.stat().st_size for file in args.output.iterdir())
    print(f"{args.output}: {', '.join(sorted(os.listdir(args.output)))}; {total / 1e6:.1f} MB")


def check_output(folder: Path) -> None:
    """Raise UserError unless the folder can be made."""
    if folder.exists():
        raise UserError(f"{folder} exists already; give --output a new folder")
    if not folder.absolute().parent.is_dir():
        raise UserError(f"{folder.parent} is not a folder; make it, or correct --output")


def load(path: Path, data: Path | None):
    """A model in ``eval()`` mode and its task.

    Raises:
        UserError: there is no checkpoint, or the dictionaries are not found.
    """
    from fairseq import checkpoint_utils

    import fairseq_casrnn
    from fairseq_casrnn.diagnostics.explain import explained
    from fairseq_casrnn.evaluation.trained_lm import check_finite, checkpoint_file

    fairseq_casrnn.register()
    path = checkpoint_file(path)
    with explained():
        state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
        folder = data_folder(path, data, state["cfg"].task.data)
        (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
            [str(path)], arg_overrides={"data": str(folder)}
        )
    check_finite(model, path)
    return model.eval(), task


def data_folder(path: Path, given: Path | None, trained_on: str) -> Path:
    """The folder of a training's dictionaries. Raises UserError where it is not found."""
    from fairseq_casrnn.models.hub import data_places

    places = [given] if given else data_places(path.parent, trained_on)
    for place in places:
        if any(place.glob("**/dict*.txt")):
            return place
    raise UserError(
        f"no dict.txt in {' nor in '.join(map(str, places))}; name the folder of the training's "
        "data with --data"
    )


def describe(model, task, folder: Path) -> dict[str, object]:
    """What ``run.py`` needs to know; writes the dictionaries into ``folder``."""
    from fairseq_casrnn.models.sentence_encoder import SentenceClassifier
    from fairseq_casrnn.models.tagger import Tagger
    from fairseq_casrnn.tasks.labelled import normalisation

    task.source_dictionary.save(str(folder / "dict.txt"))
    about: dict[str, object] = {"dictionary": "dict.txt"}
    if isinstance(model, (SentenceClassifier, Tagger)):
        about |= {"kind": "classifier", "classes": list(task.classes)}
        about |= normalisation(task.cfg, task.state.text)
        if isinstance(model, SentenceClassifier):
            return about | {"pairs": bool(task.pairs)}
        about["kind"] = "tagger"
        if model.encoder.spelling is not None:
            task.characters.save(str(folder / "characters.txt"))
            about["characters"] = "characters.txt"
        return about
    rnn = model.decoder.rnn
    about |= {"layers": rnn.num_layers, "hidden_size": rnn.hidden_size}
    about["state"] = ["h", "c"] if rnn.has_cell else ["h"]
    if not hasattr(model, "encoder"):
        return about | {"kind": "language model"}
    task.target_dictionary.save(str(folder / "dict.target.txt"))
    return about | {"kind": "translation", "target_dictionary": "dict.target.txt"}
