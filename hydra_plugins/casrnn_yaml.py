"""Damaged YAML files of ``fairseq-hydra-train``: one sentence in place of a traceback.

hydra imports the modules of this namespace package before it reads the file; the plugin itself is
imported by ``common.user_dir``, which the file may hold.
"""

import sys
from pathlib import Path


def install() -> None:
    """Have hydra name the file that it cannot read, as it does of a file that is not there."""
    from hydra._internal.core_plugins.file_config_source import FileConfigSource
    from hydra.errors import ConfigCompositionException
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    original = FileConfigSource.load_config
    if getattr(original, "_explains", False):
        return

    def load_config(self, config_path: str):
        try:
            return original(self, config_path)
        except (YAMLError, OmegaConfBaseException, OSError, ValueError, RecursionError) as error:
            path = Path(self.path) / config_path
            # PyYAML quotes the file in several lines.
            reason = getattr(error, "problem", None) or type(error).__name__
            mark = getattr(error, "problem_mark", None)
            where = "" if mark is None else f", line {mark.line + 1},"
            raise ConfigCompositionException(
                f"error: {path.with_suffix('.yaml')}{where} is not a YAML file of options "
                f"({' '.join(reason.split())[:200]}); correct it, or check --config-dir and "
                "--config-name"
            ) from None

    load_config._explains = True
    FileConfigSource.load_config = load_config


if Path(sys.argv[0]).stem in ("fairseq-hydra-train", "hydra_train"):
    install()
