"""A recipe: the systems, settings and seeds of an experiment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from fairseq_casrnn.data.vector_files import VectorFile
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.recipes.reading import check_complete, read, resolve

Options = Mapping[str, str]


@dataclass(frozen=True)
class Kind:
    """Properties of all recipes of a task.

    Args:
        evaluator: module that evaluates the runs.
        options: its options, in addition to those of all evaluators.
        names: patterns of architectures that may be trained, in addition to the recipe's systems.
        unknown: the error for another name, with ``{name}`` and ``{systems}`` to replace.
        program: fairseq's program to which the evaluator passes the options after ``--``.
        takes_vectors: whether ``--vectors`` initialises the embeddings of the encoder.
    """

    evaluator: str
    options: tuple[str, ...]
    names: tuple[str, ...]
    unknown: str = "unknown system {name}; choose from {systems}, or give an architecture"
    program: str = ""
    takes_vectors: bool = False


EVALUATION = "fairseq_casrnn.evaluation"
LANGUAGE_MODELS = (
    ("*_lm", "*_lm_*", "hf_gpt*"),
    "--arch {name} is not a language model, whose names contain _lm, such as cas_lstm_lm_ptb",
)
KINDS = {
    "translation": Kind(
        f"{EVALUATION}.evaluate_translation",
        ("beam", "baseline"),
        ("*",),
        program="fairseq-generate",
    ),
    "language model": Kind(f"{EVALUATION}.evaluate_lm", ("cache", "baseline"), *LANGUAGE_MODELS),
    "classification": Kind(
        f"{EVALUATION}.evaluate_classifier",
        ("subset", "baseline"),
        ("*_sentence_encoder*",),
        takes_vectors=True,
    ),
    "brackets": Kind("", (), *LANGUAGE_MODELS),
    "tagging": Kind(
        f"{EVALUATION}.evaluate_tagger",
        ("subset", "baseline"),
        ("*_tagger*",),
        takes_vectors=True,
    ),
}


@dataclass(frozen=True)
class Parts:
    """A recipe for several data sets, such as folds.

    Args:
        option: option that chooses parts.
        folder: the part's subfolder in the folders of the data and of the runs.
        variable: variable that gets the part's value.
        values: values of the parts; if empty, the reader divides the corpus by ``option``.
        prepare: options of the reader for a part.
    """

    option: str
    folder: str = ""
    variable: str = ""
    values: tuple[str, ...] = ()
    prepare: Options = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """The content of a recipe's file; docs/recipes.md explains the keys."""

    path: Path
    title: str
    kind: str
    reader: str
    counts: Options = field(default_factory=dict)
    archs: tuple[str, ...] = ()
    seeds: tuple[str, ...] = ("1",)
    tiny: str = ""
    out: str = "out"
    checkpoint: str = "best"
    subset: str = "test"
    about: str = ""
    variables: Options = field(default_factory=dict)
    common: Options = field(default_factory=dict)
    systems: Mapping[str, Options] = field(default_factory=dict)
    settings: Options = field(default_factory=dict)
    routed: Options = field(default_factory=dict)
    unrouted: Options = field(default_factory=dict)
    vectors: Options = field(default_factory=dict)
    evaluation: Options = field(default_factory=dict)
    variants: Mapping[str, Options] = field(default_factory=dict)
    parts: Parts | None = None
    depths: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of the recipe."""
        return self.path.parent

    @property
    def source(self) -> tuple[str, tuple[str, ...]]:
        """``FOLDER/NAME`` of the file, without extension, and the variables that it reads."""
        return f"{self.folder.name}/{self.path.stem}", tuple(self.variables)

    @property
    def data(self) -> Path:
        """The default folder of the data."""
        return self.folder / "data"

    def check_system(self, name: str) -> None:
        """Raise UserError unless ``name`` is a system or an architecture of this kind."""
        kind = KINDS[self.kind]
        if name not in self.systems and not any(fnmatchcase(name, one) for one in kind.names):
            raise UserError(kind.unknown.format(name=name, systems=", ".join(self.systems)))

    def training_options(self, name: str, extra: list[str], vectors: str = "") -> list[str]:
        """The options of ``fairseq-train`` that define a system.

        Args:
            name: a system, or an architecture.
            extra: further options, which override the others.
            vectors: file of pretrained word vectors, if any.

        Raises:
            UserError: the file of vectors cannot be read.
        """
        system = self.systems.get(name, {"arch": name})
        routed = system["arch"].startswith("second_order_")
        own = self.routed if routed else self.unrouted
        parts = [self.common, system, own, self.settings]
        if vectors:
            dim = str(VectorFile(vectors).dim)
            parts += [{"encoder-embed-path": vectors, "encoder-embed-dim": dim}, self.vectors]
        return [word for options in parts for word in as_arguments(options)] + extra


def as_arguments(options: Options) -> Iterator[str]:
    """Command-line arguments of options; ``true`` stands for an option without a value."""
    for name, value in options.items():
        yield f"--{name}"
        if value != "true":
            yield value


def load(path: Path, **given: str) -> Recipe:
    """Load a recipe from a file.

    Args:
        path: the file.
        given: values of variables; others come from the environment, or else from the file.

    Raises:
        UserError: the file is not a valid recipe.
    """
    path = Path(os.path.abspath(path))
    content = read(path)
    check_complete(content, path)
    if content["kind"] not in KINDS:
        raise UserError(f"{path}: kind is '{content['kind']}'; use {', '.join(KINDS)}")
    parts = content.get("parts", {})
    variables = dict(content.get("variables", {}))
    if parts.get("values"):
        given = {parts["variable"]: parts["values"][0]} | given
    variables = {name: os.environ.get(name) or value for name, value in variables.items()} | given
    content = resolve(content, variables, path)
    if "parts" in content:
        content["parts"] = Parts(**content["parts"])
    return Recipe(path=path, **content)
