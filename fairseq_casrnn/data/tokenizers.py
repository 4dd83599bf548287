"""Tokenizers for ``--tokenizer`` of ``fairseq-interactive`` and of ``from_pretrained``."""

# No "from __future__ import annotations" here: fairseq reads the fields' types.
# ruff: noqa: UP045
from dataclasses import dataclass, field
from typing import Optional

from fairseq.data.encoders import register_tokenizer
from fairseq.dataclass import FairseqDataclass

from fairseq_casrnn.data.text import tokenize_lines
from fairseq_casrnn.data.words import chinese_characters
from fairseq_casrnn.errors import UserError, as_option


@dataclass
class TokenizerConfig(FairseqDataclass):
    """Options of the tokenizer, taken from the program's options of the same names."""

    source_lang: Optional[str] = field(default=None, metadata={"help": "source language"})
    target_lang: Optional[str] = field(default=None, metadata={"help": "target language"})


@register_tokenizer("moses_lowercase", dataclass=TokenizerConfig)
class MosesLowercase:
    """Processes raw text as the translation recipes' prepare.sh does.

    It applies Moses' tokenizer without aggressive hyphen splitting, then lower-cases. fairseq's own
    ``moses`` splits hyphens and keeps capitals, which models of lower-cased text do not know.

    Raises:
        UserError: a language is missing.
    """

    name = "moses_lowercase"

    def __init__(self, cfg: TokenizerConfig):
        missing = [n for n in ("source_lang", "target_lang") if not getattr(cfg, n)]
        if missing:
            option = as_option(missing[0])
            raise UserError(f"{option} is missing; the tokenizer {self.name} needs it")
        from sacremoses import MosesDetokenizer

        self.source_lang = str(cfg.source_lang)
        self.detokenizer = MosesDetokenizer(cfg.target_lang)

    def encode(self, line: str) -> str:
        """Tokenise and lower-case a line of the source language."""
        return tokenize_lines([line], self.source_lang)[0]

    def decode(self, line: str) -> str:
        """Detokenise a line of the target language; it stays in lower case."""
        return self.detokenizer.detokenize(line.split())


@register_tokenizer("chinese", dataclass=TokenizerConfig)
class Chinese(MosesLowercase):
    """Splits Chinese into characters as ``examples/tatoeba_zh_en/prepare.sh`` does.

    Words in Latin letters and numbers stay whole, and everything is lower-cased. Translations are
    joined as by :class:`MosesLowercase`.
    """

    name = "chinese"

    def encode(self, line: str) -> str:
        """Split a line into characters and lower-case it."""
        return chinese_characters(line)
