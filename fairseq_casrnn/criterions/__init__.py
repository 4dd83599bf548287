"""Criterions that fairseq lacks; importing this registers them."""

from . import dyck  # noqa: F401
