"""What a broker imports after it is ready."""

from __future__ import annotations

import gc
import sys

import pytest

from ottla.broker import late_imports


async def test_module_that_cannot_be_imported_is_logged_and_the_next_one_is_imported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(late_imports, "_PAUSE_S", 0)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    await late_imports.import_late(["ottla.that_was_removed", "colorsys"])
    assert "colorsys" in sys.modules
    (record,) = caplog.records
    assert record.getMessage() == "broker.import_failed"
    assert record.exc_info is not None
