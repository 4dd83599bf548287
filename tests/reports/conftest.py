"""A browser for the tests of reports."""

import pytest
from browsing import launched


@pytest.fixture(scope="module")
def browser():
    yield from launched()
