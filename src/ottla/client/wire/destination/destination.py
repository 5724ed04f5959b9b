"""Where a client connects: one rule for verbs and for programs.

The first of these that is there has the address:

1. what was typed: `--bootstrap-server`, or the argument `bootstrap`
2. the profile that `--profile` names
3. OTTLA_BOOTSTRAP_SERVERS, then KAFKA_BOOTSTRAP_SERVERS
4. the profile that OTTLA_PROFILE names
5. the profile in use, which `ottla profile use` chose
6. the cluster of this directory, ./ottla-cluster, which `ottla cluster up` created
7. localhost:9092

What was typed wins over the environment, and the environment over files, as in rpk, kubectl and the AWS CLI; an address
in the environment wins over a profile's name there, so that `ottla testing run` directs all programs below it to its
broker.  A profile in use wins over the directory: the user chose it, while the directory may be an old one.

The file of a verb's --config has values of flags.  One that is typed wins over the file's, and the file's cluster does
not mix with a typed one: see `completed_by_file`.

The security settings are those of a `client.properties` file: of `--command-config`, of `--profile`, of
OTTLA_COMMAND_CONFIG, or of the profile or the cluster that has the address.  A password of a profile in use is not sent
to an address that came from elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

from ottla.client.wire.address import Address, parse_bootstrap
from ottla.client.wire.errors import BadAddress

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
# The first that is set and not empty counts.
ADDRESS_VARIABLES: Final = ("OTTLA_BOOTSTRAP_SERVERS", "KAFKA_BOOTSTRAP_SERVERS")
PROFILE_VARIABLE: Final = "OTTLA_PROFILE"
COMMAND_CONFIG_VARIABLE: Final = "OTTLA_COMMAND_CONFIG"
_CHECK: Final = "is it right, and is the broker running?"
_START_LOCAL: Final = "`ottla cluster up` starts it again"
_START_ANY: Final = f"start a broker with `ottla serve`, or name one: --bootstrap-server, {ADDRESS_VARIABLES[0]}"


@dataclass(frozen=True, slots=True)
class Destination:
    """Addresses, where they came from, and the file with their security settings.

    `origin` completes "the address is ..."; empty for an argument of a program, whose author knows it.
    """

    bootstrap: str
    origin: str = ""
    advice: str = _CHECK
    client_properties: Path | None = None

    def addresses(self) -> list[Address]:
        """Raises BadAddress."""
        try:
            return parse_bootstrap(self.bootstrap)
        except BadAddress as error:
            if not self.origin:
                raise
            raise BadAddress(f"{error}: the address is {self.origin}", hint=error.hint) from None

    @property
    def unreachable_hint(self) -> str | None:
        """Of an error that no broker was reached there; None for the usual one."""
        return f"the address is {self.origin}; {self.advice}" if self.origin else None


# As callers name a cluster: an address "host:port,host:port", a sequence of such, or one that the rule has chosen.
Bootstrap: TypeAlias = str | Sequence[str] | Destination


class Given(NamedTuple):
    """What the user typed.  `origin`: where `bootstrap` was."""

    bootstrap: str | None = None
    origin: str = ""
    profile: str | None = None
    command_config: Path | None = None


def completed_by_file(typed: Given, of_file: Given) -> Given:
    """What was typed, with what the file of --config adds to it.

    The file's address and profile are of one cluster, a typed address or profile of another: neither gets the
    credentials of the other one.  The file's `command_config` has no address, and is the default for a typed one, as
    OTTLA_COMMAND_CONFIG is; a typed profile has its own.
    """
    if typed.profile is not None:
        return typed
    chosen = of_file if typed.bootstrap is None else typed
    return chosen._replace(command_config=typed.command_config or of_file.command_config)


class NamedCluster(NamedTuple):
    """The addresses and the client.properties file of a profile or of a cluster; None: it has no such file."""

    bootstrap: str
    client_properties: Path | None


class KnownClusters(Protocol):
    """The clusters that the user's files name; read when the rule needs them."""

    def profile(self, name: str) -> NamedCluster:
        """Raises OttlaError where there is none."""

    def profile_in_use(self) -> str | None: ...

    def of_directory(self) -> NamedCluster | None: ...


def choose_destination(given: Given, environment: Mapping[str, str], known: KnownClusters) -> Destination:
    """The rule.  Raises OttlaError for a profile or a cluster's directory that cannot be used."""
    named = None if given.profile is None else known.profile(given.profile)
    chosen = _addressed(given, named, environment, known)
    variable = environment.get(COMMAND_CONFIG_VARIABLE)
    of_environment = Path(variable) if variable else None
    of_profile = None if named is None else named.client_properties
    found = given.command_config or of_profile or of_environment or chosen.client_properties
    return Destination(chosen.bootstrap, chosen.origin, chosen.advice, found)


def _addressed(
    given: Given, named: NamedCluster | None, environment: Mapping[str, str], known: KnownClusters
) -> Destination:
    if given.bootstrap is not None:
        return Destination(given.bootstrap, given.origin)
    if named is not None:
        return _of_profile(f"{given.profile} (--profile)", named)
    for variable in ADDRESS_VARIABLES:
        if environment.get(variable):
            return Destination(environment[variable], f"that of {variable}")
    if name := environment.get(PROFILE_VARIABLE):
        return _of_profile(f"{name} ({PROFILE_VARIABLE})", known.profile(name))
    if name := known.profile_in_use():
        return _of_profile(f"{name}, which is in use", known.profile(name))
    local = known.of_directory()
    if local is not None:
        origin = "that of the cluster in this directory"
        return Destination(local.bootstrap, origin, _START_LOCAL, local.client_properties)
    return Destination(DEFAULT_BOOTSTRAP, "the default", _START_ANY)


def _of_profile(name: str, found: NamedCluster) -> Destination:
    return Destination(found.bootstrap, f"that of the profile {name}", client_properties=found.client_properties)
