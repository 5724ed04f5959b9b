"""docs/spark.md names every option that the source asks for, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import ottla.spark
from ottla.client.wire.security.setting_names import client_security
from ottla.client.wire.security.settings import PLAINTEXT
from ottla.spark.options import option_reader
from ottla.spark.options.connection import COMMON_WITHOUT_EFFECT
from ottla.spark.options.read_options import READS_WITHOUT_EFFECT
from ottla.spark.options.write_options import WRITES_NOT_OFFERED, WRITES_WITHOUT_EFFECT

PAGE = Path(__file__).resolve().parents[4] / "docs" / "spark.md"
SPARK = Path(ottla.spark.__path__[0])
ASKED = re.compile(r'(?:reader\.(?:text|number|flag|choice)|timeout_ms)\(\s*"([^"]+)"')


def asked_for() -> set[str]:
    source = "".join(
        (SPARK / "options" / name).read_text() for name in ("connection.py", "read_options.py", "write_options.py")
    )
    timestamps = {
        f"{side}{kind}" for side in ("starting", "ending") for kind in ("Offsets", "Timestamp", "OffsetsByTimestamp")
    }
    subscriptions = {"subscribe", "subscribePattern", "assign"}
    # Its former name is accepted and not documented as an option.
    renamed = {"lostOffsetsTopic"}
    return set(ASKED.findall(source)) | timestamps | subscriptions | renamed | set(option_reader.BOOTSTRAP_NAMES)


def test_the_page_names_exactly_the_options_that_there_are() -> None:
    tables = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    documented = {name for line in tables for name in re.findall(r"`([\w.]+)`", line.split("|")[1])}
    assert documented == asked_for()


def test_the_page_names_only_settings_of_security_that_there_are() -> None:
    section = PAGE.read_text().partition("## TLS and SASL")[2].partition("## Options for reading")[0]
    named = {name for name in re.findall(r"kafka\.([a-z.]+[a-z])", section) if not name.startswith("bootstrap")}
    assert len(named) > 15
    # An unknown name is an error; without texts no two names contradict each other.
    assert client_security(dict.fromkeys(named, "")) == PLAINTEXT


def test_the_page_names_what_is_refused() -> None:
    text = PAGE.read_text().lower()
    assert [name for name in {*option_reader.NOT_OFFERED, *WRITES_NOT_OFFERED} if name not in text] == []


def test_the_page_names_what_is_accepted_without_effect() -> None:
    text = PAGE.read_text()
    assert [
        name for name in COMMON_WITHOUT_EFFECT | READS_WITHOUT_EFFECT | WRITES_WITHOUT_EFFECT if f"`{name}`" not in text
    ] == []
