"""The page in a real browser: by keyboard, in light and dark mode, and on a phone."""

import pytest
from browsing import CONTRAST

from .common import ROLES, golden, serving

TEXTS = {
    "sentence_encoder": "the film is good",
    "tagger": "Anna saw Bad Ems",
    "translation": "bo da",
    "language_model": "bo unheard-of",
}


@pytest.fixture(scope="module", params=ROLES)
def served(request, tmp_path_factory):
    """A role and the address of its model."""
    predictor = golden(request.param, tmp_path_factory.mktemp(request.param))
    with serving(predictor, name=request.param, max_characters=100) as url:
        yield request.param, url


@pytest.fixture
def page(browser, served):
    """The model's page; checks at the end that there was no error and no request elsewhere."""
    _, url = served
    context, wrong, asked = browser.new_context(), [], []
    page = context.new_page()
    page.set_default_timeout(20_000)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(url)
    page.locator("#about", has_text="parameters").wait_for()
    yield page
    context.close()
    # The browser logs each response with an error status.
    assert [text for text in wrong if "status of 422" not in text] == []
    assert len(asked) >= 2
    assert all(one.startswith((url, "data:")) for one in asked)


def wait_for_answer(page):
    page.get_by_role("status").filter(has_text="Answered.").wait_for()
    return page.get_by_role("region", name="Answer")


def ask_by_keyboard(page, role, text):
    """Type the text into the boxes by keyboard only, and ask."""
    page.keyboard.press("Tab")
    page.keyboard.type(text)
    if role == "sentence_encoder":
        page.keyboard.press("Tab")
        page.keyboard.type("the story")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    return wait_for_answer(page)


def test_answers_by_keyboard(page, served):
    role, _ = served
    answer = ask_by_keyboard(page, role, TEXTS[role])
    if role == "sentence_encoder":
        assert page.get_by_role("textbox", name="First sentence").input_value() == TEXTS[role]
        assert page.get_by_role("textbox", name="Second sentence").input_value() == "the story"
        rows = answer.get_by_role("row").all_inner_texts()
        assert {row.split("\t")[0] for row in rows[1:]} == {
            "entailment", "neutral", "contradiction"
        }  # fmt: skip
        assert all(row.endswith(" %") for row in rows[1:])
    elif role == "tagger":
        page.get_by_text("Tags by word").focus()
        page.keyboard.press("Enter")
        rows = answer.get_by_role("row").all_inner_texts()
        assert [row.split("\t")[0] for row in rows[1:]] == TEXTS[role].split()
    elif role == "translation":
        assert len(answer.get_by_role("listitem").all()) == 5
        table = answer.get_by_role("table", name="Attention")
        assert table.get_by_role("columnheader").all_inner_texts() == ["", "bo", "da", "</s>"]
        cells = [row.split("\t")[1:] for row in table.get_by_role("row").all_inner_texts()[1:]]
        assert all(97 <= sum(int(cell or 0) for cell in row) <= 103 for row in cells)
    else:
        words = answer.locator(".word").all_inner_texts()
        assert [word.split("\n")[0] for word in words] == ["bo", "unheard-of", "</s>"]
        page.get_by_text("What was expected instead").press("Enter")
        rows = answer.get_by_role("row").all_inner_texts()
        assert rows[2].startswith("unheard-of (unknown)\t")


def test_text_is_never_read_as_html(page, served):
    role, _ = served
    text = "<img/src=x/onerror=alert(1)><b>bold</b>"
    answer = ask_by_keyboard(page, role, text)
    page.get_by_text("The same by the API").press("Enter")
    assert "<img/src=x/onerror=alert(1)>" in answer.locator("pre").first.inner_text()
    assert answer.locator("img, b, script").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_legible(page, served, scheme):
    """The contrast is at least 4.5 (WCAG 1.4.3, AA), and the page is no wider than a phone."""
    role, _ = served
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 360, "height": 640})
    ask_by_keyboard(page, role, TEXTS[role])
    for summary in page.locator("summary").all():
        summary.press("Enter")
    contrast, where = page.evaluate(CONTRAST)
    assert contrast >= 4.5, where
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_mistakes_are_shown(page, served):
    role, _ = served
    page.locator("#text").evaluate("box => { box.maxLength = 1000 }")
    page.locator("#text").fill("a" * 101)
    if role == "sentence_encoder":
        page.locator("#pair").fill("b")
    with page.expect_response("**/predict") as response:
        page.keyboard.press("Control+Enter")
    assert response.value.status == 422
    alert = page.get_by_role("alert").filter(has_text="characters")
    assert alert.inner_text() == "text has 101 characters, and 100 are allowed; send less"
