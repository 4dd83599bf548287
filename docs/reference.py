"""Write what the documentation takes from the code itself.

docs/commands.md and docs/all-options.md come from the programs' parsers; so does what stands
between ``<!-- NAME: … -->`` and ``<!-- end -->`` on other pages. Run ``python docs/reference.py``
after a cell or an option has been added, removed or described anew.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import yaml

import fairseq_casrnn
from fairseq_casrnn.cells import FAMILIES
from fairseq_casrnn.console.program import Parser
from fairseq_casrnn.patches.table import TABLE

DOCS = Path(__file__).resolve().parent
EXAMPLES = DOCS.parent / "examples"
GENERATOR = "(written by `python docs/reference.py`)"
VALUES = {int: "N", float: "X", Path: "PATH"}
ROLES = {
    "Translation": "{}",
    "Language models": "{}_lm",
    "Sentence encoders": "{}_sentence_encoder",
    "Taggers": "{}_tagger",
}


class _Found(Exception):
    pass


def parser_of(main) -> argparse.ArgumentParser:
    """The parser with which ``main(argv)`` reads its command line."""

    def stop(parser, *args, **kwargs):
        raise _Found(parser)

    original, Parser.parse_args = Parser.parse_args, stop
    try:
        main([])
    except _Found as found:
        return found.args[0]
    finally:
        Parser.parse_args = original
    raise AssertionError(f"{main} reads no command line")


def cell(text: str) -> str:
    """``text`` as it may stand in a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def described(parser: argparse.ArgumentParser, action: argparse.Action) -> tuple[str, str]:
    """An option with its value, and its help."""
    if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
        value = ""
    elif action.choices:
        value = " " + "{" + ",".join(map(str, action.choices)) + "}"
    else:
        value = f" {action.metavar or VALUES.get(action.type, 'TEXT')}"
    names = ", ".join(f"`{name}{value}`" for name in action.option_strings).replace("|", "\\|")
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    return names or f"`{action.metavar or action.dest}`", text


def described_options(parser: argparse.ArgumentParser) -> dict[str, str]:
    """The arguments of ``parser``, and their help."""
    return {
        names: cell(text)
        for action in parser._actions
        if "--help" not in action.option_strings and action.help != argparse.SUPPRESS
        for names, text in [described(parser, action)]
    }


def table(parser: argparse.ArgumentParser) -> list[str]:
    """The arguments of ``parser``, one a row."""
    rows = [f"| {names} | {text} |" for names, text in described_options(parser).items()]
    return ["| argument | meaning |", "|---|---|", *rows] if rows else ["No options."]


def readers() -> Iterable[tuple[str, argparse.ArgumentParser]]:
    """The readers that the recipes name, with the recipes' folders."""
    users: dict[str, list[str]] = {}
    for path in sorted(EXAMPLES.glob("*/recipe.yaml")):
        module = yaml.safe_load(path.read_text("utf-8"))["reader"].split()[0]
        if module != "fairseq_casrnn.cli":  # a command, described above
            users.setdefault(module, []).append(path.parent.name)
    for module, folders in users.items():
        yield ", ".join(folders), parser_of(importlib.import_module(module).main)


def commands() -> str:
    """The page of the commands."""
    from fairseq_casrnn import cli
    from fairseq_casrnn.recipes import command, options

    lines = [
        "# Commands",
        "",
        f"The output of `casrnn COMMAND --help` {GENERATOR}.",
        "For fairseq's own commands, see",
        "[fairseq's documentation](https://fairseq.readthedocs.io/en/latest/command_line_tools.html).",
        "",
        "## casrnn user-dir",
        "",
        "Print the folder to pass to `--user-dir`. `casrnn --version` prints the version.",
        "",
        "## casrnn patches",
        "",
        "Print [the table of changes to fairseq](patches.md), with reasons.",
    ]
    for name, (_, text) in sorted(cli.COMMANDS.items()):
        parser = Parser(prog=f"casrnn {name}", description=text)
        cli.add_options(parser, name)
        lines += ["", f"## casrnn {name}", "", f"{text[0].upper()}{text[1:]}.", "", *table(parser)]
    lines += ["", "## casrnn run", "", "`casrnn run STEP RECIPE.yaml`; see [recipes](recipes.md)."]
    lines += ["", "| step | what it does |", "|---|---|"]
    lines += [f"| `{name}` | {cell(text)} |" for name, (_, text) in command.STEPS.items()]
    lines += ["", "Each step accepts the options below that apply to it."]
    lines += ["", "| option | meaning; braces mark values from the recipe |", "|---|---|"]
    for name, (metavar, text) in options.OPTIONS.items():
        option = f"--{name} {metavar}".strip() if name != "parts" else f"--OPTION {metavar}"
        text = text.replace("%(default)s", "{default}")
        lines.append(f"| `{option}` | {cell(text)} |")
    lines.append("| `--dry-run` | print the commands instead of running them |")
    lines += ["", "The recipe's `parts` name `--OPTION`; in the Dyck recipe it is `--m`."]
    parsers = dict(readers())
    options_by_reader = {name: described_options(parser) for name, parser in parsers.items()}
    owners = Counter(row for found in options_by_reader.values() for row in found.items())
    common = {row for row, count in owners.items() if count > len(parsers) // 3}
    lines += [
        "",
        "## Options of prepare",
        "",
        "The readers of most corpora have these options:",
        "",
    ]
    lines += merged(
        {
            name: {k: t for k, t in o.items() if (k, t) in common}
            for name, o in options_by_reader.items()
        }
    )
    for name, parser in parsers.items():
        own = [f"| {o} | {t} |" for o, t in options_by_reader[name].items() if (o, t) not in common]
        lines += ["", f"### {name}", "", f"{parser.description}", ""]
        lines += ["| argument | meaning |", "|---|---|", *own] if own else ["No other options."]
    return "\n".join(lines) + "\n"


def options_of(cls) -> dict[str, str]:
    """The options that ``add_args`` of a class registered with fairseq adds, and their help."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    cls.add_args(parser)
    found = {}
    for action in parser._actions:
        names, text = described(parser, action)
        default = action.default
        if default not in (None, argparse.SUPPRESS, False, "", "???") and "default" not in text:
            text += f" (default: {default})"
        found[names] = cell(text)
    return found


def merged(options: dict[str, dict[str, str]]) -> list[str]:
    """The options of several owners in one table, which says what not all of them have."""
    rows: dict[tuple[str, str], list[str]] = {}
    for name, found in options.items():
        for option, text in found.items():
            rows.setdefault((option, text), []).append(name)
    lines = ["| option | meaning |", "|---|---|"]
    for (option, text), owners in rows.items():
        others = [name for name in options if name not in owners]
        if others:
            short = others if len(others) < len(owners) else owners
            names = ", ".join(f"`{name}`" for name in short)
            text += f" ({'not for' if short is others else 'only'} {names})"
        lines.append(f"| {option} | {text} |")
    return lines if len(lines) > 2 else ["No options."]


def own(registry: dict[str, type]) -> dict[str, type]:
    """Those of a registry of fairseq that this package has registered."""
    return {
        name: cls
        for name, cls in sorted(registry.items())
        if cls.__module__.startswith("fairseq_casrnn.")
    }


def all_options() -> str:
    """The page of all options of models, tasks, criterions and optimizers."""
    fairseq_casrnn.register()
    from fairseq.criterions import CRITERION_REGISTRY
    from fairseq.models import MODEL_REGISTRY
    from fairseq.optim import OPTIMIZER_REGISTRY
    from fairseq.tasks import TASK_REGISTRY

    lines = [
        "# All options of models, tasks and criterions",
        "",
        f"Every option that this package adds to fairseq's programs {GENERATOR};",
        "[Options and environment variables](options.md) explains the most important ones.",
    ]
    models = own(MODEL_REGISTRY)
    endings = [pattern.format("") for pattern in ROLES.values()]
    for role, pattern in ROLES.items():
        ending = pattern.format("")
        others = [other for other in endings if len(other) > len(ending)]
        chosen = {
            name: cls
            for name, cls in models.items()
            if name.endswith(ending) and not any(name.endswith(other) for other in others)
        }
        names = ", ".join(f"`{name}`" for name in chosen)
        rows = merged({name: options_of(cls) for name, cls in chosen.items()})
        lines += ["", f"## {role}", "", f"Models: {names}.", "", *rows]
    kinds = {
        "Tasks": ("--task", TASK_REGISTRY),
        "Criterions": ("--criterion", CRITERION_REGISTRY),
        "Optimizers": ("--optimizer", OPTIMIZER_REGISTRY),
    }
    for title, (option, registry) in kinds.items():
        lines += ["", f"## {title}"]
        for name, cls in own(registry).items():
            lines += ["", f"### {option} {name}", "", *merged({name: options_of(cls)})]
    return "\n".join(lines) + "\n"


def cells() -> list[str]:
    """The table of cells."""
    rows = ["| cell (`--arch`) | what is new in it | source |", "|---|---|---|"]
    return rows + [f"| `{name}` | {row.summary} | {row.source} |" for name, row in FAMILIES.items()]


def cell_options() -> list[str]:
    """The table of the options that cells have, as the translation models describe them."""
    fairseq_casrnn.register()
    from fairseq.models import MODEL_REGISTRY

    rows = ["| option | of | meaning |", "|---|---|---|"]
    for name, row in FAMILIES.items():
        help_texts = options_of(MODEL_REGISTRY[name])
        for field in dataclasses.fields(row.options):
            option = "--" + field.name.replace("_", "-")
            (found,) = (names for names in help_texts if names.startswith(f"`{option} "))
            rows.append(f"| `{option}` | `{name}` | {help_texts[found]} |")
    return rows


def patches() -> list[str]:
    """The table of changes to fairseq."""
    rows = ["| what is changed | kind | where | name | what for |", "|---|---|---|---|---|"]
    for p in TABLE:
        changed, where = f"`{p.target}`", p.where or "all"
        rows.append(f"| {changed} | `{p.kind}` | {where} | `{p.name}` | {cell(p.why)} |")
    return rows


PAGES = {"commands.md": commands, "all-options.md": all_options}
TABLES = {"cells": cells, "cell-options": cell_options, "patches": patches}
WITH_TABLES = ["translation.md", "options.md", "patches.md", "../README.md"]


def with_tables(text: str) -> str:
    """``text`` with its generated tables written anew."""
    for name, make in TABLES.items():
        start = f"<!-- {name}: {GENERATOR[1:-1]} -->"
        table = "\n".join([start, "", *make(), "", "<!-- end -->"])
        text = re.sub(f"{re.escape(start)}.*?<!-- end -->", lambda _, t=table: t, text, flags=re.S)
    return text


def generated() -> dict[str, str]:
    """What every generated page has to hold, by its path from this folder."""
    pages = {name: page() for name, page in PAGES.items()}
    return pages | {name: with_tables((DOCS / name).read_text("utf-8")) for name in WITH_TABLES}


if __name__ == "__main__":
    for name, text in generated().items():
        (DOCS / name).write_text(text, encoding="utf-8")
