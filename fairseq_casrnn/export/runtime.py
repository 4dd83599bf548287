#!/usr/bin/env python3
"""Run a model that ``casrnn export --format onnx`` has written, with numpy and onnxruntime alone.

    python run.py FOLDER < text > answers

Each input line is a sentence with words separated by spaces, tokenised and byte-pair encoded like
the training text. For translation and language models it must also be lower-cased if the training
text was. Classifiers and taggers lower-case words themselves, but taggers read their characters as
written. The sentences of a pair are separated by a tab. Each output line is

- for a translation model, the translation by beam search (``--beam``, ``--max-length``);
- for a language model, the log-probability of the sentence in nats;
- for a classifier, LABEL<TAB>PROBABILITY;
- for a tagger, the tags.

With ``--raw`` (not for language models), the input is raw text, which is preprocessed like the
training text. Translations are detokenised, and a tagger writes WORDS<TAB>TAGS. Moses' tokenizer
needs sacremoses, the Penn Treebank's nltk, subword units subword-nmt or sentencepiece.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ASCII_SPACE = re.compile(r"[ \t\r\n\f\v]+")
TYPOGRAPHIC = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"'})
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")  # the first four symbols of every fairseq dictionary


class Dictionary:
    """A fairseq dictionary: ``dict.txt``."""

    def __init__(self, path: Path):
        with open(path, encoding="utf-8") as file:
            lines = [line.rstrip("\n") for line in file]
        self.symbols = [*SPECIAL, *(line.rpartition(" ")[0] for line in lines if line)]
        self.indices = {symbol: index for index, symbol in enumerate(self.symbols)}
        self.bos, self.pad, self.eos, self.unk = range(len(SPECIAL))
        for symbol in SPECIAL[:3]:  # as a word of a text, each is escaped
            escaped = symbol.replace("<", "&lt;").replace(">", "&gt;")
            self.indices[symbol] = self.indices.get(escaped, self.unk)

    def __len__(self) -> int:
        return len(self.symbols)

    def __contains__(self, symbol: str) -> bool:
        return symbol in self.indices

    def encode(self, words: Iterable[str]) -> list[int]:
        """Indices of words; that of <unk> for unknown words."""
        return [self.indices.get(word, self.unk) for word in words]

    def batch(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        """Rows of indices as an array, padded on the right."""
        table = np.full((len(rows), max(map(len, rows))), self.pad, dtype=np.int64)
        for row, indices in zip(table, rows, strict=True):
            row[: len(indices)] = indices
        return table


class Model:
    """The base class of exported models: graphs and the content of ``export.json``."""

    def __init__(self, folder: Path, about: dict):
        import onnxruntime

        self.about = about
        self.sessions = {
            name: onnxruntime.InferenceSession(
                folder / f"{name}.onnx", providers=["CPUExecutionProvider"]
            )
            for name in about["graphs"]
        }
        self.words = Dictionary(folder / about["dictionary"])

    def run(self, name: str, **inputs: np.ndarray) -> dict[str, np.ndarray]:
        """The outputs of a graph, by name."""
        session = self.sessions[name]
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(None, inputs), strict=True))

    def tokens(self, lines: Sequence[str]) -> np.ndarray:
        """Sentences ``(B, T)``, each ended by </s>."""
        rows = [self.words.encode(self.normalised(line)) for line in lines]
        most = self.about.get("truncate") or None  # with </s>
        return self.words.batch([[*row[: most and most - 1], self.words.eos] for row in rows])

    def unknown(self, line: str) -> tuple[int, int]:
        """The number of unknown words in a line, and that of all."""
        found = self.words.encode(self.normalised(line))
        return found.count(self.words.unk), len(found)

    def normalised(self, line: str) -> list[str]:
        """The words of a line, normalised as in the dictionary."""
        line = line.lower() if self.about.get("lowercase") else line
        line = re.sub("[0-9]", "0", line) if self.about.get("zero_digits") else line
        return self.split(line)

    def split(self, line: str) -> list[str]:
        """The words of a tokenised line."""
        return line.split()


class SentenceModel(Model):
    """The base class of models whose words may contain no-break spaces."""

    def split(self, line: str) -> list[str]:
        """The words of a tokenised line."""
        return [word for word in ASCII_SPACE.split(line) if word]


class Classifier(SentenceModel):
    """Classifies sentences, or pairs separated by a tab."""

    def answers(self, lines: Sequence[str]) -> list[str]:
        """LABEL<TAB>PROBABILITY of each line."""
        if self.about["pairs"]:
            first, second = zip(*map(pair, lines), strict=True)
            inputs = {"tokens": self.tokens(first), "pair_tokens": self.tokens(second)}
        else:
            inputs = {"tokens": self.tokens(lines)}
        rows = self.run("model", **inputs)["probabilities"]
        classes = self.about["classes"]
        return [f"{classes[row.argmax()]}\t{row.max():.4f}" for row in rows]


class Tagger(SentenceModel):
    """Tags the words of sentences."""

    def __init__(self, folder: Path, about: dict):
        super().__init__(folder, about)
        characters = about.get("characters")
        self.characters = Dictionary(folder / characters) if characters else None

    def normalised(self, line: str) -> list[str]:
        """The words of a line, normalised as in the dictionary."""
        return with_plain_quotes(self.words, super().normalised(line))

    def answers(self, lines: Sequence[str]) -> list[str]:
        """The tags of each line, separated by spaces."""
        split = [self.split(line) for line in lines]
        if not any(split):  # the graph needs a word
            return [""] * len(lines)
        inputs = {"tokens": self.tokens(lines)}
        if self.characters is not None:
            inputs["spelling"] = self.spelling(split)
        found = self.run("model", **inputs)["tags"]
        classes = self.about["classes"]
        return [
            " ".join(classes[tag] for tag in row[: len(words)])
            for row, words in zip(found, split, strict=True)
        ]

    def spelling(self, split: Sequence[Sequence[str]]) -> np.ndarray:
        """The characters ``(B, T, W)`` of the words of sentences; T is at least 1."""
        assert self.characters is not None
        padded = self.characters.batch(
            [
                self.characters.encode(with_plain_quotes(self.characters, word))
                for words in split
                for word in words
            ]
        )
        shape = (len(split), max(map(len, split)), padded.shape[1])
        table = np.full(shape, self.characters.pad, dtype=np.int64)
        ends = np.cumsum([len(words) for words in split])
        for row, rows in zip(table, np.split(padded, ends[:-1]), strict=True):
            row[: len(rows)] = rows
        return table


def with_plain_quotes(dictionary: Dictionary, symbols: Iterable[str]) -> list[str]:
    """The symbols, with ' and " in place of ’ and “ unless the dictionary knows them."""
    return [symbol if symbol in dictionary else symbol.translate(TYPOGRAPHIC) for symbol in symbols]


class LanguageModel(Model):
    """Scores sentences, each by itself after </s>."""

    def zero_state(self, batch: int) -> dict[str, np.ndarray]:
        """The initial state."""
        shape = (self.about["layers"], batch, self.about["hidden_size"])
        return {name: np.zeros(shape, dtype=np.float32) for name in self.about["state"]}

    def answers(self, lines: Sequence[str]) -> list[str]:
        """The log-probability of each line, </s> included."""
        target = self.tokens(lines)
        source = np.roll(target, 1, axis=1)
        source[:, 0] = self.words.eos
        if self.about.get("reads_bos"):  # trained with --add-bos-token
            source, target = (
                np.pad(part, ((0, 0), (1, 0)), constant_values=value)
                for part, value in ((source, self.words.bos), (target, self.words.pad))
            )
        found = self.run("model", tokens=source, **self.zero_state(len(lines)))["log_probs"]
        chosen = np.take_along_axis(found, target[..., None], axis=-1)[..., 0]
        return [f"{value:.4f}" for value in np.where(target == self.words.pad, 0, chosen).sum(1)]


class Translator(Model):
    """Translates by beam search as in fairseq, ranked by mean log-probability of a word."""

    def __init__(self, folder: Path, about: dict):
        super().__init__(folder, about)
        self.target = Dictionary(folder / about["target_dictionary"])

    def answers(self, lines: Sequence[str], beam: int = 5, max_length: int = 200) -> list[str]:
        """The best translation of each line; empty lines stay empty."""
        texts = [line for line in lines if line.strip()]
        found = iter(self.translate(texts, beam, max_length) if texts else [])
        return [next(found)[0][1] if line.strip() else "" for line in lines]

    def translate(
        self, lines: Sequence[str], beam: int = 5, max_length: int = 200
    ) -> list[list[tuple[float, str]]]:
        """(mean log-probability of a word, translation) of the best translations of each line."""
        beam = min(beam, len(self.target) - 1)
        encoded = self.run("encoder", tokens=self.tokens(lines))
        rows = np.repeat(np.arange(len(lines)), beam)
        source = {name: encoded[name][rows] for name in ("keys", "values", "mask")}
        state = {name: encoded[name][:, rows] for name in self.about["state"]}
        state["feed"] = np.zeros((len(rows), self.about["hidden_size"]), dtype=np.float32)
        tokens = np.full(len(rows), self.target.eos)
        history = np.empty((len(rows), 0), dtype=np.int64)
        scores = np.full((len(lines), beam), -np.inf)  # of each line's hypotheses
        scores[:, 0] = 0.0
        found: list[list[tuple[float, np.ndarray]]] = [[] for _ in lines]
        active = np.arange(len(lines))  # lines with unfinished hypotheses
        for step in range(1, max_length + 2):
            new = self.run("decoder_step", tokens=tokens, **source, **state)
            log_probs = new["log_probs"].reshape(len(active), beam, -1)
            log_probs[:, :, self.target.pad] = -np.inf
            if step == 1:  # a translation has at least one word
                log_probs[:, :, self.target.eos] = -np.inf
            if step > max_length:
                others = np.arange(log_probs.shape[2]) != self.target.eos
                log_probs[:, :, others] = -np.inf
            values, parents, words = self.candidates(scores, log_probs)
            ends = words == self.target.eos
            for line, rank in zip(
                *np.nonzero(ends[:, :beam] & np.isfinite(values[:, :beam])), strict=True
            ):
                if len(found[active[line]]) < beam:
                    previous_words = history[line * beam + parents[line, rank]]
                    found[active[line]].append((values[line, rank] / step, previous_words))
            left = np.array([len(found[line]) < beam for line in active])
            if step > max_length or not left.any():
                break
            chosen = ends.argsort(axis=1, kind="stable")[left, :beam]  # unfinished hypotheses
            values, parents, words = (
                np.take_along_axis(part[left], chosen, axis=1) for part in (values, parents, words)
            )
            rows = (np.flatnonzero(left)[:, None] * beam + parents).ravel()
            active, scores, tokens = active[left], values, words.ravel()
            history = np.concatenate([history[rows], tokens[:, None]], axis=1)
            source = source if left.all() else {name: part[rows] for name, part in source.items()}
            state = {name: new[f"new_{name}"].take(rows, self.axis(name)) for name in state}
        return [sorted(map(self.to_text, line), reverse=True) for line in found]

    @staticmethod
    def candidates(scores: np.ndarray, log_probs: np.ndarray):
        """The scores, parents and words of the best 2·beam continuations, ``(B, 2*beam)`` each.

        Args:
            scores: ``(B, beam)``, of the hypotheses.
            log_probs: ``(B, beam, V)``, of the next words.
        """
        total = scores[:, :, None] + log_probs
        flat = total.reshape(len(total), -1)
        count = min(2 * scores.shape[1], flat.shape[1])
        best = np.sort(np.argpartition(-flat, count - 1, axis=1)[:, :count], axis=1)
        values = np.take_along_axis(flat, best, axis=1)
        order = (-values).argsort(axis=1, kind="stable")
        best, values = (np.take_along_axis(part, order, axis=1) for part in (best, values))
        return values, *np.divmod(best, total.shape[2])

    @staticmethod
    def axis(name: str) -> int:
        """The axis of the hypotheses in a state."""
        return 0 if name == "feed" else 1

    def to_text(self, hypothesis: tuple[float, np.ndarray]) -> tuple[float, str]:
        """A hypothesis with its words as text."""
        score, words = hypothesis
        return score, " ".join(
            self.target.symbols[word] for word in words if word != self.target.bos
        )


def pair(line: str) -> list[str]:
    """The two sentences of a line."""
    sentences = line.split("\t")
    if len(sentences) != 2:
        sys.exit(
            f"error: the line {line[:60]!r} has {len(sentences) - 1} tabs; separate the two "
            "sentences of a pair with one tab"
        )
    return sentences


def load_tokenizers(folder: Path) -> Any:
    """The module ``words.py`` in a folder."""
    spec = importlib.util.spec_from_file_location("exported_words", folder / "words.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class RawSentences:
    """Preprocesses the raw text of a classifier or tagger."""

    def __init__(self, folder: Path, model: Model, raw: dict):
        self.model, self.raw, self.tokenizers = model, raw, load_tokenizers(folder)

    def encode(self, line: str) -> str:
        """Raw text as the model reads it."""
        if self.model.about.get("pairs"):
            return "\t".join(map(self.encode_sentence, pair(line)))
        return self.encode_sentence(line)

    def encode_sentence(self, line: str) -> str:
        """A sentence as the model reads it."""
        tokenizer, language = self.raw["tokenizer"], self.raw["language"]
        if not isinstance(self.model, Tagger):
            lowercase = bool(self.model.about.get("lowercase"))
            return " ".join(self.tokenizers.words(line, tokenizer, lowercase, language))
        known = self.model.words
        return " ".join(self.tokenizers.words_to_show(line, tokenizer, known, language))

    def decode(self, line: str, answer: str) -> str:
        """The answer to a line that was encoded."""
        return f"{line}\t{answer}" if isinstance(self.model, Tagger) else answer


class RawTranslation:
    """Preprocesses the raw text of a translation model, and joins its output."""

    def __init__(self, folder: Path, model: Model, raw: dict):
        self.lowercase = raw["tokenizer"] == "moses_lowercase"
        self.tokenize: Callable[[str], str] | None = None
        self.segment: Callable[[str], list[str]] = str.split
        self.mark, self.detokenizer = "", None
        if raw["tokenizer"] not in ("", "space"):
            from sacremoses import MosesDetokenizer

            tokenizers, language = load_tokenizers(folder), raw["source_lang"]
            self.tokenize = lambda line: tokenizers.moses_tokenize(line, language)
            if raw["tokenizer"] == "chinese":
                self.tokenize = tokenizers.chinese_characters
            self.detokenizer = MosesDetokenizer(raw["target_lang"])
        if name := raw.get("subwords"):
            load = {"bpe.codes": self.load_codes, "sentencepiece.model": self.load_pieces}[name]
            load(folder / name)

    def load_codes(self, path: Path) -> None:
        """Split words by subword-nmt's merges."""
        from subword_nmt.apply_bpe import BPE

        with open(path, encoding="utf-8-sig") as codes:
            merges = BPE(codes)
        self.segment, self.mark = lambda line: merges.process_line(line).split(), "@@"

    def load_pieces(self, path: Path) -> None:
        """Split lines by a SentencePiece model."""
        from sentencepiece import SentencePieceProcessor

        model = SentencePieceProcessor(model_file=str(path))
        self.segment, self.mark = lambda line: model.encode(line, out_type=str), "▁"

    def encode(self, line: str) -> str:
        """Raw text as the model reads it."""
        line = " ".join(line.split())
        if self.tokenize is not None:
            line = self.tokenize(line)
        return " ".join(self.segment(line.lower() if self.lowercase else line))

    def decode(self, line: str, answer: str) -> str:
        """The model's output, for a line that was encoded, as text."""
        if self.mark == "@@":
            answer = f"{answer} ".replace("@@ ", "").strip()
        if self.mark == "▁":
            answer = answer.replace(" ", "").replace("▁", " ").strip()
        return answer if self.detokenizer is None else self.detokenizer.detokenize(answer.split())


def raw_text(folder: Path, model: Model) -> RawSentences | RawTranslation:
    """What ``--raw`` needs. Exits with a message if the export or a package lacks it."""
    raw = model.about.get("raw")
    if raw is None:
        sys.exit(
            f"error: {folder} lacks what --raw needs (language models, or data not from casrnn "
            "prepare); drop --raw and preprocess the text like the training text"
        )
    kind = RawTranslation if isinstance(model, Translator) else RawSentences
    try:
        ready = kind(folder, model, raw)
        ready.encode("a\tb" if model.about.get("pairs") else "a")  # imports what it needs
    except ImportError as error:
        package = str(error.name).partition(".")[0].replace("_", "-")
        sys.exit(f"error: --raw needs {package}; install it with pip install {package}")
    return ready


KINDS = {
    "classifier": Classifier,
    "tagger": Tagger,
    "language model": LanguageModel,
    "translation": Translator,
}


def load(folder: str | Path) -> Model:
    """The model that ``casrnn export --format onnx`` wrote into a folder."""
    folder = Path(folder)
    about = json.loads((folder / "export.json").read_text(encoding="utf-8"))
    return KINDS[about["kind"]](folder, about)


def chunks(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yields lists of ``size`` lines; before an invalid line, the lines that are left."""
    batch: list[str] = []
    try:
        for line in lines:
            batch.append(line)
            if len(batch) == size:
                yield batch
                batch = []
    except SystemExit:  # of an invalid line
        if batch:
            yield batch
        raise
    if batch:
        yield batch


def decoded(stream: Iterable[bytes]) -> Iterator[str]:
    """The lines of a stream, without a byte-order mark. Exits if one is not UTF-8."""
    for number, line in enumerate(stream, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            sys.exit(f"error: standard input, line {number} is not valid UTF-8 ({error.reason})")


def encoded(
    model: Model, lines: Iterable[str], raw: RawSentences | RawTranslation | None
) -> Iterator[str]:
    """The lines as the model reads them. Exits at one that has too many tokens or is no pair."""
    most = model.about.get("max_tokens")  # with </s>
    for number, line in enumerate(lines, start=1):
        line = line if raw is None else raw.encode(line)
        if model.about.get("pairs"):
            pair(line)
        if most is not None and model.unknown(line)[1] >= most:
            sys.exit(
                f"error: standard input, line {number} has more than the {most} tokens that the "
                "model accepts; split it"
            )
        yield line


def warn_unknown(model: Model, lines: Sequence[str], first: int, raw: bool = False) -> bool:
    """Warn of a line, a third or more of whose words are unknown; whether there is one."""
    remedy = "preprocess the text like the training text"
    if model.about.get("raw") is not None:
        remedy += ", or let --raw do it"
    if raw:
        remedy = "use text like the training text"
    for number, line in enumerate(lines, start=first):
        unknown, total = model.unknown(line)
        if unknown and 3 * unknown >= total:
            print(
                f"warning: {unknown} of {total} words in line {number} are unknown, and others may "
                f"be, too; {remedy}",
                file=sys.stderr,
            )
            return True
    return False


def positive(text: str) -> int:
    """Type of a size on the command line."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return int(text)


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent)
    parser.add_argument(
        "--batch-size", type=positive, default=32, help="lines per batch (default: 32)"
    )
    parser.add_argument(
        "--beam", type=positive, default=5, help="beam size of translation (default: 5)"
    )
    parser.add_argument(
        "--max-length",
        type=positive,
        default=200,
        help="longest translation, in words (default: 200)",
    )
    parser.add_argument(
        "--raw",
        action="store_true",
        help="read raw text and preprocess it like the training text",
    )
    args = parser.parse_args(argv)
    if not (args.folder / "export.json").is_file():
        sys.exit(f"error: {args.folder} has no export.json; name a folder that casrnn export wrote")
    model: Any = load(args.folder)  # any class of KINDS
    search = {"beam": args.beam, "max_length": args.max_length}
    raw = raw_text(args.folder, model) if args.raw else None
    options = search if isinstance(model, Translator) else {}
    first, warned = 1, False
    for lines in chunks(encoded(model, decoded(sys.stdin.buffer), raw), args.batch_size):
        warned = warned or warn_unknown(model, lines, first, args.raw)
        answers = model.answers(lines, **options)
        if raw is not None:
            answers = map(raw.decode, lines, answers)
        print(*answers, sep="\n", flush=True)
        first += len(lines)


if __name__ == "__main__":
    main()
