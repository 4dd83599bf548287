"""A user's plugin: a folder with cells or models of their own, such as ``examples/new_cell``.

``--user-dir`` of the ``casrnn`` commands names it. They pass it on to the processes that they start
in an environment variable, since the ``--user-dir`` of fairseq's programs is this package.
"""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

VARIABLE = "CASRNN_USER_DIR"
USER_DIR = str(Path(__file__).parent)  # of fairseq's programs


def add_user_dir(parser: argparse.ArgumentParser) -> None:
    """Add ``--user-dir``."""
    parser.add_argument(
        "--user-dir",
        metavar="DIR",
        help="import this plugin, for its cells and models; its code is run",
    )


def pass_on_plugin(folder: str) -> None:
    """Let the processes that this one starts import a plugin.

    Raises:
        UserError: it is not a folder.
    """
    from fairseq_casrnn.errors import UserError

    if not os.path.isdir(folder):
        raise UserError(f"--user-dir '{folder}' is not a folder; give that of the plugin")
    os.environ[VARIABLE] = os.path.abspath(folder)


def use_plugin(folder: str) -> None:
    """Import a plugin, here and in the processes that this one starts. Raises UserError."""
    from fairseq_casrnn import register

    pass_on_plugin(folder)
    register()


def import_plugin() -> None:
    """Import the plugin that ``CASRNN_USER_DIR`` names, if it is set.

    Raises:
        UserError: it is not a folder.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        return
    from fairseq.utils import import_user_module

    from fairseq_casrnn.errors import UserError

    if not os.path.isdir(folder):
        raise UserError(f"{VARIABLE} is {folder}, which is not a folder; correct it")
    import_user_module(argparse.Namespace(user_dir=folder))


def assignment() -> str:
    """``CASRNN_USER_DIR=DIR`` before a command of fairseq to be printed; empty without a plugin."""
    folder = os.environ.get(VARIABLE)
    return f"{VARIABLE}={shlex.quote(folder)} " if folder else ""


def plugin_options() -> list[str]:
    """``--user-dir DIR`` of the plugin in use, for a casrnn command to print; empty without one."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return []
    relative = os.path.relpath(folder)
    return ["--user-dir", folder if relative.startswith(os.pardir) else relative]
