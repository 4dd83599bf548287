"""Reading a recipe: YAML whose every key and type is checked, and the files that it extends.

All scalars stay text, so that ``1e-3`` reaches fairseq as it is written.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fairseq_casrnn.errors import UserError, quoted
from fairseq_casrnn.recipes.templates import evaluate, fill

# What a value may be: str, "" (a text that may be empty), [one of each item], {key: one of its
# value}; None is any other key.
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
SHIPPED = Path(__file__).parent  # where the files lie that extends names without .yaml
EXAMPLES = {str: "a text", list: "a list such as [1, 2]", dict: "a mapping such as {lr: 1e-3}"}


class _Loader(yaml.BaseLoader):
    """YAML in which all scalars are text, and no key comes twice."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {name} comes twice", problem_mark=key.start_mark
                )
            seen.add(name)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, wanted: Mapping, name: str) -> dict:
    """The content of a YAML file, all scalars as text, checked.

    Args:
        path: the file.
        wanted: what it may hold, as :data:`RECIPE`.
        name: what it is, for messages.

    Raises:
        UserError: no such file, no YAML, an unknown key or a value of the wrong type.
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
        raise UserError(f"{path}, line {line} is no YAML: {error.problem}; correct it") from None
    except yaml.YAMLError as error:
        raise UserError(f"the {name} is no YAML: {error}; correct it") from None
    except RecursionError:
        raise UserError(f"the {name} is nested too deeply; correct it") from None
    return content


def read(path: Path, extending: tuple[Path, ...] = ()) -> dict:
    """The keys of a recipe, and of the files that it extends, checked.

    A mapping is joined with that of the extended file; any other value replaces it.

    Args:
        path: the recipe.
        extending: the recipes that extend it.

    Raises:
        UserError: no such file, no YAML, an unknown key or a value of the wrong type.
    """
    name = f"recipe {path}, which {extending[-1]} extends," if extending else f"recipe {path}"
    content = read_yaml(path, RECIPE, name)
    if "extends" not in content:
        return content
    name = content.pop("extends")
    base = path.parent / name if name.endswith(".yaml") else SHIPPED / f"{name}.yaml"
    if base.resolve() in [one.resolve() for one in (*extending, path)]:
        raise UserError(f"{path}: extends comes back to {base}; let one of them extend nothing")
    return merged(read(base, (*extending, path)), content)


def merged(base: Mapping, own: Mapping) -> dict:
    """``base`` with the keys of ``own``; mappings are joined."""
    joined = dict(base)
    for key, value in own.items():
        both = isinstance(value, dict) and isinstance(base.get(key), dict)
        joined[key] = base[key] | value if both else value
    return joined


def check(value: Any, wanted: Any, path: Path, key: str = "") -> None:
    """Raise UserError unless ``value``, of ``key`` in ``path``, is what :data:`RECIPE` says."""
    kind: Any = wanted if wanted is str else type(wanted)
    if not isinstance(value, kind) or (not value and (wanted is str or kind is list)):
        known: dict[type, str] = {str: quoted(str(value)), list: "a list", dict: "a mapping"}
        has = known.get(type(value), "empty")
        what = f"{key} is {has if value else 'empty'}" if key else "its content is no mapping"
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
    """Raise UserError where a key is missing from a recipe's content."""
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
    """The content with what is under the conditions that hold, and with all variables filled in.

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
