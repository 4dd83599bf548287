"""LSTMs whose cells flow between layers, as a fairseq plugin.

The layers are public names of the package and only need torch::

    from fairseq_casrnn import CASLSTM

:func:`register` registers models, tasks, criterions and optimizers with fairseq. It is called if
the package is imported after fairseq, and when fairseq loads the package as its ``--user-dir``.
Without fairseq, nothing outside of the package is changed.
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

REGISTERED_MODULES = ("models", "tasks", "criterions", "optim", "data.tokenizers")


class _PackagePath(list):
    """``__path__`` that also contains symbolic links to its folder, and copies of the package.

    fairseq refuses a ``--user-dir`` whose name is already imported unless the folder is in the
    package's ``__path__``. A symbolic link to this package, or a checkout beside the installed
    package, would therefore fail. A copy of another version still fails. Only fairseq tests
    membership, and it does not import the package again, so registration happens here.
    """

    def __contains__(self, folder: object) -> bool:
        found = isinstance(folder, str) and (super().__contains__(folder) or self._is_own(folder))
        if found:
            self._register_if_not_done()
        return found

    @staticmethod
    def _register_if_not_done() -> None:
        """The package may have been imported before fairseq, when it could not be registered."""
        if "fairseq" in sys.modules and not _registered:
            register()

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
    """Register everything with fairseq; calling it again has no effect.

    Also imports the plugin that the environment variable ``CASRNN_USER_DIR`` names.

    Raises:
        ImportError: if fairseq is not installed.
        UserError: there is no such plugin.
    """
    global _registered
    importlib.import_module("fairseq")
    _registered = True
    importlib.import_module(f"{__name__}.patches.install").install()
    importlib.import_module(f"{__name__}.precision").set_precision_from_environment()
    for module in REGISTERED_MODULES:
        importlib.import_module(f"{__name__}.{module}")
    importlib.import_module(f"{__name__}.plugin").import_plugin()


def register_cell(name: str, cell, options: type | None = None) -> None:
    """Add a user's cell, as a layer and as models for all tasks.

    The layer is ``layers.build(name, …)``; the models are ``--arch NAME``, ``NAME_lm``,
    ``NAME_sentence_encoder``, ``NAME_tagger`` and their sizes such as ``NAME_iwslt``.

    Args:
        name: name of lower-case letters, digits and underscores.
        cell: a subclass of :class:`fairseq_casrnn.cells.Cell` whose constructor needs no arguments,
            for all layers; or a function ``cell(k, options)`` that returns the cell of layer k
            (0 is the bottom).
        options: dataclass of the cell's options, which become command-line options; None if there
            are none.

    Raises:
        UserError: the name is taken or invalid, or a class was given with options.
    """
    from fairseq_casrnn.cells import FAMILIES, Family, NoOptions
    from fairseq_casrnn.errors import UserError

    if not re.fullmatch("[a-z][a-z0-9_]*", name):
        raise UserError(
            f"the cell's name {name!r} is invalid; use lower-case letters, digits and _"
        )
    if name in FAMILIES:
        raise UserError(f"there already is a cell {name!r}; give yours another name")
    if isinstance(cell, type) and options is not None:
        raise UserError(
            f"the cell {name!r} has options; give register_cell a function make_cell(k, options) "
            f"that passes them on, instead of the class {cell.__name__}"
        )
    make_cell = (lambda k, options: cell()) if isinstance(cell, type) else cell
    FAMILIES[name] = Family(make_cell, options or NoOptions)
    models = sys.modules.get(f"{__name__}.models")
    if models is not None:
        models.register_cell(name)


def __getattr__(name: str):
    """Import subpackages, and layers by name, on first access (PEP 562)."""
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
