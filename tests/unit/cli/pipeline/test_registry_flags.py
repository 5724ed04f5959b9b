"""Flags and settings of `ottla registry serve` that contradict each other are refused before anything is opened."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.cli.pipeline.registry import serve


def outcome(path: Path, settings: str, *flags: str) -> Result:
    path.write_text(settings)
    return CliRunner().invoke(serve, ["--config", str(path), *flags])


@pytest.mark.parametrize(
    ("settings", "flags", "problem"),
    [
        ("authentication.method=BASIC", ["--listen", "127.0.0.1:0"], "the registry connects to it by PLAINTEXT"),
        ("authentication.method=basic", ["--listen", "127.0.0.1:0"], "authentication.method: 'basic' is not accepted"),
        ("authentication.method=BASIC", ["--listen", "192.0.2.1:0"], "would be readable on the network"),
        ("", ["--listen", "https://192.0.2.1:0"], "anyone who reaches port 0 could change them"),
        ("", ["--listen", "https://127.0.0.1:0"], "needs a certificate and its private key"),
        ("listener.name.registry.authentication.roles=write", [], "no client can log in"),
    ],
)
def test_settings_that_protect_nothing_are_refused(
    tmp_path: Path, settings: str, flags: list[str], problem: str
) -> None:
    result = outcome(tmp_path / "registry.properties", settings, *flags)
    assert problem in str(result.exception)
    assert getattr(result.exception, "hint", None)
