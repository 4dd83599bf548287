"""A browser for the tests of the page."""

import pytest
from browsing import launched


@pytest.fixture(scope="module")
def browser():
    yield from launched()
