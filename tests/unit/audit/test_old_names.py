"""Names of earlier releases, which stay for one more."""

from __future__ import annotations

import importlib
import sys

import pytest

import ottla.audit
from ottla.audit.snapshot import AuditSnapshot

OLD_NAME = "AuditBook"


def test_audit_book_is_the_snapshot_and_warns_of_its_end() -> None:
    with pytest.warns(DeprecationWarning, match=r"AuditBook is named AuditSnapshot"):
        found = getattr(ottla.audit, OLD_NAME)
    assert found is AuditSnapshot


def test_module_book_has_the_snapshot_and_warns_of_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ottla.audit.book", raising=False)
    with pytest.warns(DeprecationWarning, match=r"ottla\.audit\.book is named ottla\.audit\.snapshot"):
        found = importlib.import_module("ottla.audit.book")
    assert found.AuditBook is AuditSnapshot
