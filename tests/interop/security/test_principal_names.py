"""Distinguished names and `ssl.principal.mapping.rules`: Ottla's text is that of Java and of Apache Kafka's class."""

from __future__ import annotations

import base64
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from ottla.security.certificate import Certificate
from ottla.security.principal_mapping import PrincipalMapping
from tests.der_names import UTF8, Attribute, certificate_of, name_of
from tests.peers.cache import BROUGHT_WITHIN_S
from tests.peers.kafka_jars import TOOLS_POM, KafkaUnavailable, classpath, find_java

pytestmark = [pytest.mark.interop, pytest.mark.timeout(BROUGHT_WITHIN_S + 120)]

PROGRAM: Final = Path(__file__).with_name("PrincipalNames.java")
NAMES_COUNT: Final = 400
SEED: Final = 20_261_127
KINDS: Final = (
    "2.5.4.3",
    "2.5.4.11",
    "2.5.4.10",
    "2.5.4.6",
    "2.5.4.9",
    "0.9.2342.19200300.100.1.1",
    "2.5.4.5",
    "1.2.3.4",
)
T61, BMP, UNIVERSAL = 0x14, 0x1E, 0x1C
# The others are printable, IA5 and general strings.
TAGS: Final = (UTF8, UTF8, UTF8, 0x13, T61, 0x16, 0x1B, UNIVERSAL)
ENCODINGS: Final = {UTF8: "utf-8", UNIVERSAL: "utf-32-be"}
PIECES: Final = (
    "a",
    "B",
    " ",
    "  ",
    ",",
    "=",
    "+",
    "#",
    '"',
    "\\",
    "<",
    ">",
    ";",
    "\0",
    "\n",
    "\r",
    "é",
    "\u2028",
    "😀",
    "/",
)
RULES: Final = (
    "DEFAULT",
    "RULE:^CN=(.*?),.*$/$1/",
    "RULE:^CN=(\\w+).*$/$1/L",
    "RULE:^.*UID=([^,+]*).*$/$1@uid/U, DEFAULT",
    "RULE:CN=(.*?),OU=(.*?)/$2@$1/,RULE:^(.*)$/[$1]/",
    "RULE:.*/x/",
)


class Case(NamedTuple):
    rules: str
    name: Sequence[Sequence[Attribute]]


def random_cases() -> list[Case]:
    chance = random.Random(SEED)

    def attribute() -> Attribute:
        text = "".join(chance.choices(PIECES, k=chance.randint(1, 6)))
        tag = chance.choice(TAGS)
        data = text.encode(ENCODINGS.get(tag, "ascii"), errors="replace")
        return Attribute(chance.choice(KINDS), data, tag)

    return [
        Case(
            chance.choice(RULES),
            [[attribute() for _ in range(chance.choice((1, 1, 1, 2)))] for _ in range(chance.randint(1, 3))],
        )
        for _ in range(NAMES_COUNT)
    ]


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def names_of_java(cases: Sequence[Case]) -> list[tuple[str, str | None]]:
    try:
        command = [find_java(), "-XX:TieredStopAtLevel=1", "-cp", classpath(TOOLS_POM), str(PROGRAM)]
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka is not available: {reason}")
    lines = [f"{encoded(case.rules.encode())}\t{encoded(name_of(case.name))}\n" for case in cases]
    done = subprocess.run(command, input="".join(lines), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return [
        (base64.b64decode(name).decode(), None if mapped == "-" else base64.b64decode(mapped).decode())
        for name, mapped in rows
    ]


def test_names_and_principals_are_those_of_java() -> None:
    cases = random_cases()
    found = []
    for case in cases:
        name = Certificate.parse(certificate_of(case.name)).subject
        found.append((name, PrincipalMapping.parse(case.rules).name_of(name)))
    differing = [
        (case, ours, theirs)
        for case, ours, theirs in zip(cases, found, names_of_java(cases), strict=True)
        if ours != theirs
    ]
    assert differing == [], f"{len(differing)} of {len(cases)}"


@pytest.mark.parametrize(
    ("attribute", "name", "of_java"),
    [
        (Attribute("2.5.4.3", "eve".encode("utf-16-be"), BMP), "CN=eve", "CN=\\00e\\00v\\00e"),
        (Attribute("2.5.4.3", "René".encode("latin-1"), T61), "CN=René", "CN=Ren\ufffd"),
    ],
)
def test_names_that_java_takes_for_utf_8_are_read_in_their_own_encoding(
    attribute: Attribute, name: str, of_java: str
) -> None:
    """Different names have one text there."""
    assert Certificate.parse(certificate_of([[attribute]])).subject == name
    assert names_of_java([Case("DEFAULT", [[attribute]])]) == [(of_java, of_java)]
