"""Reading recipes in YAML, with the files they extend, and checking all keys and types.

All scalars stay text, so that fairseq gets ``1e-3`` as written.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fairseq_casrnn.errors import UserError, quoted
from fairseq_casrnn.recipes.templates import evaluate, fill

# Schema of values: str, "" (a text that may be empty), [schema of items], {key: schema}; the key
# None stands for any other key.
OPTIONS = {None: str}
CONDITIONAL = {
    "archs": [str],
    "common": OPTIONS,
    "settings": OPTIONS,
    "routed": OPTIONS,
    "unrouted": OPTIONS,
    "vectors": OPTIONS,
}
RECIPE = {
    "extends": str,
    "title": str,
    "about": str,
    "kind": str,
    "reader": str,
    "counts": OPTIONS,
    "seeds": [str],
    "tiny": str,
    "out": str,
    "checkpoint": str,
    "subset": str,
    "variables": {None: ""},
    "systems": {None: OPTIONS},
    "evaluation": OPTIONS,
    "variants": {None: OPTIONS},
    "parts": {
        "option": str,
        "variable": str,
        "values": [str],
        "folder": str,
        "prepare": OPTIONS,
    },
    "depths": [str],
    "when": [{"if": str, **CONDITIONAL}],
    **CONDITIONAL,
}
SHIPPED = Path(__file__).parent  # folder of the files that ``extends`` names without .yaml
EXAMPLES = {
    str: "a single value",
    list: "a list such as [1, 2]",
    dict: "a mapping such as {lr: 1e-3}",
}


class _Loader(yaml.BaseLoader):
    """Loads all scalars as text, and refuses duplicate keys."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"duplicate key {name}", problem_mark=key.start_mark
                )
            seen.add(name)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, wanted: Mapping, name: str) -> dict:
    """Read and check a YAML file, with all scalars as text.

    Args:
        path: the file.
        wanted: its schema, such as :data:`RECIPE`.
        name: name of the file, for messages.

    Raises:
        UserError: the file is missing or not YAML, has an unknown key or a value of the wrong type.
    """
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), _Loader)
        check(content, wanted, path)
    except OSError as error:
        raise UserError(f"the {name} cannot be read ({error.strerror}); correct its name") from None
    except UnicodeDecodeError:
        raise UserError(f"the {name} is not UTF-8; save it as that") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1
        raise UserError(f"{path}, line {line} is not YAML: {error.problem}; correct it") from None
    except yaml.YAMLError as error:
        raise UserError(f"the {name} is not YAML: {error}; correct it") from None
    except RecursionError:
        raise UserError(f"the {name} is nested too deeply; correct it") from None
    return content


def read(path: Path, extending: tuple[Path, ...] = ()) -> dict:
    """Read and check a recipe and the files that it extends.

    Mappings are merged with those of the extended file; other values replace them.

    Args:
        path: the recipe.
        extending: the recipes that extend it.

    Raises:
        UserError: a file is missing or not YAML, has an unknown key or a value of the wrong type.
    """
    name = f"recipe {path}, which {extending[-1]} extends," if extending else f"recipe {path}"
    content = read_yaml(path, RECIPE, name)
    if "extends" not in content:
        return content
    name = content.pop("extends")
    base = path.parent / name if name.endswith(".yaml") else SHIPPED / f"{name}.yaml"
    if base.resolve() in [one.resolve() for one in (*extending, path)]:
        raise UserError(f"{path}: extends leads back to {base}; remove extends from one of them")
    return merge(read(base, (*extending, path)), content)


def merge(base: Mapping, own: Mapping) -> dict:
    """``base`` updated with ``own``; mappings are merged."""
    joined = dict(base)
    for key, value in own.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        joined[key] = base[key] | value if both else value
    return joined


def check(value: Any, wanted: Any, path: Path, key: str = "") -> None:
    """Raise UserError unless ``value`` of ``key`` in ``path`` fits the schema ``wanted``."""
    kind: Any = wanted if wanted is str else type(wanted)
    if not isinstance(value, kind) or (not value and (wanted is str or kind is list)):
        known: dict[type, str] = {str: quoted(str(value)), list: "a list", dict: "a mapping"}
        has = known.get(type(value), "empty")
        what = f"{key} is {has if value else 'empty'}" if key else "its content is not a mapping"
        raise UserError(f"{path}: {what}; it must be {EXAMPLES[kind]}")
    if kind is list:
        for item in value:
            check(item, wanted[0], path, key)
    if kind is dict:
        for name, item in value.items():
            inner = f"{key}.{name}" if key else name
            if name not in wanted and None not in wanted:
                close = difflib.get_close_matches(name, wanted, n=1)
                remedy = f"did you mean {close[0]}?" if close else f"use {', '.join(wanted)}"
                raise UserError(f"{path}: there is no key {inner}; {remedy}")
            check(item, wanted.get(name, wanted.get(None)), path, inner)


def check_complete(content: Mapping, path: Path) -> None:
    """Raise UserError if a key is missing from a recipe's content."""
    parts = content.get("parts", {})
    own = ("option", "variable", "folder") if "values" in parts else ("option",)
    needed: list[tuple[Mapping, str, tuple[str, ...]]]
    needed = [(content, "", ("title", "kind", "reader", "archs"))]
    needed += [(parts, "parts.", own)] if "parts" in content else []
    needed += [(condition, "when.", ("if",)) for condition in content.get("when", [])]
    for key in ("systems", "variants"):
        for name, options in content.get(key, {}).items():
            needed.append((options, f"{key}.{name}.", ("arch",)))
    for mapping, where, keys in needed:
        for key in keys:
            if key not in mapping:
                raise UserError(f"{path}: the key {where}{key} is missing; add it")


def resolve(content: Mapping, variables: Mapping[str, str], path: Path) -> dict:
    """The content with the keys of all conditions that hold, and with all variables replaced.

    Raises:
        UserError: see :func:`.templates.fill`.
    """
    content = dict(content)

    def filled(value):
        if isinstance(value, str):
            return fill(value, variables)
        if isinstance(value, list):
            return [filled(one) for one in value]
        return {key: filled(one) for key, one in value.items()}

    try:
        for condition in content.pop("when", []):
            if evaluate(condition["if"], variables):
                content |= condition
        content.pop("if", None)
        return {key: filled(value) for key, value in content.items()}
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
