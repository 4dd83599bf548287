"""Which of fairseq's programs runs in this process."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType


def program_name() -> str:
    """The program's module in ``fairseq_cli``, such as ``train`` or ``eval_lm``; '' for none.

    ``fairseq-hydra-train`` counts as ``train``; ``python -m fairseq_cli.NAME`` as ``NAME``.
    """
    path = Path(sys.argv[0] if sys.argv else "")
    if not path.name.startswith("fairseq-") and path.parent.name != "fairseq_cli":
        return ""
    name = path.stem.removeprefix("fairseq-").replace("-", "_")
    return "train" if name == "hydra_train" else name


def is_hydra_train() -> bool:
    """Whether this process runs ``fairseq-hydra-train``."""
    return Path(sys.argv[0]).stem in ("fairseq-hydra-train", "hydra_train")


def program_module(name: str) -> ModuleType:
    """The module ``fairseq_cli.NAME``; it is ``__main__`` if started with ``python -m``."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name == f"fairseq_cli.{name}":
        return main
    return importlib.import_module(f"fairseq_cli.{name}")
