"""Tokenizers for ``--tokenizer`` of ``fairseq-interactive`` and of ``from_pretrained``."""

# No "from __future__ import annotations" here: fairseq reads the fields' types.
# ruff: noqa: UP045
from dataclasses import dataclass, field
from typing import Optional

from fairseq.data.encoders import register_tokenizer
from fairseq.dataclass import FairseqDataclass

from fairseq_casrnn.data.text import tokenize_lines
from fairseq_casrnn.errors import UserError


@dataclass
class MosesLowercaseConfig(FairseqDataclass):
    """Options of the tokenizer, taken from the program's options of the same names."""

    source_lang: Optional[str] = field(default=None, metadata={"help": "source language"})
    target_lang: Optional[str] = field(default=None, metadata={"help": "target language"})


@register_tokenizer("moses_lowercase", dataclass=MosesLowercaseConfig)
class MosesLowercase:
    """Processes raw text as the translation recipes' prepare.sh does.

    It applies Moses' tokenizer without aggressive hyphen splitting, then lower-cases. fairseq's own
    ``moses`` splits hyphens and keeps capitals, which models of lower-cased text do not know.
    """

    def __init__(self, cfg: MosesLowercaseConfig):
        missing = [n for n in ("source_lang", "target_lang") if not getattr(cfg, n)]
        if missing:
            name = missing[0].replace("_", "-")
            raise UserError(f"--{name} is missing; the tokenizer moses_lowercase needs it")
        from sacremoses import MosesDetokenizer

        self.source_lang = cfg.source_lang
        self.detokenizer = MosesDetokenizer(cfg.target_lang)

    def encode(self, line: str) -> str:
        """Tokenise and lower-case a line of the source language."""
        return tokenize_lines([line], str(self.source_lang))[0]

    def decode(self, line: str) -> str:
        """Detokenise a line of the target language; it stays in lower case."""
        return self.detokenizer.detokenize(line.split())
