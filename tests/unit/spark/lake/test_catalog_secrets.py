"""The secrets of a catalog's properties are in no text that is shown."""

from __future__ import annotations

import traceback

import pytest

from ottla.spark.errors import LakeError
from ottla.spark.lake import iceberg_table
from ottla.spark.lake.formats import IcebergTarget, UnityTarget

# Lines of source code, which a traceback shows, have the name.
SECRET = "qW3rTy"
# Nothing listens there; a header is refused before the connection.
REST = {"type": "rest", "uri": "http://127.0.0.1:1"}


@pytest.mark.parametrize("properties", [{"token": f"{SECRET}\n1"}, {"header.X-Key": f"{SECRET}\n"}])
def test_a_header_that_the_http_client_refuses_is_not_quoted(properties: dict[str, str]) -> None:
    with pytest.raises(LakeError, match="has characters that no header can have") as refused:
        IcebergTarget("lake.clicks", catalog={**REST, **properties}).open(None)
    assert SECRET not in "".join(traceback.format_exception(refused.value))


def test_the_end_of_a_secrets_line_is_not_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, str] = {}

    def load(_name: str, **properties: str) -> None:
        given.update(properties)
        raise OSError("away")

    monkeypatch.setattr(iceberg_table, "load_catalog", load)
    with pytest.raises(LakeError, match="away"):
        IcebergTarget("lake.clicks", catalog={**REST, "token": f"{SECRET}\n", "credential": f"{SECRET}\n"}).open(None)
    assert given == {**REST, "token": SECRET, "credential": SECRET}


def test_targets_are_shown_without_their_catalogs_properties() -> None:
    catalog = {"token": SECRET}
    for target in (IcebergTarget("lake.clicks", catalog=catalog), UnityTarget("main.lake.clicks", catalog)):
        assert SECRET not in repr(target)
