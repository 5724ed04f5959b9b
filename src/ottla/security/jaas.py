"""Kafka's `sasl.jaas.config`: a login module, a flag and options, ended by a semicolon."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.model.errors import ConfigError

_TOKEN: Final = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s="';]+)|([=;]))""", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_HINT: Final = (
    'write it as org.apache.kafka.common.security.scram.ScramLoginModule required username="..." password="...";'
)


class JaasLogin(NamedTuple):
    """`module` is the class without its package: libraries relocate Kafka's packages."""

    module: str
    options: Mapping[str, str]


def parse_jaas(text: str) -> JaasLogin:
    """Raises ConfigError, which quotes nothing: the text holds a password."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[1].lower() not in _FLAGS or tokens[-1] != ";" or ";" in tokens[:-1]:
        raise ConfigError("sasl.jaas.config is not one login module with its flag and a semicolon", hint=_HINT)
    fields = tokens[2:-1]
    if len(fields) % 3 or any(sign != "=" for sign in fields[1::3]):
        raise ConfigError("sasl.jaas.config has an option that is not name=value", hint=_HINT)
    names = fields[0::3]
    if len(set(names)) != len(names):
        raise ConfigError("sasl.jaas.config names an option twice", hint=_HINT)
    return JaasLogin(tokens[0].rpartition(".")[2], dict(zip(names, fields[2::3], strict=True)))


def _tokens(text: str) -> list[str]:
    """Quoted texts without quotes and escapes; a quoted sign is indistinguishable from the sign, and both are refused
    where a value is needed."""
    found: list[str] = []
    position = 0
    end = len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position, end)
        if match is None:
            raise ConfigError("sasl.jaas.config has a quotation mark without its partner", hint=_HINT)
        double, single, bare, sign = match.groups()
        quoted = double if double is not None else single
        found.append(_ESCAPE.sub(r"\1", quoted) if quoted is not None else bare or sign)
        position = match.end()
    return found
