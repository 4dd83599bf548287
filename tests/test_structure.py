"""The package's structure: imports between its folders go one way."""

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import fairseq_casrnn

ROOT = Path(fairseq_casrnn.__file__).parent
NAME = ROOT.name


def imported(path: Path) -> Iterator[str]:
    """Modules of this package that the file imports, anywhere in it, such as ``data.text``."""
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
    """The folder or module at the package's root that ``name`` is of; None for the root itself."""
    first = name.partition(".")[0]
    is_part = (ROOT / first).is_dir() or (ROOT / f"{first}.py").is_file()
    return first if is_part else None


def test_folders_do_not_import_each_other_in_circles():
    """Also within functions. ``fairseq_casrnn`` itself, for ``register()``, does not count."""
    uses: dict[str, set[str]] = {}
    for path in ROOT.rglob("*.py"):
        if path == ROOT / "__init__.py":
            continue
        own = path.relative_to(ROOT).parts[0].removesuffix(".py")
        used = {part(name) for name in imported(path)} - {own, None}
        uses.setdefault(own, set()).update(used)
    assert {"cells", "errors"} <= uses["layers"]  # that imports are seen at all
    order = list(graphlib.TopologicalSorter(uses).static_order())  # raises CycleError
    assert order.index("cells") < order.index("layers") < order.index("models")
    for leaf in ("analysis", "prepare", "report", "results"):
        assert not {name for name, used in uses.items() if leaf in used}  # cli has their names only


def module(name: str) -> Path | None:
    """The file of the module of which ``name`` is, or is a part."""
    while name:
        path = ROOT / name.replace(".", "/")
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return file
        name = name.rpartition(".")[0]
    return None


def test_modules_do_not_import_each_other_in_circles():
    """Also within functions, and for types alone; a folder's own file, which gathers, aside."""
    uses: dict[Path, set[Path | None]] = {}
    for path in ROOT.rglob("*.py"):
        if path.name != "__init__.py":
            found = {module(name) for name in imported(path)} - {path, None}
            uses[path] = {file for file in found if file.name != "__init__.py"}
    assert ROOT / "cells" / "base.py" in uses[ROOT / "recurrence" / "inputs.py"]
    graphlib.TopologicalSorter(uses).prepare()  # raises CycleError


def test_root_has_few_modules():
    assert len(list(ROOT.glob("*.py"))) <= 8
