"""The transitions that are allowed equal those that occur in real spans of each scheme."""

import itertools

import pytest
import torch

from fairseq_casrnn.data.tag_constraints import constraints, violations

SCHEMES = {
    # the first, inner and last word of a span, and the word of a single-word span
    "IOB2": ("B", "I", "I", "B"),
    "BIOES": ("B", "I", "E", "S"),
    "BILOU": ("B", "I", "L", "U"),
}


def sequences(scheme, length):
    """The tags of all possible spans of types X and Y in a sentence."""
    first, inner, last, single = SCHEMES[scheme]
    if length == 0:
        return {()}
    found = {("O", *rest) for rest in sequences(scheme, length - 1)}
    for size, kind in itertools.product(range(1, length + 1), "XY"):
        span = [single] if size == 1 else [first, *[inner] * (size - 2), last]
        tags = tuple(f"{letter}-{kind}" for letter in span)
        found |= {(*tags, *rest) for rest in sequences(scheme, length - size)}
    return found


@pytest.mark.parametrize("scheme", SCHEMES)
def test_exactly_the_tags_of_spans_are_allowed(scheme):
    classes = ("O", *(f"{letter}-{kind}" for letter in dict.fromkeys(SCHEMES[scheme])
                      for kind in "XY"))  # fmt: skip
    rules = constraints(classes)
    allowed = {
        tuple(classes[tag] for tag in tags)
        for tags in itertools.product(range(len(classes)), repeat=4)
        if not violations(rules, torch.tensor(tags))
    }
    assert allowed == sequences(scheme, 4)
    assert violations(rules, torch.tensor([], dtype=torch.long)) == 0


def test_types_that_lack_tags():
    """A span needs no first or last tag of a kind that its type does not have."""
    classes = ("O", "I-X", "B-Y", "S-Z", "B-Z", "I-Z")
    rules = constraints(classes)
    for tags in (["I-X", "O"], ["O", "I-X", "I-X"], ["B-Y"], ["B-Z", "I-Z", "I-X"], ["B-Z", "O"]):
        assert violations(rules, torch.tensor([classes.index(tag) for tag in tags])) == 0
    for count, tags in ((1, ["O", "I-Z"]), (1, ["I-Z", "B-Y"]), (2, ["I-Z", "S-Z", "I-Z"])):
        assert violations(rules, torch.tensor([classes.index(tag) for tag in tags])) == count
