from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compiled_decoder import FORMS
from tests.compiled_encoder import encoding_with


@pytest.fixture(params=FORMS, scope="module")
def form(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each form of the encoder."""
    with encoding_with(request.param):
        yield request.param
