"""``casrnn export``: writes a trained model as ONNX files or programs of torch.export."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from fairseq_casrnn import __version__
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.files import write_json
from fairseq_casrnn.inference.loading import Checkpoint

FORMATS = {"onnx": ".onnx", "int8": ".onnx", "torch": ".pt2"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``casrnn export``."""
    parser.description = (
        "Write a trained model as ONNX files, with weights in float32 or int8 and with run.py, "
        "which runs them with numpy and onnxruntime alone; or as programs for torch.export.load."
    )
    parser.add_argument(
        "--path",
        required=True,
        type=Path,
        help="file from casrnn pack, checkpoint, or its folder",
    )
    parser.add_argument(
        "--data", type=Path, help="folder with the dictionaries (default: the training data)"
    )
    parser.add_argument(
        "--format", choices=FORMATS, default="onnx", help="file format (default: onnx)"
    )
    parser.add_argument("--output", required=True, type=Path, help="folder to write")


def run(args: argparse.Namespace) -> None:
    """Write the folder. Raises UserError."""
    from fairseq_casrnn.data import words
    from fairseq_casrnn.export import write
    from fairseq_casrnn.export.graphs import graphs
    from fairseq_casrnn.inference.loading import load_model, read_checkpoint

    check_output(args.output)
    if args.format != "torch":
        write.require("onnx", "onnxscript", "onnxruntime")
    read = read_checkpoint(args.path)
    model, task = load_model(read, args.data)
    writer = {"onnx": write.write_onnx, "int8": write.write_int8, "torch": write.write_torch}
    with tempfile.TemporaryDirectory(
        dir=args.output.parent, prefix=f".{args.output.name}."
    ) as folder:
        draft = Path(folder) / "model"
        draft.mkdir()
        parts = graphs(model, task)
        for name, graph in parts.items():
            writer[args.format](graph, draft / f"{name}{FORMATS[args.format]}")
        about = describe(model, task, draft)
        if about["kind"] == "translation":
            about |= copy_subwords(read, args.data, draft)
        about |= {"graphs": list(parts), "format": args.format, "fairseq-casrnn": __version__}
        if args.format != "torch":
            about["opset"] = write.OPSET
            shutil.copy(Path(__file__).with_name("runtime.py"), draft / "run.py")
            if about.get("raw"):
                shutil.copy(words.__file__, draft / "words.py")
        write_json(draft / "export.json", about)
        draft.rename(args.output)
    total = sum(file.stat().st_size for file in args.output.iterdir())
    print(f"{args.output}: {', '.join(sorted(os.listdir(args.output)))}; {total / 1e6:.1f} MB")


def check_output(folder: Path) -> None:
    """Raise UserError if the folder exists already or cannot be created."""
    if folder.exists():
        raise UserError(f"{folder} exists already; give --output a new folder")
    if not folder.absolute().parent.is_dir():
        raise UserError(f"{folder.parent} is not a folder; create it, or correct --output")
    try:
        with tempfile.TemporaryDirectory(dir=folder.absolute().parent, prefix=f".{folder.name}."):
            pass
    except OSError as error:
        raise UserError(
            f"--output {folder} cannot be written ({error.strerror}); give another folder"
        ) from None


def describe(model, task, folder: Path) -> dict[str, object]:
    """The content of ``export.json`` for ``run.py``; writes the dictionaries into ``folder``."""
    from fairseq_casrnn.inference.lm_inputs import reads_bos
    from fairseq_casrnn.models.sentence_encoder import SentenceClassifier
    from fairseq_casrnn.models.tagger import Tagger

    task.source_dictionary.save(str(folder / "dict.txt"))
    about: dict[str, object] = {"dictionary": "dict.txt"}
    if isinstance(model, (SentenceClassifier, Tagger)):
        about |= {"kind": "classifier", "classes": list(task.classes)}
        about |= task.normalisation
        language = task.state.text.get("language", "en")
        about["raw"] = {"tokenizer": task.tokenizer, "language": language}
        if isinstance(model, SentenceClassifier):
            return about | {"pairs": bool(task.pairs), "truncate": task.cfg.truncate}
        about["kind"] = "tagger"
        if model.encoder.spelling is not None:
            task.characters.save(str(folder / "characters.txt"))
            about["characters"] = "characters.txt"
        return about
    rnn = model.decoder.rnn
    about |= {"layers": rnn.num_layers, "hidden_size": rnn.hidden_size}
    about["state"] = ["h", "c"] if rnn.has_cell else ["h"]
    if not hasattr(model, "encoder"):
        return about | {"kind": "language model", "reads_bos": reads_bos(model)}
    task.target_dictionary.save(str(folder / "dict.target.txt"))
    about |= {"kind": "translation", "target_dictionary": "dict.target.txt"}
    return about | {"max_tokens": model.encoder.max_positions()}


def copy_subwords(read: Checkpoint, data: Path | None, folder: Path) -> dict[str, object]:
    """Copy BPE codes or a SentencePiece model into ``folder``, for ``run.py --raw``.

    Args:
        read: the model's checkpoint.
        data: folder of the dictionaries (default: the training data).
        folder: the folder to write.

    Returns:
        The part of ``export.json`` on raw text: languages, tokenizer, file of subword units. It
        is empty if these are unknown.
    """
    from fairseq_casrnn.data.subwords import UNITS
    from fairseq_casrnn.models.text_files import text_files

    try:
        _, options = text_files(read.file, read.cfg, data, read.is_packed)
    except UserError:  # they were not kept, and the model does not need them
        return {}
    raw = {name: options.get(name, "") for name in ("source_lang", "target_lang", "tokenizer")}
    for name, option in UNITS.values():
        if option in options:
            shutil.copy(options[option], folder / name)
            raw["subwords"] = name
    return {"raw": raw}
