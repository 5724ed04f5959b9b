from __future__ import annotations

from pathlib import Path

import pytest

from ottla.runtime.java import find_java, parse_java_version


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('openjdk version "25" 2025-09-16', 25),
        ('java version "1.8.0_401"', 8),
        ("The operation could not be completed. Unable to locate a Java Runtime.", None),
    ],
)
def test_java_version_is_read_from_what_java_prints(text: str, version: int | None) -> None:
    assert parse_java_version(text) == version


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home, other = fake_java(tmp_path / "a", "21.0.1"), fake_java(tmp_path / "b", "17.0.1")
    assert find_java({"JAVA_HOME": str(tmp_path / "a"), "PATH": f"{other.parent}"}) == home


def test_an_old_java_home_is_passed_over(tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "1.8.0_401")
    good = fake_java(tmp_path / "good", "17.0.1")
    assert find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(good.parent)}) == good


def test_no_java_is_found_where_none_is(tmp_path: Path) -> None:
    assert find_java({"JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)}) is None
    assert find_java({"PATH": ""}) is None
