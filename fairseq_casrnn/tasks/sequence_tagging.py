"""Tagging: a class for each word of a sentence."""

# No "from __future__ import annotations" here: fairseq reads the fields' types.
# ruff: noqa: UP045
import functools
import logging
import os
from dataclasses import dataclass, field
from typing import Optional

import numpy
import torch
from fairseq.data import ListDataset
from fairseq.tasks import register_task

from ..data.dictionaries import digest
from ..data.spans import are_spans
from ..data.symbols import escape
from ..data.tag_constraints import Constraints, constraints, has_closing, violations
from ..data.tagging import UNSEEN, TaggingDataset
from ..data.words import QUOTE, TYPOGRAPHIC, as_written, normalised, words
from ..errors import UserError
from .labelled import LabelledConfig, LabelledTask, load_dictionary, load_part, normalisation

logger = logging.getLogger(__name__)

IRREGULAR = 0.01  # more broken rules than this part of the spans' tags are no slips


@dataclass
class SequenceTaggingConfig(LabelledConfig):
    """Options of the task."""

    data: str = field(
        default="???",
        metadata={"help": "folder with input0/, label/ and, for --char-filters, spelling/"},
    )
    zero_digits: Optional[bool] = field(
        default=None,
        metadata={
            "help": "read every digit of raw text as 0 when tagging (default: as the data "
            "folder's text.json says)"
        },
    )
    unconstrained_tags: bool = field(
        default=False,
        metadata={
            "help": "find the best tags by a CRF's scores alone, also such as their scheme (IOB2, "
            "BIOES) forbids, like I-PER after O"
        },
    )


@register_task("sequence_tagging", dataclass=SequenceTaggingConfig)
class SequenceTaggingTask(LabelledTask):
    """Tags for words: parts of speech, or spans such as names in the scheme IOB or BIOES.

    The data folder has ``input0/`` and ``label/`` with as many tags as words in each sentence, both
    filled by ``fairseq-preprocess --only-source``, and may have ``spelling/``, whose sentences are
    the characters of the words, </s> after each word.

    Attributes:
        characters: their dictionary, or None.
        spells: whether the model reads them; it says so when it is built.
        are_spans: whether the tags mark spans, so that F1 is of interest.
        constraints: what the tags' scheme forbids when they are decoded, or None.
    """

    spells = False

    def __init__(self, cfg, dictionary, label_dictionary):
        super().__init__(cfg, dictionary, label_dictionary)
        self.characters = None
        if os.path.isfile(os.path.join(cfg.data, "spelling", "dict.txt")):
            self.characters = load_dictionary(cfg.data, "spelling")
            self.state.merge_state_dict({"characters": digest(self.characters)})
        self.are_spans = are_spans(self.classes)
        self.state.merge_state_dict({"irregular_tags": False})
        if self.are_spans:
            logger.info(
                "tags mark spans: accuracy is of tags in IOB2, precision, recall and F1 of spans"
            )

    def text_note(self) -> dict:
        """Also whether digits are read as 0."""
        return {"zero_digits": False, **super().text_note()}

    def load_state_dict(self, state_dict) -> None:
        """Take over a checkpoint's state; raises UserError as the class above.

        Older checkpoints do not tell whether tags B and I are in IOB1, which breaks IOB2's rules.
        """
        unknown = "irregular_tags" not in state_dict and not has_closing(self.classes)
        super().load_state_dict({"irregular_tags": unknown, **state_dict})

    def check_words(self, state_dict) -> None:
        """Raise UserError if the weights of a checkpoint's model belong to other words, too."""
        super().check_words(state_dict)
        if self.spells:
            self._check_characters(state_dict.get("characters"))

    def read_spelling(self) -> None:
        """Note that the model reads the words' characters.

        Raises:
            UserError: they are not those of its training.
        """
        self.spells = True
        self._check_characters(self.state.characters)  # a checkpoint's, if one is loaded

    def _check_characters(self, known) -> None:
        if known not in (None, digest(self.characters)):
            raise UserError(
                f"{self.cfg.data}/spelling/dict.txt is not the dictionary that the model was "
                "trained with; give the data folder of its training"
            )

    @property
    def constraints(self) -> Optional[Constraints]:
        """See the class. None, too, where the tags of training do not keep to the scheme."""
        if not self.are_spans or self.cfg.unconstrained_tags or self.state.irregular_tags:
            return None
        return constraints(tuple(self.classes))

    # --- data ----------------------------------------------------------------------------------

    def load_dataset(self, split: str, combine: bool = False, **kwargs):
        """Load ``split``.

        Raises:
            UserError: a file is missing, the parts do not fit, or a tag is unknown.
        """
        self.datasets[split] = self._load(split, split == "train")
        if split == "train" and self.are_spans:
            self._check_scheme(self.datasets[split])
        return self.datasets[split]

    def _check_scheme(self, dataset: TaggingDataset) -> None:
        """Note whether the tags of training break the scheme, as those in IOB1 do."""
        scheme, broken, marked = constraints(tuple(self.classes)), 0, 0
        outside = self.classes.index("O") if "O" in self.classes else -1
        assert dataset.tags is not None  # of a training set they are known
        for index in range(len(dataset)):
            tags = dataset.tags(index)
            broken += violations(scheme, tags)
            marked += int(tags.ne(outside).sum())
        irregular = broken > IRREGULAR * marked
        self.state.merge_state_dict({"irregular_tags": irregular})
        if irregular:
            logger.warning(
                "%d of %d tags of spans in training break the rules of IOB2 or BIOES, so these are "
                "not enforced when tags are decoded; casrnn prepare tagging turns them into BIOES",
                broken,
                marked,
            )

    def read(self, split: str) -> TaggingDataset:
        """``split`` as it stands, also that of training: in order, nothing forgotten.

        Raises:
            UserError: as for :meth:`load_dataset`.
        """
        return self._load(split, train=False)

    def _load(self, split: str, train: bool) -> TaggingDataset:
        folder = self.cfg.data
        sentences = load_part(folder, "input0", split, self.dictionary)
        tags = load_part(folder, "label", split, self.label_dictionary)
        self._check_fit(split, "label", sentences, tags)
        numbers = self._numbers(split, tags)
        characters, pad = None, 0
        if self.spells:
            spelt = load_part(folder, "spelling", split, self.characters)
            self._check_fit(split, "spelling", sentences, spelt, self.characters.eos())
            pad = self.characters.pad()
            characters = functools.partial(split_words, spelt, self.characters.eos())
        logger.info("%s: %d sentences", split, len(sentences))
        return TaggingDataset(
            sentences,
            lambda index: numbers[tags[index][:-1].long()],
            self.dictionary.pad(),
            characters=characters,
            character_pad=pad,
            shuffle=train,
            unk_dropout=self._unk_dropout() if train else None,
        )

    def _check_fit(self, split: str, part: str, sentences, other, end: Optional[int] = None):
        """Raise UserError unless each sentence of ``other`` has a part for each word."""
        folder = self.cfg.data
        if len(other) != len(sentences):
            raise UserError(
                f"{folder}/input0/{split} has {len(sentences)} sentences but {folder}/{part}/"
                f"{split} has {len(other)}; prepare them again, from files of equally many lines"
            )
        count = other.sizes
        if end is not None:
            # </s> alone is a sentence without words
            count = numpy.array([int(row.eq(end).sum()) + (len(row) > 1) for row in other])
        for number in numpy.flatnonzero(sentences.sizes != count)[:1]:
            raise UserError(
                f"{folder}/{part}/{split}, sentence {number + 1} has parts for {count[number] - 1} "
                f"words, but input0/{split} has {sentences.sizes[number] - 1}; "
                + ("give each word one tag" if end is None else "prepare them again together")
            )

    def _numbers(self, split: str, tags) -> torch.Tensor:
        """The number of each symbol of the labels' dictionary in the order of :attr:`classes`."""
        known = {name: n for n, name in enumerate(self.classes)}
        symbols = self.label_dictionary.symbols
        numbers = torch.tensor([known.get(symbol, UNSEEN) for symbol in symbols])
        count, first = 0, ""
        for i in range(len(tags)):
            for place in numbers[tags[i][:-1].long()].lt(0).nonzero().flatten().tolist():
                count += 1
                first = first or (
                    f"{self.cfg.data}/label/{split}, sentence {i + 1}, word {place + 1}"
                )
        if count:
            self._note_unseen(split, "tag", count, first)
        return numbers

    def tag_names(self, numbers: torch.Tensor) -> list[str]:
        """The tags of a sentence; one that training has not is of a type that no model gives."""
        unseen = "I-<unk>" if self.are_spans else "<unk>"
        return [unseen if n == UNSEEN else self.classes[n] for n in numbers.tolist()]

    def split_text(self, line: str) -> list[str]:
        """The words of raw text, as they are to be shown.

        Those of ``penn`` keep their quotation marks, unless the training text had none of these but
        that treebank's `` and ''.
        """
        found = words(line, self.tokenizer, language=self.state.text.get("language", "en"))
        if self.tokenizer == "penn" and (QUOTE in self.dictionary or "``" not in self.dictionary):
            return as_written(found, line)
        return found

    def encode_text(self, line: str) -> torch.Tensor:
        """Raw text as tokens."""
        return self.encode_words(self.split_text(line))[0]

    def encode_words(self, sentence: list[str]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Tokens, with </s>, and each word's characters of a sentence that is split already."""
        forms = escape(normalised(sentence, **normalisation(self.cfg, self.state.text)))
        found = [self.index_of(plain_mark(self.dictionary, word)) for word in forms]
        spelt = []
        if self.spells:
            letters = self.characters
            spelt = [
                torch.tensor([letters.index(plain_mark(letters, c)) for c in word])
                for word in sentence
            ]
        return torch.tensor([*found, self.dictionary.eos()]), spelt

    def build_dataset_for_inference(self, src_tokens, src_lengths, spelt=None, **kwargs):
        """A data set without tags, of lists of token tensors and of their words' characters."""
        sentences = ListDataset(src_tokens, numpy.array([len(t) for t in src_tokens]))
        return TaggingDataset(
            sentences,
            None,
            self.dictionary.pad(),
            characters=spelt.__getitem__ if self.spells else None,
            character_pad=self.characters.pad() if self.spells else 0,
            shuffle=False,
        )

    def build_generator(self, *args, **kwargs):
        """Raises UserError: there is nothing to generate."""
        raise UserError(
            "a tagger generates no text; use casrnn tag for its tags, fairseq-validate for its "
            "accuracy"
        )

    # --- training ------------------------------------------------------------------------------

    def post_validate(self, model, stats, agg) -> None:
        """After a validation: write its scores beside the checkpoints."""
        names = ("accuracy", "precision", "recall", "f1")
        result = {name: stats[name] for name in names if name in stats}
        if result:
            self.write_validation(result, stats)


def plain_mark(dictionary, symbol: str) -> str:
    """The symbol; where ’ or “ are unknown, the same with ' and "."""
    return symbol if symbol in dictionary else symbol.translate(TYPOGRAPHIC)


def split_words(spelt, end: int, index: int) -> list[torch.Tensor]:
    """The characters of each word of the sentence ``index``."""
    row = spelt[index].long()
    ends = row.eq(end).nonzero().flatten().tolist()
    begins = [0, *(place + 1 for place in ends)]
    return [row[a:b] for a, b in zip(begins, ends, strict=False) if b > a]
