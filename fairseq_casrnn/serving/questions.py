"""What ``POST /predict`` is sent: one text, or a pair, checked before a model sees it."""

from __future__ import annotations

from dataclasses import dataclass

from fairseq_casrnn.data.values import parse_json
from fairseq_casrnn.errors import UserError, quoted

MAX_BODY = 65_536  # bytes
MOST_HYPOTHESES = 10


class BadRequest(UserError):
    """A request that cannot be answered, with its HTTP status."""

    def __init__(self, message: str, status: int = 422):
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Question:
    """A text to be put to the model.

    Args:
        text: the text, or the first sentence of a pair.
        pair: the second sentence; None for models of single texts.
        explain: whether the answer should say what the model did, see docs/serving.md.
        nbest: translations to return.
    """

    text: str
    pair: str | None = None
    explain: bool = False
    nbest: int = 1


KINDS = {"text": str, "pair": str, "explain": bool, "nbest": int}
NAMES = {str: "a string", bool: "true or false", int: "an integer"}


def parse_question(body: bytes, pairs: bool, most_characters: int) -> Question:
    """The question in the body of a request.

    Args:
        body: JSON text.
        pairs: whether the model takes two sentences.
        most_characters: of each text.

    Raises:
        BadRequest: it is no JSON object, has a field that is unknown or of a wrong type, lacks one,
            or a text is too long.
    """
    try:
        fields = parse_json(body)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON ({error}); send an object", 400) from None
    if not isinstance(fields, dict):
        raise BadRequest('the body is no JSON object; send one, such as {"text": "…"}', 400)
    for name, value in fields.items():
        if name not in KINDS:
            known = ", ".join(KINDS)
            raise BadRequest(f"there is no field {quoted(name)}; the fields are {known}")
        if type(value) is not KINDS[name]:
            raise BadRequest(f"{name} must be {NAMES[KINDS[name]]}")
    if "text" not in fields:
        raise BadRequest("the field text is missing; send the text in it")
    if pairs != ("pair" in fields):
        raise BadRequest(
            "this model compares two sentences; send the second one as pair"
            if pairs
            else "this model takes single texts; drop pair"
        )
    for name in ("text", "pair"):
        if (length := len(fields.get(name, ""))) > most_characters:
            raise BadRequest(
                f"{name} has {length} characters, and {most_characters} are allowed; send less"
            )
    question = Question(**fields)
    if not 1 <= question.nbest <= MOST_HYPOTHESES:
        raise BadRequest(f"nbest is {question.nbest}; it must be from 1 to {MOST_HYPOTHESES}")
    return question
