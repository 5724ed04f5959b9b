"""`ssl.principal.mapping.rules`: a certificate's distinguished name as a principal's name (KIP-371)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Self

from ottla.model.errors import ConfigError

_DEFAULT: Final = "DEFAULT"
_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|\Z)")
_SETTING: Final = "ssl.principal.mapping.rules"
_HINT: Final = "write RULE:^CN=(.*?),.*$/$1/L, DEFAULT, with commas between; a slash in them is \\/"
# Java's references to groups: `$1`; a backslash takes the next character as it is.
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d)")

# A dot, which does not match the end of a line; in Java there are more of them.  Not one that is escaped or in a class.
_DOT: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\\\]])*\]|(\.)", re.DOTALL)
_NO_LINE_END: Final = "[^\n\r\u0085\u2028\u2029]"


class PrincipalRule(NamedTuple):
    """A name that the pattern matches as a whole becomes the replacement; without a pattern, itself."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    letter_case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        # As in Kafka each place is replaced where the pattern is found, which may be less than the name as a whole.
        text = self.pattern.sub(self._expanded, name)
        return {"L": text.lower, "U": text.upper}.get(self.letter_case, lambda: text)()

    def _expanded(self, match: re.Match[str]) -> str:
        return _REFERENCE.sub(lambda found: found[1] or match[int(found[2])] or "", self.replacement)


class PrincipalMapping(NamedTuple):
    rules: tuple[PrincipalRule, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises `ConfigError`."""
        rules: list[PrincipalRule] = []
        position, text = 0, text.strip()
        while position < len(text):
            found = _RULE.match(text, position)
            if found is None:
                raise ConfigError(f"{_SETTING}: {text[position:]!r} does not start with a rule", hint=_HINT)
            rules.append(_rule(found))
            position = found.end()
        return cls(tuple(rules) or (PrincipalRule(None),))

    def name_of(self, distinguished_name: str) -> str | None:
        """The name of the first rule that matches; None: no rule does."""
        for rule in self.rules:
            name = rule.apply(distinguished_name)
            if name is not None:
                return name
        return None


def _with_java_dots(pattern: str) -> str:
    return _DOT.sub(lambda found: _NO_LINE_END if found[1] else found[0], pattern)


def _rule(found: re.Match[str]) -> PrincipalRule:
    if found[1] == _DEFAULT:
        return PrincipalRule(None)
    try:
        # As in Java `\w` is no letter beyond ASCII, which may look like another.
        pattern = re.compile(_with_java_dots(found[2].replace("\\/", "/")), re.ASCII)
    except re.error as error:
        raise ConfigError(f"{_SETTING}: {found[2]!r} is not a regular expression: {error}", hint=_HINT) from None
    groups = [int(reference[2]) for reference in _REFERENCE.finditer(found[3]) if reference[2]]
    if any(group > pattern.groups for group in groups):
        raise ConfigError(f"{_SETTING}: {found[3]!r} refers to a group that the pattern does not have", hint=_HINT)
    return PrincipalRule(pattern, found[3].replace("\\/", "/"), found[4])
