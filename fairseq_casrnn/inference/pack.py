"""``casrnn pack``: a trained model and everything it needs in one file."""

from __future__ import annotations

import argparse
import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path

from fairseq_casrnn import __version__, register
from fairseq_casrnn.console.program import captured_log
from fairseq_casrnn.data.prepared import MANIFEST
from fairseq_casrnn.data.subwords import UNITS, find_units
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.files import check_writable, replacing
from fairseq_casrnn.inference.average import load
from fairseq_casrnn.kinds import LANGUAGE_MODEL, TRANSLATION, kind_of_task
from fairseq_casrnn.runs.layout import dictionaries, find_checkpoint, find_data

TOKENIZERS = ("space", "moses", "moses_lowercase", "chinese")  # of translation models
KEPT = ("args", "cfg", "model", "criterion", "optimizer_history", "task_state")  # in a checkpoint
LANGUAGES = ("source_lang", "target_lang")
KEPT_EXTRA = ("words", "classes", "characters", "meanings", "task")  # in its extra_state


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.description = (
        "Write a trained model, its dictionaries, its subword units and the name of its tokenizer "
        "into one file, for --path of all commands and for from_pretrained in Python. The state of "
        "the training is left out."
    )
    parser.add_argument("path", type=Path, metavar="RUN", help="run folder, or checkpoint")
    parser.add_argument(
        "--output", required=True, type=Path, help="output file, such as model.casrnn"
    )
    parser.add_argument(
        "--data", type=Path, help="folder with the dictionaries (default: the training data)"
    )
    parser.add_argument(
        "--tokenizer",
        choices=TOKENIZERS,
        help="tokenizer of a translation model (default: that of casrnn prepare or the recipe that "
        "made its data, usually moses_lowercase, else space)",
    )
    parser.add_argument(
        "--bpe-codes",
        type=Path,
        help="BPE codes of a translation model (default: bpe.codes of its data)",
    )


def run(args: argparse.Namespace) -> None:
    """Run the command. Raises UserError if a run or file cannot be used."""
    if args.output.suffix != ".casrnn":
        raise UserError(f"--output is {args.output}; give it a name that ends in .casrnn")
    check_writable(args.output)
    with captured_log():
        register()
        from fairseq_casrnn.models.packed import is_packed

        if is_packed(args.path):
            raise UserError(f"{args.path} is already packed; use it as it is")
        checkpoint = find_checkpoint(args.path)
        state = load(checkpoint)
        if not state.get("cfg"):
            raise UserError(
                f"{checkpoint} was written by an old version of fairseq; train the model again"
            )
        files, manifest = contents(checkpoint, state["cfg"], args)
        write(args.output, without_training(state, manifest), files, manifest)
    size = args.output.stat().st_size / 2**20
    print(f"packed {checkpoint} ({manifest['arch']}) -> {args.output}, {size:.1f} MiB")


def contents(
    checkpoint: Path, cfg: dict, args: argparse.Namespace
) -> tuple[dict[str, Path], dict[str, object]]:
    """The files of a checkpoint, by their names in the archive, and the manifest.

    Raises:
        UserError: a file is missing, or this kind of model cannot be packed.
    """
    from fairseq_casrnn.models.packed import FORMAT, TEXT, text_options
    from fairseq_casrnn.models.text_files import translation_files

    task, arch = cfg["task"]["_name"], cfg["model"]["_name"]
    kind = kind_of_task(task)
    manifest = {"format": FORMAT, "version": __version__, "task": task, "arch": arch}
    if kind is not TRANSLATION and (args.tokenizer or args.bpe_codes):
        raise UserError("--tokenizer and --bpe-codes are for translation models; drop them")
    if kind is TRANSLATION:
        found = translation_files(checkpoint, cfg, args.data)
        if args.tokenizer:
            found = replace(found, tokenizer=args.tokenizer)
        if args.bpe_codes:
            found = replace(found, subwords=args.bpe_codes, bpe="subword_nmt")
        files = {name: found.data / name for name in dictionaries(found.data, cfg)}
        if found.bpe:
            files[UNITS[found.bpe][0]] = found.subwords
        return files, manifest | found.options()
    if kind is None:
        raise UserError(f"{checkpoint} is a model of the task {task}, which cannot be packed")
    folder = find_data(checkpoint.parent, args.data, cfg)
    files = {name: folder / name for name in dictionaries(folder, cfg)}
    if kind is LANGUAGE_MODEL:
        manifest[TEXT] = text_options(folder)
        units, model = find_units(folder)
        if units == "sentencepiece":
            files[model.name] = model
            manifest["bpe"] = units
    return files, manifest


def without_training(state: dict, manifest: dict[str, object]) -> dict:
    """The checkpoint without optimizer state and without the paths of the training.

    It gets the languages as options, since fairseq infers them from the training data.
    """
    kept = {name: state[name] for name in KEPT if name in state}
    extra = state.get("extra_state") or {}
    kept["extra_state"] = {name: extra[name] for name in KEPT_EXTRA if name in extra}
    kept["last_optimizer_state"] = None
    cfg = {
        name: dict(part) if isinstance(part, dict) else part for name, part in kept["cfg"].items()
    }
    cfg["task"]["data"] = "data-bin"
    cfg["task"] |= {name: manifest[name] for name in LANGUAGES if name in manifest}
    cfg["common"]["user_dir"] = None
    for name in ("encoder_embed_path", "decoder_embed_path"):
        if cfg["model"].get(name):
            cfg["model"][name] = None
    return kept | {"cfg": cfg}


def write(output: Path, state: dict, files: dict[str, Path], manifest: dict) -> None:
    """Write the archive completely or not at all. Raises UserError if a file is missing."""
    import torch

    from fairseq_casrnn.models.packed import MODEL

    weights = io.BytesIO()
    torch.save(state, weights)
    with replacing(output) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, json.dumps(manifest, indent=1) + "\n")
        for name, path in files.items():
            try:
                archive.writestr(name, path.read_bytes())
            except FileNotFoundError:
                raise UserError(f"{path} does not exist; check the path") from None
        archive.writestr(MODEL, weights.getvalue(), zipfile.ZIP_STORED)
