"""All decoding is tested in memory that holds NaN until it is written."""

import pytest


@pytest.fixture(autouse=True)
def _always(filled):
    pass
