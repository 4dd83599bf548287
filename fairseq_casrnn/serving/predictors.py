"""A common interface to trained models of all kinds, for ``POST /predict``.

docs/serving.md describes the predictions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fairseq_casrnn.data.spans import spans
from fairseq_casrnn.data.symbols import escape, escape_line
from fairseq_casrnn.errors import UserError
from fairseq_casrnn.kinds import CLASSIFIER, LANGUAGE_MODEL, TAGGER, TRANSLATION
from fairseq_casrnn.serving.cell_traces import rounded, trace_cells
from fairseq_casrnn.serving.predict_request import MAX_HYPOTHESES, PredictRequest

if TYPE_CHECKING:
    import torch
    from fairseq.models import BaseFairseqModel

TOP_WORDS = 3  # most probable words in an explanation of a language model


class Predictor:
    """A model with its pre- and postprocessing.

    Attributes:
        kind: ``served`` of one of :mod:`.kinds`.
        model: the model, in ``eval()`` mode.
        pairs: whether requests are pairs of sentences.
        most_hypotheses: the largest ``nbest`` of a request; None if there is a single answer.
    """

    kind: str
    model: BaseFairseqModel
    pairs = False
    most_hypotheses: int | None = None

    def predict(self, requests: Sequence[PredictRequest]) -> list[dict]:
        """The predictions, in the order of the requests. Raises UserError."""
        raise NotImplementedError

    def description(self) -> dict:
        """Further fields of ``GET /model``."""
        return {}


class ClassifierPredictor(Predictor):
    """Classifies sentences or pairs.

    Args:
        hub: a :class:`.SentenceHub`.
    """

    kind = CLASSIFIER.served

    def __init__(self, hub):
        self.hub, self.model, self.pairs = hub, hub.model, hub.task.pairs

    def description(self) -> dict:
        """The classes."""
        return {"classes": self.hub.classes}

    def predict(self, requests: Sequence[PredictRequest]) -> list[dict]:
        """Classes with their probabilities, the most probable first."""
        rows = self.hub.probabilities([self._item(one) for one in requests]).tolist()
        predictions = []
        for request, row in zip(requests, rows, strict=True):
            order = sorted(range(len(row)), key=row.__getitem__, reverse=True)
            classes = [
                {"label": self.hub.classes[i], "probability": round(row[i], 6)} for i in order
            ]
            prediction = {**classes[0], "classes": classes}
            if request.explain:
                prediction["sentences"] = self._trace(request)
            predictions.append(prediction)
        return predictions

    def _item(self, request: PredictRequest):
        return (request.text, request.pair) if self.pairs else request.text

    def _trace(self, request: PredictRequest) -> list[dict]:
        texts = [request.text, request.pair] if self.pairs else [request.text]
        sentences = [self.hub.task.split_text(text) for text in texts]
        return trace_cells(
            self.model, lambda: self.hub.probabilities([self._item(request)]), sentences
        )


class TaggerPredictor(Predictor):
    """Tags words.

    Args:
        hub: a :class:`.TaggerHub`.
    """

    kind = TAGGER.served

    def __init__(self, hub):
        self.hub, self.model = hub, hub.model

    def description(self) -> dict:
        """The tags."""
        return {"classes": self.hub.classes}

    def predict(self, requests: Sequence[PredictRequest]) -> list[dict]:
        """Words, tags and their probabilities, and the spans that the tags mark."""
        texts = [request.text for request in requests]
        predictions = []
        for text, sentence in zip(texts, self.hub.annotate(texts), strict=True):
            tags = [word.tag for word in sentence]
            prediction: dict = {"words": [word.text for word in sentence], "tags": tags}
            prediction["probabilities"] = [round(word.probability, 6) for word in sentence]
            if self.hub.task.are_spans:
                places = sorted(spans(tags), key=lambda span: span[1])
                prediction["spans"] = [
                    span._asdict()
                    | {"probability": round(span.probability, 6), "first": first, "last": last}
                    for span, (_, first, last) in zip(
                        self.hub.spans_of(sentence, text), places, strict=True
                    )
                ]
            predictions.append(prediction)
        return predictions


class TranslationPredictor(Predictor):
    """Translates by beam search.

    Args:
        hub: fairseq's hub interface of a translation model.
        beam: beam size.
    """

    kind = TRANSLATION.served

    def __init__(self, hub, beam: int):
        from fairseq.dataclass.configs import GenerationConfig

        self.hub, self.model, self.task, self.beam = hub, hub.models[0], hub.task, beam
        self.most_hypotheses = min(beam, MAX_HYPOTHESES)
        options = GenerationConfig(beam=beam, nbest=self.most_hypotheses)
        self.generator = self.task.build_generator([self.model], options)

    def description(self) -> dict:
        """Languages and beam size."""
        cfg = self.task.cfg
        return {"source": cfg.source_lang, "target": cfg.target_lang, "beam": self.beam}

    def predict(self, requests: Sequence[PredictRequest]) -> list[dict]:
        """Hypotheses, the best first, and the attention of the best one; "" for a blank text.

        Raises:
            UserError: a text has more tokens than the model accepts.
        """
        from fairseq.utils import apply_to_sample

        predictions: list[dict] = [{"translation": "", "hypotheses": []} for _ in requests]
        source = self.task.source_dictionary
        lines = [self._encode(request.text) for request in requests]
        ids = [source.encode_line(line, add_if_not_exist=False).long() for line in lines]
        most = self.hub.max_positions[0]
        if max(map(len, ids)) > most:
            raise UserError(
                f"the text has more than the {most} tokens that the model accepts; split it"
            )
        dataset = self.task.build_dataset_for_inference(ids, [len(row) for row in ids])
        rows = [
            {"id": i, "source": row, "target": None}
            for i, row in enumerate(ids)
            if requests[i].text.strip()
        ]
        if not rows:
            return predictions
        device = next(self.model.parameters()).device
        # Sorted by length.
        batch = apply_to_sample(lambda tensor: tensor.to(device), dataset.collater(rows))
        found = self.task.inference_step(self.generator, [self.model], batch)
        for index, hypotheses in zip(batch["id"].tolist(), found, strict=True):
            predictions[index] = self._prediction(requests[index], lines[index], hypotheses)
        return predictions

    def _encode(self, text: str) -> str:
        """The model's tokens of a text, separated by spaces."""
        return escape_line(self.hub.apply_bpe(self.hub.tokenize(" ".join(text.split()))))

    def _prediction(self, request: PredictRequest, line: str, hypotheses: list) -> dict:
        target = self.task.target_dictionary
        chosen = [
            # Mean log2 probability of a token, as fairseq-generate prints it.
            {
                "text": self.hub.decode(one["tokens"]),
                "score": round(float(one["score"]) / math.log(2), 4),
            }
            for one in hypotheses[: request.nbest]
        ]
        prediction = {"translation": chosen[0]["text"], "hypotheses": chosen}
        attention = hypotheses[0]["attention"]
        if request.explain and attention is not None and attention.numel():
            prediction["source"] = source = [*line.split(), "</s>"]
            prediction["target"] = [target[i] for i in hypotheses[0]["tokens"].tolist()]
            # In a batch, padding is on the left or the right.
            padding = len(attention) - len(source)
            begin = padding if self.task.cfg.left_pad_source else 0
            rows = attention[begin : begin + len(source)].t().tolist()
            prediction["attention"] = [rounded(row) for row in rows]
        return prediction


class LanguageModelPredictor(Predictor):
    """Predicts each word of a text, which starts after ``</s>``.

    Args:
        model, task: a language model and its task.
        split: splits a text into the model's words.
    """

    kind = LANGUAGE_MODEL.served

    def __init__(self, model, task, split):
        self.model, self.dictionary, self.split = model, task.source_dictionary, split

    def predict(self, requests: Sequence[PredictRequest]) -> list[dict]:
        """Surprisal by word, in bits, and perplexity."""
        import torch

        from fairseq_casrnn.evaluation.lm_scores import target_log_probs
        from fairseq_casrnn.inference.lm_inputs import padded, reads_bos

        split = [self.split(request.text) for request in requests]
        ids = [self._tokens(sentence) for sentence in split]
        bos = reads_bos(self.model)
        source, target = padded(ids, self.dictionary, bos)
        device = next(self.model.parameters()).device
        with torch.no_grad():
            output = self.model(source.to(device))
            found = target_log_probs(self.model, output, target.to(device))
            most_probable: tuple[torch.Tensor, ...] = ()
            if any(request.explain for request in requests):
                # Without targets: with them, an adaptive softmax skips clusters of other words.
                table = self.model.get_normalized_probs(output, log_probs=False)
                most_probable = table.topk(min(TOP_WORDS, table.size(-1)))
        predictions = []
        for i, (request, sentence) in enumerate(zip(requests, split, strict=True)):
            words = slice(int(bos), int(bos) + len(ids[i]))
            prediction = self._prediction(sentence, ids[i].tolist(), found[i, words].tolist())
            if request.explain:
                prediction["expected"] = self._expected(*(part[i, words] for part in most_probable))
            predictions.append(prediction)
        return predictions

    def _tokens(self, sentence: list[str]):
        line = " ".join(escape(sentence))
        return self.dictionary.encode_line(line, add_if_not_exist=False).long()

    def _prediction(self, sentence: list[str], tokens: list[int], log_probs: list[float]) -> dict:
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
