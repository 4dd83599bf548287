"""LSTMs whose cells flow between layers, as a fairseq plugin.

The layers are public names of the package and need only torch::

    from fairseq_casrnn import CASLSTM

Models, tasks, criterions and optimizers are registered with fairseq by :func:`register`: that is
done when the package is imported in a process that has fairseq, and when fairseq looks for it as
its ``--user-dir``. Without fairseq, nothing outside of the package is touched.
"""

import importlib
import importlib.util
import logging
import os
import re
import sys
from pathlib import Path

__version__ = "0.1.0"

logger = logging.getLogger(__name__)

_registered = False

ROLES = ("models", "tasks", "criterions", "optim", "data.tokenizers")


class _PackagePath(list):
    """``__path__`` that also knows its own folder by another name, and its own copies.

    fairseq refuses a ``--user-dir`` whose name is imported already unless the folder is in the
    package's ``__path__``. So a symbolic link to this package, or a checkout beside the installed
    package, would fail although everything is there. Another version still fails. Nobody but
    fairseq asks, and only where the package was imported before: it may not be registered yet.
    """

    def __contains__(self, folder: object) -> bool:
        found = isinstance(folder, str) and (super().__contains__(folder) or self._is_own(folder))
        if found and "fairseq" in sys.modules and not _registered:
            register()
        return found

    def _is_own(self, folder: str) -> bool:
        if any(os.path.realpath(folder) == os.path.realpath(own) for own in self):
            return True
        init = Path(folder) / "__init__.py"
        if Path(folder).name != __name__ or not init.is_file():
            return False
        found = re.search(r'^__version__ = "(.*)"$', init.read_text("utf-8"), re.MULTILINE)
        if found is None or found.group(1) != __version__:
            return False
        logger.warning("%s is already imported from %s; %s is not used", __name__, self[0], folder)
        return True


def register() -> None:
    """Register everything with fairseq; again and again does no harm.

    Raises:
        ImportError: if fairseq is not installed.
    """
    global _registered
    importlib.import_module("fairseq")
    _registered = True
    importlib.import_module(f"{__name__}.patches.install").install()
    importlib.import_module(f"{__name__}.precision").obey_environment()
    for role in ROLES:
        # A role that fairseq serves well enough by itself has no package here.
        if importlib.util.find_spec(f"{__name__}.{role}") is not None:
            importlib.import_module(f"{__name__}.{role}")


def register_cell(name: str, cell, options: type | None = None) -> None:
    """Add a cell from outside of the package: as a layer, and as a model in every role.

    The layer is ``layers.build(name, …)``; the models are ``--arch NAME``, ``NAME_lm``,
    ``NAME_sentence_encoder``, ``NAME_tagger`` and their sizes such as ``NAME_iwslt``.

    Args:
        name: in small letters, digits and underscores.
        cell: the class of the cells of all layers, a :class:`fairseq_casrnn.cells.Cell` made
            without arguments; or ``cell(k, options)`` that gives the cell of layer k (k = 0 is the
            bottom).
        options: dataclass of the cell's options, which become options of the command line; None if
            it has none.

    Raises:
        UserError: a name that is taken, or no such name.
    """
    from .cells import FAMILIES, Family, NoOptions
    from .errors import UserError

    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise UserError(f"the cell's name {name!r} is not of small letters, digits and _")
    if name in FAMILIES:
        raise UserError(f"there is a cell {name!r} already; give yours another name")
    make_cell = (lambda k, options: cell()) if isinstance(cell, type) else cell
    FAMILIES[name] = Family(make_cell, options or NoOptions)
    models = sys.modules.get(f"{__name__}.models")
    if models is not None:
        models.register_cell(name)


def __getattr__(name: str):
    """Import the subpackages, and the layers by their own name, when first asked for (PEP 562)."""
    if not name.startswith("_"):
        if importlib.util.find_spec(f"{__name__}.{name}") is not None:
            return importlib.import_module(f"{__name__}.{name}")
        layers = importlib.import_module(f"{__name__}.layers")
        if name in layers.__all__:
            return getattr(layers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__path__ = _PackagePath(__path__)

if sys.modules.get("fairseq") is not None:
    register()
