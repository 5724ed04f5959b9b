"""Where a catalog of pyiceberg's configuration would put a table, without a catalog."""

from __future__ import annotations

import pytest

from ottla.spark.errors import LakeError
from ottla.spark.lake import iceberg_table
from ottla.spark.lake.iceberg_table import place_of


class EmptyCatalog:
    def __init__(self, warehouse: str | None) -> None:
        self.properties = {} if warehouse is None else {"warehouse": warehouse}

    def table_exists(self, _table: str) -> bool:
        return False

    def namespace_exists(self, _namespace: tuple[str, ...]) -> bool:
        return False


@pytest.mark.parametrize(
    ("warehouse", "place"), [("s3://lake/", "s3://lake/shop/orders"), ("/data/lake", "/data/lake/shop/orders")]
)
def test_a_new_table_is_in_the_catalogs_warehouse(monkeypatch: pytest.MonkeyPatch, warehouse: str, place: str) -> None:
    monkeypatch.setattr(iceberg_table, "load_catalog", lambda _name: EmptyCatalog(warehouse))
    assert place_of("prod", "shop.orders") == place


@pytest.mark.parametrize("warehouse", ["prod", "projects/7", None])
def test_a_warehouse_that_is_a_name_is_no_path(monkeypatch: pytest.MonkeyPatch, warehouse: str | None) -> None:
    monkeypatch.setattr(iceberg_table, "load_catalog", lambda _name: EmptyCatalog(warehouse))
    with pytest.raises(LakeError, match=r"the catalog prod has no table shop.orders yet, and does not say where"):
        place_of("prod", "shop.orders")
