"""Where a client connects: the order of what says it, and what an error reports of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from ottla.client.wire.destination.destination import (
    Destination,
    Given,
    NamedCluster,
    choose_destination,
    completed_by_file,
)
from ottla.client.wire.errors import BadAddress
from ottla.model.errors import OttlaError

LIVE: Final = NamedCluster("live:1", Path("/live.properties"))
TEST: Final = NamedCluster("test:2", Path("/test.properties"))
LOCAL: Final = NamedCluster("127.0.0.1:3", None)
SECURED: Final = NamedCluster("127.0.0.1:4", Path("/secured.properties"))


class Known:
    """Profiles live and test."""

    def __init__(self, in_use: str | None = None, local: NamedCluster | None = None) -> None:
        self.in_use = in_use
        self.local = local

    def profile(self, name: str) -> NamedCluster:
        try:
            return {"live": LIVE, "test": TEST}[name]
        except KeyError:
            raise OttlaError(f"there is no profile {name}") from None

    def profile_in_use(self) -> str | None:
        return self.in_use

    def of_directory(self) -> NamedCluster | None:
        return self.local


class Unread(Known):
    """Files that must not be read."""

    def profile_in_use(self) -> str | None:
        raise AssertionError("the file of the profile in use was read")

    def of_directory(self) -> NamedCluster | None:
        raise AssertionError("the directory was read")


EVERYTHING: Final[Mapping[str, str]] = {
    "OTTLA_BOOTSTRAP_SERVERS": "ottla:5",
    "KAFKA_BOOTSTRAP_SERVERS": "kafka:6",
    "OTTLA_PROFILE": "live",
}


def without(*names: str) -> dict[str, str]:
    return {name: text for name, text in EVERYTHING.items() if name not in names}


@pytest.mark.parametrize(
    ("given", "environment", "known", "bootstrap", "origin"),
    [
        (Given("typed:9", "typed", "live"), EVERYTHING, Known("test", LOCAL), "typed:9", "typed"),
        (Given(profile="test"), EVERYTHING, Known("live", LOCAL), "test:2", "that of the profile test (--profile)"),
        (Given(), EVERYTHING, Known("test", LOCAL), "ottla:5", "that of OTTLA_BOOTSTRAP_SERVERS"),
        (
            Given(),
            without("OTTLA_BOOTSTRAP_SERVERS"),
            Known("test", LOCAL),
            "kafka:6",
            "that of KAFKA_BOOTSTRAP_SERVERS",
        ),
        (
            Given(),
            {"OTTLA_PROFILE": "live"},
            Known("test", LOCAL),
            "live:1",
            "that of the profile live (OTTLA_PROFILE)",
        ),
        (Given(), {}, Known("test", LOCAL), "test:2", "that of the profile test, which is in use"),
        (Given(), {}, Known(None, LOCAL), "127.0.0.1:3", "that of the cluster in this directory"),
        (Given(), {}, Known(), "localhost:9092", "the default"),
    ],
)
def test_address_comes_from_the_first_place_that_has_one(
    given: Given, environment: Mapping[str, str], known: Known, bootstrap: str, origin: str
) -> None:
    found = choose_destination(given, environment, known)
    assert (found.bootstrap, found.origin) == (bootstrap, origin)
    assert found.unreachable_hint is not None
    assert found.unreachable_hint.startswith(f"the address is {origin}; ")


def test_empty_variable_does_not_count() -> None:
    environment = dict.fromkeys(EVERYTHING, "")
    assert choose_destination(Given(), environment, Known()).origin == "the default"


@pytest.mark.parametrize(("given", "environment"), [(Given("a:1"), {}), (Given(), EVERYTHING)])
def test_files_are_read_only_where_neither_flags_nor_variables_have_the_address(
    given: Given, environment: Mapping[str, str]
) -> None:
    choose_destination(given, environment, Unread())


@pytest.mark.parametrize(
    ("given", "environment", "known", "path"),
    [
        (Given(command_config=Path("/typed"), profile="live"), {"OTTLA_COMMAND_CONFIG": "/env"}, Known(), "/typed"),
        (Given("typed:9", profile="live"), {"OTTLA_COMMAND_CONFIG": "/env"}, Known(), "/live.properties"),
        (Given(), {"OTTLA_COMMAND_CONFIG": "/env"}, Known("live"), "/env"),
        (Given(), {}, Known("live"), "/live.properties"),
        (Given(), {}, Known(None, SECURED), "/secured.properties"),
    ],
)
def test_security_settings_come_from_the_first_file_that_is_named(
    given: Given, environment: Mapping[str, str], known: Known, path: str
) -> None:
    assert choose_destination(given, environment, known).client_properties == Path(path)


@pytest.mark.parametrize("given", [Given("typed:9"), Given()])
def test_credentials_of_a_profile_in_use_are_not_sent_to_another_address(given: Given) -> None:
    environment = {"KAFKA_BOOTSTRAP_SERVERS": "elsewhere:1"}
    assert choose_destination(given, environment, Known("live", SECURED)).client_properties is None


FILE: Final = Given("file:7", "of the file", command_config=Path("/file.properties"))


@pytest.mark.parametrize(
    ("typed", "of_file", "bootstrap", "path"),
    [
        (Given(), Given("file:7", profile="live"), "file:7", "/live.properties"),
        (Given(), FILE, "file:7", "/file.properties"),
        (Given(command_config=Path("/typed")), FILE, "file:7", "/typed"),
        (Given(profile="test"), Given("file:7"), "test:2", "/test.properties"),
        (Given(profile="test"), FILE, "test:2", "/test.properties"),
        (Given(profile="test", command_config=Path("/typed")), FILE, "test:2", "/typed"),
        (Given("typed:9"), Given(profile="live"), "typed:9", None),
        (Given("typed:9"), FILE, "typed:9", "/file.properties"),
        (
            Given("typed:9", profile="live"),
            Given(command_config=Path("/file.properties")),
            "typed:9",
            "/live.properties",
        ),
    ],
)
def test_cluster_of_a_file_of_flags_does_not_mix_with_a_typed_one(
    typed: Given, of_file: Given, bootstrap: str, path: str | None
) -> None:
    found = choose_destination(completed_by_file(typed, of_file), {}, Known())
    assert (found.bootstrap, found.client_properties) == (bootstrap, None if path is None else Path(path))


def test_profile_that_does_not_exist_is_an_error_and_no_other_address_is_used() -> None:
    with pytest.raises(OttlaError, match="no profile gone"):
        choose_destination(Given(), {"OTTLA_PROFILE": "gone"}, Known("test", LOCAL))


def test_text_that_is_no_address_is_reported_with_its_origin() -> None:
    with pytest.raises(BadAddress, match=r"'http://x' is a URL.*: the address is that of OTTLA_BOOTSTRAP_SERVERS"):
        choose_destination(Given(), {"OTTLA_BOOTSTRAP_SERVERS": "http://x"}, Known()).addresses()


def test_argument_of_a_program_has_no_origin() -> None:
    assert Destination("a:1").unreachable_hint is None
    with pytest.raises(BadAddress) as refused:
        Destination("a:x").addresses()
    assert str(refused.value) == "'a:x' is not an address"
