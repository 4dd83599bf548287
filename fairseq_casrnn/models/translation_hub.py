"""Trained translation models for use from Python."""

from __future__ import annotations

from typing import Any

from fairseq.hub_utils import GeneratorHubInterface


class TranslationHub(GeneratorHubInterface):
    """fairseq's hub interface of a translation model, for which an empty text stays empty."""

    def sample(
        self, sentences: str | list[str], beam: int = 1, verbose: bool = False, **kwargs: Any
    ) -> Any:
        """As in fairseq, also for ``translate``. A model would make up something for no words."""
        if isinstance(sentences, str):
            return self.sample([sentences], beam, verbose, **kwargs)[0]
        texts = [text for text in sentences if text.strip()]
        found = iter(super().sample(texts, beam, verbose, **kwargs) if texts else [])
        return [next(found) if text.strip() else "" for text in sentences]
