"""The imports between the package's folders and modules have no cycles."""

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import fairseq_casrnn

ROOT = Path(fairseq_casrnn.__file__).parent
NAME = ROOT.name


def imported(path: Path) -> Iterator[str]:
    """Yield the modules of this package that the file imports anywhere, such as ``data.text``."""
    package = (NAME, *path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name.removeprefix(f"{NAME}.") for name in names if name.startswith(f"{NAME}."))


def part(name: str) -> str | None:
    """Return the folder or module at the package's root to which ``name`` belongs, or None."""
    first = name.partition(".")[0]
    is_part = (ROOT / first).is_dir() or (ROOT / f"{first}.py").is_file()
    return first if is_part else None


def test_folders_have_no_import_cycles():
    """Imports within functions count, but not those of ``fairseq_casrnn`` itself."""
    uses: dict[str, set[str]] = {}
    for path in ROOT.rglob("*.py"):
        if path == ROOT / "__init__.py":
            continue
        own = path.relative_to(ROOT).parts[0].removesuffix(".py")
        used = {part(name) for name in imported(path)} - {own, None}
        uses.setdefault(own, set()).update(used)
    assert {"cells", "errors"} <= uses["layers"]  # makes sure that imports are found
    order = list(graphlib.TopologicalSorter(uses).static_order())  # raises CycleError
    assert order.index("cells") < order.index("layers") < order.index("models")
    for leaf in ("analysis", "prepare", "report", "results"):
        assert not {name for name, used in uses.items() if leaf in used}  # cli only has their names


def module(name: str) -> Path | None:
    """Return the file of the module that ``name`` is, or is a part of."""
    while name:
        path = ROOT / name.replace(".", "/")
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return file
        name = name.rpartition(".")[0]
    return None


def test_modules_have_no_import_cycles():
    """Imports within functions and for types count, but not those of ``__init__.py`` files."""
    uses: dict[Path, set[Path | None]] = {}
    for path in ROOT.rglob("*.py"):
        if path.name != "__init__.py":
            found = {module(name) for name in imported(path)} - {path, None}
            uses[path] = {file for file in found if file.name != "__init__.py"}
    assert ROOT / "cells" / "base.py" in uses[ROOT / "recurrence" / "inputs.py"]
    graphlib.TopologicalSorter(uses).prepare()  # raises CycleError


def test_root_has_few_modules():
    assert len(list(ROOT.glob("*.py"))) <= 8
