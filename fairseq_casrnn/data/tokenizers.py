"""Tokenizers for ``--tokenizer`` of ``fairseq-interactive`` and of ``from_pretrained``."""

# No "from __future__ import annotations" here: fairseq reads the fields' types.
# ruff: noqa: UP045
from dataclasses import dataclass, field
from typing import Optional

from fairseq.data.encoders import register_tokenizer
from fairseq.dataclass import FairseqDataclass

from ..errors import UserError
from .text import tokenize_lines


@dataclass
class MosesLowercaseConfig(FairseqDataclass):
    """Options of the tokenizer; ``--source-lang`` and ``--target-lang`` are the program's."""

    source_lang: Optional[str] = field(default=None, metadata={"help": "source language"})
    target_lang: Optional[str] = field(default=None, metadata={"help": "target language"})


@register_tokenizer("moses_lowercase", dataclass=MosesLowercaseConfig)
class MosesLowercase:
    """What the translation recipes' prepare.sh does to text, for text as people type it.

    Moses' tokenizer without aggressive hyphen splitting, then lower case; fairseq's own ``moses``
    splits hyphens and keeps capitals, which a model of lower-cased text has never seen.
    """

    def __init__(self, cfg: MosesLowercaseConfig):
        missing = [n for n in ("source_lang", "target_lang") if not getattr(cfg, n)]
        if missing:
            name = missing[0].replace("_", "-")
            raise UserError(f"--{name} is missing; the tokenizer moses_lowercase goes by it")
        from sacremoses import MosesDetokenizer

        self.source_lang = cfg.source_lang
        self.detokenizer = MosesDetokenizer(cfg.target_lang)

    def encode(self, line: str) -> str:
        """A line of the source language, tokenised and lower-cased."""
        return tokenize_lines([line], str(self.source_lang))[0]

    def decode(self, line: str) -> str:
        """A tokenised line of the target language as plain text; capitals are lost."""
        return self.detokenizer.detokenize(line.split())
