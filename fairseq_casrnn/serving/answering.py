"""A trained model of any kind, asked for what ``POST /predict`` answers.

docs/serving.md describes the answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairseq_casrnn.data.spans import are_spans, spans
from fairseq_casrnn.data.symbols import escape, escape_line
from fairseq_casrnn.serving.questions import MOST_HYPOTHESES, Question
from fairseq_casrnn.serving.traces import rounded, trace

if TYPE_CHECKING:
    import torch
    from fairseq.models import BaseFairseqModel

EXPECTED = 3  # words that a language model thought likeliest, in an explanation


class Answering:
    """A model with what is around it.

    Attributes:
        kind: "classifier", "tagger", "translator" or "language model".
        model: in ``eval()`` mode.
        pairs: whether a question is a pair of sentences.
    """

    kind: str
    model: BaseFairseqModel
    pairs = False

    def answer(self, questions: Sequence[Question]) -> list[dict]:
        """The answers, in the questions' order. Raises UserError."""
        raise NotImplementedError

    def description(self) -> dict:
        """What ``GET /model`` says beside kind and sizes."""
        return {}


class Classifying(Answering):
    """Classes of sentences or of pairs.

    Args:
        hub: a :class:`.SentenceHub`.
    """

    kind = "classifier"

    def __init__(self, hub):
        self.hub, self.model, self.pairs = hub, hub.model, hub.task.pairs

    def description(self) -> dict:
        """The classes."""
        return {"classes": self.hub.classes}

    def answer(self, questions: Sequence[Question]) -> list[dict]:
        """Classes with their probabilities, the likeliest first."""
        rows = self.hub.probabilities([self._item(one) for one in questions]).tolist()
        answers = []
        for question, row in zip(questions, rows, strict=True):
            order = sorted(range(len(row)), key=row.__getitem__, reverse=True)
            classes = [
                {"label": self.hub.classes[i], "probability": round(row[i], 6)} for i in order
            ]
            answer = {**classes[0], "classes": classes}
            if question.explain:
                answer["sentences"] = self._trace(question)
            answers.append(answer)
        return answers

    def _item(self, question: Question):
        return (question.text, question.pair) if self.pairs else question.text

    def _trace(self, question: Question) -> list[dict]:
        texts = [question.text, question.pair] if self.pairs else [question.text]
        sentences = [self.hub.task.split_text(text) for text in texts]
        return trace(self.model, lambda: self.hub.probabilities([self._item(question)]), sentences)


class Tagging(Answering):
    """Tags of words.

    Args:
        hub: a :class:`.TaggerHub`.
    """

    kind = "tagger"

    def __init__(self, hub):
        self.hub, self.model = hub, hub.model
        self.are_spans = are_spans(hub.classes)

    def description(self) -> dict:
        """The tags."""
        return {"classes": self.hub.classes}

    def answer(self, questions: Sequence[Question]) -> list[dict]:
        """Words and tags, and the spans that these mark."""
        answers = []
        for sentence in self.hub.tag([question.text for question in questions]):
            tags = [word.tag for word in sentence]
            answer: dict = {"words": [word.text for word in sentence], "tags": tags}
            if self.are_spans:
                found = sorted(spans(tags), key=lambda span: span[1])
                answer["spans"] = [
                    {"type": kind, "first": first, "last": last} for kind, first, last in found
                ]
            answers.append(answer)
        return answers


class Translating(Answering):
    """Translations by beam search.

    Args:
        model, task: of translation.
        encode: splits a text into the model's tokens, separated by spaces.
        decode: makes text of such a line.
        beam: its size.
    """

    kind = "translator"

    def __init__(self, model, task, encode, decode, beam: int):
        from fairseq.dataclass.configs import GenerationConfig

        self.model, self.task, self.beam = model, task, beam
        self.encode, self.decode = encode, decode
        options = GenerationConfig(beam=beam, nbest=min(beam, MOST_HYPOTHESES))
        self.generator = task.build_generator([model], options)

    def description(self) -> dict:
        """Languages and beam size."""
        cfg = self.task.cfg
        return {"source": cfg.source_lang, "target": cfg.target_lang, "beam": self.beam}

    def answer(self, questions: Sequence[Question]) -> list[dict]:
        """Hypotheses, the best first, and for the best one what it attended to."""
        from fairseq.utils import apply_to_sample

        source = self.task.source_dictionary
        lines = [escape_line(self.encode(question.text)) for question in questions]
        ids = [source.encode_line(line, add_if_not_exist=False).long() for line in lines]
        dataset = self.task.build_dataset_for_inference(ids, [len(row) for row in ids])
        rows = [{"id": i, "source": row, "target": None} for i, row in enumerate(ids)]
        device = next(self.model.parameters()).device
        # Sorted by length.
        batch = apply_to_sample(lambda tensor: tensor.to(device), dataset.collater(rows))
        found = self.task.inference_step(self.generator, [self.model], batch)
        answers: list[dict] = [{}] * len(questions)
        for index, hypotheses in zip(batch["id"].tolist(), found, strict=True):
            answers[index] = self._answer(questions[index], lines[index], hypotheses)
        return answers

    def _answer(self, question: Question, line: str, hypotheses: list) -> dict:
        target = self.task.target_dictionary
        chosen = [
            # In bits by token, as fairseq-generate prints it.
            {"text": self._text(one), "score": round(float(one["score"]) / math.log(2), 4)}
            for one in hypotheses[: question.nbest]
        ]
        answer = {"translation": chosen[0]["text"], "hypotheses": chosen}
        attention = hypotheses[0]["attention"]
        if question.explain and attention is not None and attention.numel():
            answer["source"] = source = [*line.split(), "</s>"]
            answer["target"] = [target[i] for i in hypotheses[0]["tokens"].tolist()]
            # In a batch, padding comes first or last.
            padding = len(attention) - len(source)
            begin = padding if self.task.cfg.left_pad_source else 0
            rows = attention[begin : begin + len(source)].t().tolist()
            answer["attention"] = [rounded(row) for row in rows]
        return answer

    def _text(self, hypothesis) -> str:
        target = self.task.target_dictionary
        return self.decode(target.string(hypothesis["tokens"]))


class LanguageModelling(Answering):
    """Probabilities of the words of a text, which is read by itself, after ``</s>``.

    Args:
        model, task: of language modelling.
        split: splits a text into the model's words.
    """

    kind = "language model"

    def __init__(self, model, task, split):
        self.model, self.dictionary, self.split = model, task.source_dictionary, split

    def answer(self, questions: Sequence[Question]) -> list[dict]:
        """Surprisal by word, in bits, and perplexity."""
        import torch

        from fairseq_casrnn.evaluation.lm_scores import of_targets, padded
        from fairseq_casrnn.evaluation.trained_lm import reads_bos

        split = [self.split(question.text) for question in questions]
        ids = [self._tokens(sentence) for sentence in split]
        bos = reads_bos(self.model)
        source, target = padded(ids, self.dictionary, bos)
        device = next(self.model.parameters()).device
        with torch.no_grad():
            output = self.model(source.to(device))
            found = of_targets(self.model, output, target.to(device))
            likeliest: tuple[torch.Tensor, ...] = ()
            if any(question.explain for question in questions):
                table = self.model.get_normalized_probs(
                    output, log_probs=False, sample={"target": target.to(device)}
                )
                likeliest = table.topk(min(EXPECTED, table.size(-1)))
        answers = []
        for i, (question, sentence) in enumerate(zip(questions, split, strict=True)):
            place = slice(int(bos), int(bos) + len(ids[i]))
            answer = self._answer(sentence, ids[i].tolist(), found[i, place].tolist())
            if question.explain:
                answer["expected"] = self._expected(*(part[i, place] for part in likeliest))
            answers.append(answer)
        return answers

    def _tokens(self, sentence: list[str]):
        line = " ".join(escape(sentence))
        return self.dictionary.encode_line(line, add_if_not_exist=False).long()

    def _answer(self, sentence: list[str], tokens: list[int], log_probs: list[float]) -> dict:
        unknown = [i for i, token in enumerate(tokens) if token == self.dictionary.unk()]
        surprisal = [-value / math.log(2) for value in log_probs]
        return {
            "words": [*sentence, "</s>"],
            "surprisal": rounded(surprisal),
            "unknown": unknown,
            "perplexity": 2 ** min(sum(surprisal) / len(surprisal), 1000.0),
        }

    def _expected(self, values, indices) -> list[list[dict]]:
        return [
            [
                {"word": self.dictionary[token], "probability": round(value, 4)}
                for value, token in zip(*row, strict=True)
            ]
            for row in zip(values.tolist(), indices.tolist(), strict=True)
        ]
