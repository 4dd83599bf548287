"""The tokenizers of fairseq-interactive and from_pretrained."""

import pytest
from fairseq.data import encoders
from omegaconf import OmegaConf

import fairseq_casrnn
from fairseq_casrnn.data.text import tokenize_lines
from fairseq_casrnn.errors import UserError

fairseq_casrnn.register()


def tokenizer(source, target, name="moses_lowercase"):
    options = {"_name": name, "source_lang": source, "target_lang": target}
    return encoders.build_tokenizer(OmegaConf.create(options))


@pytest.mark.parametrize(
    ("source", "target", "line", "tokens"),
    [
        (
            "de",
            "en",
            "Wie geht's? Gut-bürgerlich, z.B.",
            "wie geht &apos; s ? gut-bürgerlich , z.b .",
        ),
        ("en", "de", "He's well-known.", "he &apos;s well-known ."),
    ],
)
def test_text_is_split_as_the_recipes_do(source, target, line, tokens):
    encoded = tokenizer(source, target).encode(line)
    assert encoded == tokens == tokenize_lines([line], source)[0]


def test_translations_are_detokenised_for_the_target_language():
    """French has a space before a colon."""
    assert tokenizer("en", "fr").decode("il a dit : oui .") == "il a dit : oui."
    assert tokenizer("fr", "en").decode("he said : yes .") == "he said: yes."


def test_chinese():
    chinese = tokenizer("zh", "en", "chinese")
    assert chinese.encode("Tom喜欢 3.5。") == "tom 喜 欢 3.5 。"
    assert chinese.decode("he likes 3.5 .") == "he likes 3.5."
    with pytest.raises(UserError, match=r"--target-lang is missing; the tokenizer chinese needs"):
        tokenizer("zh", None, "chinese")


def test_missing_languages():
    for source, target, option in (("de", None, "--target-lang"), (None, "en", "--source-lang")):
        with pytest.raises(UserError, match=f"{option} is missing; the tokenizer moses_lowercase"):
            tokenizer(source, target)
