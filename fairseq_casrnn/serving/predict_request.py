"""Requests of ``POST /predict``: a text or a pair of texts, validated."""

from __future__ import annotations

from dataclasses import dataclass

from fairseq_casrnn.data.values import parse_json
from fairseq_casrnn.errors import UserError, quoted

MAX_BODY = 65_536  # bytes
MAX_HYPOTHESES = 10


class BadRequest(UserError):
    """An invalid request, with the HTTP status of its response."""

    def __init__(self, message: str, status: int = 422):
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class PredictRequest:
    """One text or pair for the model.

    Args:
        text: the text, or the first sentence of a pair.
        pair: the second sentence; None for models of single texts.
        explain: whether to return explanations, see docs/serving.md.
        nbest: number of translations to return.
    """

    text: str
    pair: str | None = None
    explain: bool = False
    nbest: int = 1


FIELD_TYPES = {"text": str, "pair": str, "explain": bool, "nbest": int}
TYPE_NAMES = {str: "a string", bool: "true or false", int: "an integer"}


def parse_request(
    body: bytes, pairs: bool, max_characters: int, most_hypotheses: int | None
) -> PredictRequest:
    """Parse the body of a request.

    Args:
        body: JSON text.
        pairs: whether the model takes two sentences.
        max_characters: longest text.
        most_hypotheses: largest ``nbest``; None for models that give a single answer.

    Raises:
        BadRequest: not a JSON object, an unknown or missing field, a field of a wrong type, a text
            that is too long, or ``nbest`` out of range.
    """
    try:
        fields = parse_json(body)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON ({error}); send an object", 400) from None
    if not isinstance(fields, dict):
        raise BadRequest('the body is not a JSON object; send one, such as {"text": "…"}', 400)
    for name, value in fields.items():
        if name not in FIELD_TYPES:
            known = ", ".join(FIELD_TYPES)
            raise BadRequest(f"there is no field {quoted(name)}; the fields are {known}")
        if type(value) is not FIELD_TYPES[name]:
            raise BadRequest(f"{name} must be {TYPE_NAMES[FIELD_TYPES[name]]}")
    if "text" not in fields:
        raise BadRequest('the field "text" is missing; add it')
    if pairs != ("pair" in fields):
        raise BadRequest(
            "this model compares two sentences; send the second one as pair"
            if pairs
            else "this model takes single texts; drop pair"
        )
    for name in ("text", "pair"):
        if (length := len(fields.get(name, ""))) > max_characters:
            raise BadRequest(
                f"{name} has {length} characters, and {max_characters} are allowed; send less"
            )
    request = PredictRequest(**fields)
    if most_hypotheses is None:
        if request.nbest != 1:
            raise BadRequest("this model gives a single answer; drop nbest")
    elif not 1 <= request.nbest <= most_hypotheses:
        raise BadRequest(f"nbest is {request.nbest}; it must be from 1 to {most_hypotheses}")
    return request
