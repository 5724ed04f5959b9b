"""Rules that map a certificate's name to a principal, with the examples of KIP-371."""

from __future__ import annotations

import pytest

from ottla.model.errors import ConfigError
from ottla.security.principal_mapping import PrincipalMapping

DUKE = "CN=duke,OU=ServiceUsers,O=Org,C=US"
RULES = "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),OU=(.*?),O=(.*?)$/$1@$2/L,DEFAULT"


@pytest.mark.parametrize(
    ("rules", "name", "mapped"),
    [
        ("DEFAULT", DUKE, DUKE),
        ("", DUKE, DUKE),
        (RULES, DUKE, "duke"),
        (RULES, "CN=Duke,OU=SME,O=mycp", "duke@sme"),
        (RULES, "CN=other", "CN=other"),
        ("RULE:^CN=(.*?),.*$/$1/U", DUKE, "DUKE"),
        ("RULE:^CN=(.*?),.*$/user\\/$1/", DUKE, "user/duke"),
        ("RULE:^CN=duke$/admin/", DUKE, None),
        # As Java's replaceAll, which replaces each place where the pattern is found.
        ("RULE:CN=(.*?),OU=(.*?)/$2@$1/", "CN=duke,OU=ops", "@dukeops"),
        ("RULE:.*/x/", DUKE, "xx"),
        # Letters beyond ASCII, which may look like others, and ends of lines.
        ("RULE:^CN=(\\w+)$/$1/,DEFAULT", "CN=\u0430dmin", "CN=\u0430dmin"),
        ("RULE:^CN=(.*)$/$1/", "CN=a\rb", None),
        ("RULE:^CN=(.*)$/$1/", "CN=a\u2028b", None),
        ("RULE:^CN=([^,]*)$/$1/", "CN=a\rb", "a\rb"),
        ("RULE:^CN=([.]\\.)$/$1/", "CN=..", ".."),
        # The pattern must match all of the name, or a longer name would pass for a shorter one.
        ("RULE:CN=admin/admin/", "CN=admin\\,O\\=x", None),
    ],
)
def test_first_rule_that_matches_the_whole_name_applies(rules: str, name: str, mapped: str | None) -> None:
    assert PrincipalMapping.parse(rules).name_of(name) == mapped


@pytest.mark.parametrize("rules", ["RULE:", "RULE:a", "RULE:a/b", "RULE:a/b/X", "default", "RULE:(/b/", "RULE:a/$1/"])
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules") as caught:
        PrincipalMapping.parse(rules)
    assert caught.value.hint
