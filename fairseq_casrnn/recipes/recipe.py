"""A recipe: the systems, settings and seeds of an experiment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fairseq_casrnn.console.program import captured_log
from fairseq_casrnn.data.vector_files import VectorFile
from fairseq_casrnn.diagnostics.names import suggestion
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.kinds import LANGUAGE_MODEL, TRAINED_ON
from fairseq_casrnn.recipes.reading import check_complete, read, resolve

Options = Mapping[str, str]
KINDS = {kind.data.replace("-", " "): kind for kind in TRAINED_ON.values()}
KINDS["brackets"] = LANGUAGE_MODEL
"""The kinds of models by ``kind`` of a recipe; :mod:`.dyck` evaluates those of brackets."""


@dataclass(frozen=True)
class Parts:
    """A recipe for several data sets, such as folds.

    Args:
        option: option that chooses parts; empty if the recipe has none.
        folder: the part's subfolder in the folders of the data and of the runs.
        variable: variable that gets the part's value.
        values: values of the parts; if empty, the reader divides the corpus by ``option``.
        prepare: options of the reader for a part.
    """

    option: str = ""
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
    parts: Parts = Parts()
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

    def check_system(self, name: str, look_up: bool = False) -> None:
        """Raise UserError unless ``name`` is a system or an architecture of this kind.

        Args:
            name: the name.
            look_up: whether the architecture must be one that fairseq, which is imported for this,
                knows; otherwise only its name is checked.
        """
        if name in self.systems:
            return
        kind, models = KINDS[self.kind], registered_models() if look_up else {}
        if name not in models and not kind.has_name(name):
            if kind is LANGUAGE_MODEL:
                raise UserError(
                    f"--arch {name} is not a language model, whose names contain _lm, such as "
                    "cas_lstm_lm_ptb"
                )
            choice = f"choose from {', '.join(self.systems)}, or " if self.systems else ""
            raise UserError(f"unknown system {name}; {choice}give an architecture")
        known = {arch: model for arch, model in models.items() if kind.takes(arch, model)}
        if look_up and name not in known:
            own = [
                arch for arch, one in known.items() if one.__module__.startswith("fairseq_casrnn.")
            ]
            plugin = "" if name in models else " (that of a plugin needs --user-dir)"
            raise UserError(
                f"--arch {name} is not an architecture for this kind of data ({self.kind}); "
                f"{suggestion(name, own)}{plugin}"
            )

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


def registered_models() -> dict[str, type]:
    """The classes of all models by architecture; fairseq is imported for it."""
    from fairseq_casrnn import register

    with captured_log():
        register()
        from fairseq.models import ARCH_MODEL_REGISTRY

    return ARCH_MODEL_REGISTRY


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
