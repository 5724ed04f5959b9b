from __future__ import annotations

from ottla.storage.errors import CorruptLog


def test_damage_without_a_place_names_none() -> None:
    assert str(CorruptLog("t-0/0.log", 70, 7, "checksum")) == "t-0/0.log is damaged at position 70 (offset 7): checksum"
    assert str(CorruptLog("t-0/0.log", -1, 7, "it is missing")) == "t-0/0.log is damaged (offset 7): it is missing"
    assert str(CorruptLog("t-0/0.log", -1, -1, "it is missing")) == "t-0/0.log is damaged: it is missing"
