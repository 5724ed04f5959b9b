"""Flags that several verbs have, and how their values are read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import click

from ottla.cli.output import FORMAT, Format, say
from ottla.model.errors import OttlaError

if TYPE_CHECKING:
    from ottla.client.wire.cluster import Cluster
    from ottla.client.wire.destination.destination import Bootstrap, Destination, Given
    from ottla.client.wire.security.settings import ClientSecurity
    from ottla.client.wire.waiting import Waiting


F = TypeVar("F", bound=Callable[..., object])

# At a terminal no user waits a minute for an absent broker.
CALL_TIMEOUT_MS: Final = 15_000
UNKNOWN_TOPIC_WAIT_MS: Final = 1_000
# Where flags leave their values for the functions below, and these the destination of the running verb.
_COMMAND_CONFIG: Final = "ottla.command-config"
_PROFILE: Final = "ottla.profile"
_BOOTSTRAP: Final = "ottla.bootstrap"
_DESTINATION: Final = "ottla.destination"
_IS_JSON: Final = "ottla.json"

_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})


class RenamedOption(click.Option):
    """A flag that is accepted by its names of earlier releases, too; neither help nor a completion shows these."""

    def __init__(self, *given: Any, formerly: Sequence[str], **settings: Any) -> None:
        super().__init__(*given, **settings)
        self.formerly: Final = tuple(formerly)

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        shown = self.opts
        self.opts = [*shown, *self.formerly]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


class Flag(Protocol):
    """A decorator of a command's function."""

    def __call__(self, function: F, /) -> F: ...


def flags(*every: Flag) -> Flag:
    """Several flags as one, in the order of the help page."""

    def add(function: F) -> F:
        for flag in reversed(every):
            function = flag(function)
        return function

    return add


def _keep_format(context: click.Context, _parameter: click.Parameter, value: str) -> bool:
    context.meta[FORMAT] = Format.JSON if context.meta.get(_IS_JSON) else Format(value)
    return context.meta[FORMAT] is not Format.TABLE


def _keep_is_json(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    context.meta[_IS_JSON] = value


def output_flag(about: str = "One object.") -> Flag:
    """`as_data`: whether `data_lines` shows the verb's data.  `about`: what an object is of, and how many there are."""
    return flags(
        click.option(
            "--output",
            "-o",
            "as_data",
            type=click.Choice([each.value for each in Format]),
            default=Format.TABLE.value,
            callback=_keep_format,
            show_default=True,
            help=f"For people; or as JSON or YAML: {about[0].lower()}{about[1:]}",
        ),
        click.option(
            "--json",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_keep_is_json,
            help="The same as --output json.",
        ),
    )


def json_flag(about: str) -> Flag:
    return click.option("--json", "as_json", is_flag=True, help=about)


def listen_flag(default: str, metavar: str = "HOST:PORT") -> Flag:
    return click.option(
        "--listen",
        metavar=metavar,
        default=default,
        show_default=True,
        help="Address to listen on; port 0 selects a free one.",
    )


def _keep(name: str) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    def keep(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
        if value is not None:
            assert parameter.name is not None
            is_typed = context.get_parameter_source(parameter.name) is click.core.ParameterSource.COMMANDLINE
            context.meta[name] = (value, is_typed)
        return value

    return keep


def complete_profiles(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """For the shell."""
    from ottla.client.wire.destination.profiles import ProfileFolder, profiles_folder

    return [name for name in ProfileFolder(profiles_folder(os.environ)).names() if name.startswith(incomplete)]


def _choose(context: click.Context, parameter: click.Parameter, value: str | None) -> str:
    _keep(_BOOTSTRAP)(context, parameter, value)
    return _destination(context).bootstrap


def _choose_if_given(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    return None if value is None else _choose(context, parameter, value)


insecure_listen_flag: Final = click.option(
    "--insecure-listen",
    is_flag=True,
    help="Listen on an address that other machines can reach, without authentication or encryption.",
)
# Read by `given_security`: passwords are never arguments, which other users can see.
command_config_flag: Final = click.option(
    "--command-config",
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=_keep(_COMMAND_CONFIG),
    help="TLS and login of the connections, as a client.properties file.  [default: as OTTLA_... variables say]",
)
_profile_flag: Final = click.option(
    "--profile",
    metavar="NAME",
    is_eager=True,
    expose_value=False,
    callback=_keep(_PROFILE),
    shell_complete=complete_profiles,
    help="Connect as this profile says (`ottla profile`).  [default: OTTLA_PROFILE, else the one in use]",
)


def _bootstrap_flag(callback: Callable[[click.Context, click.Parameter, str | None], str | None]) -> Flag:
    return flags(
        click.option(
            "--bootstrap-server",
            "-b",
            "bootstrap",
            callback=callback,
            metavar="HOST:PORT,...",
            help="Bootstrap brokers.  [default: those of OTTLA_BOOTSTRAP_SERVERS, else of a profile, else of "
            "./ottla-cluster, else localhost:9092]",
        ),
        _profile_flag,
        command_config_flag,
    )


bootstrap_flag: Final = _bootstrap_flag(_choose)
# Of verbs that may find the brokers elsewhere, too: None unless it is given; then `default_bootstrap` chooses.
optional_bootstrap_flag: Final = _bootstrap_flag(_choose_if_given)
property_flag: Final = click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="Like Kafka's console tools; may be repeated.",
)


def default_bootstrap() -> str:
    """The addresses of the running verb, of which `optional_bootstrap_flag` names none.  Raises OttlaError."""
    return _destination(click.get_current_context()).bootstrap


def given_security() -> ClientSecurity:
    """Of the running verb's file, `command_config_path`, completed by OTTLA_... variables.

    Raises ConfigError.
    """
    from ottla.client.wire.security.setting_names import read_client_properties, security_of_properties

    path = command_config_path()
    return security_of_properties({} if path is None else read_client_properties(Path(path)), os.environ)


def command_config_path() -> str | None:
    """The file of --command-config, of a profile, or of OTTLA_COMMAND_CONFIG."""
    context = click.get_current_context(silent=True)
    path = _running_destination(context).client_properties
    return None if path is None else str(path)


def _running_destination(context: click.Context | None) -> Destination:
    """With the addresses, if the verb has them from here."""
    if context is not None and _DESTINATION in context.meta:
        found: Destination = context.meta[_DESTINATION]
        return found
    from ottla.client.wire.destination.destination import Given
    from ottla.client.wire.destination.found import find_destination

    # An address from elsewhere: neither a profile in use nor this directory has the settings for it.
    given = Given("") if context is None else _given(context)
    return find_destination(given._replace(bootstrap=given.bootstrap or ""))


def _destination(context: click.Context) -> Destination:
    """The rule of `ottla.client.wire.destination`, once for each verb that runs."""
    if _DESTINATION not in context.meta:
        from ottla.client.wire.destination.found import find_destination

        context.meta[_DESTINATION] = find_destination(_given(context))
    found: Destination = context.meta[_DESTINATION]
    return found


def _given(context: click.Context) -> Given:
    from ottla.client.wire.destination.destination import completed_by_file

    typed = _kept(context, "that of --bootstrap-server", is_typed=True)
    of_file = _kept(context, "that of bootstrap-server in the file of --config", is_typed=False)
    return completed_by_file(typed, of_file)


def _kept(context: click.Context, origin: str, *, is_typed: bool) -> Given:
    from ottla.client.wire.destination.destination import Given

    def value(name: str) -> str | None:
        found: tuple[str, bool] | None = context.meta.get(name)
        return found[0] if found is not None and found[1] is is_typed else None

    command_config = value(_COMMAND_CONFIG)
    return Given(value(_BOOTSTRAP), origin, value(_PROFILE), None if command_config is None else Path(command_config))


def source_options(options: Mapping[str, str]) -> dict[str, str]:
    """`options` of the data source, and the file of `--command-config`: each process of Spark reads it for itself.

    Raises ConfigError for what is wrong with it here, before Spark starts.
    """
    given_security()
    path = command_config_path()
    return dict(options) if path is None else {"clientPropertiesFile": path, **options}


def tell_of_waiting() -> Waiting:
    """Says on standard error what a verb waits for."""
    from ottla.client.wire.waiting import Waiting

    return Waiting(lambda line: say(line, err=True))


def open_cluster(
    bootstrap: str, client_id: str, waiting: Waiting | None = None, security: ClientSecurity | None = None
) -> Cluster:
    """A reachable cluster: a wrong address fails at once; only later failures are retried, with their reason.

    `security`: None for `given_security`.
    """
    from ottla.client.wire.cluster import Cluster
    from ottla.client.wire.options import ClientOptions

    waiting = waiting or tell_of_waiting()
    options = ClientOptions(
        client_id=client_id,
        call_timeout_ms=CALL_TIMEOUT_MS,
        unknown_topic_wait_ms=UNKNOWN_TOPIC_WAIT_MS,
        security=given_security() if security is None else security,
    )
    cluster = Cluster(with_origin(bootstrap), options, dial=waiting.dial, on_wait=waiting.on_wait)
    cluster.connect_any(cluster.retrying.deadline())
    return cluster


def with_origin(bootstrap: str) -> Bootstrap:
    """The running verb's addresses with where they came from, for errors; others are returned as they are."""
    context = click.get_current_context(silent=True)
    destination: Destination | None = None if context is None else context.meta.get(_DESTINATION)
    return destination if destination is not None and destination.bootstrap == bootstrap else bootstrap


def add_origin(context: click.Context, error: OttlaError) -> None:
    """No broker was reached, and the error says no more than that: where its address came from is the hint."""
    destination: Destination | None = context.meta.get(_DESTINATION)
    if destination is None or destination.unreachable_hint is None:
        return
    from ottla.client.wire.errors import BrokerUnreachable

    if error.hint == BrokerUnreachable.hint:
        error.hint = destination.unreachable_hint


def check_reachable(bootstrap: str, client_id: str, flag: str, security: ClientSecurity) -> None:
    """A wrong address fails at once, and the error names its flag."""
    from ottla.client.wire.errors import BrokerUnreachable, ClientError

    try:
        open_cluster(bootstrap, client_id, security=security).close()
    except ClientError as error:
        if not error.is_retriable:
            raise
        hint = f"is the broker running, and is {flag} right?"
        where = flag if bootstrap in str(error) else f"{flag} {bootstrap}"
        raise BrokerUnreachable(f"{where}: {error}", hint=hint) from error


def one_name(kind: str, argument: str | None, option: str | None) -> str:
    """The name of a topic or a group, given as an argument or, as in Kafka's tools, with a flag."""
    if argument is not None and option is not None and argument != option:
        raise click.UsageError(f"Two {kind}s are named: {argument} and {option}.")
    name = argument if argument is not None else option
    if not name:
        raise click.UsageError(f"Name a {kind}.")
    return name


def all_names(arguments: Iterable[str], options: Iterable[str]) -> list[str]:
    """The names given as arguments or with a flag, each once."""
    return list(dict.fromkeys([*arguments, *options]))


def assignments(texts: Iterable[str], flag: str) -> dict[str, str]:
    """`KEY=VALUE` texts as a mapping; a value may hold further equal signs."""
    found: dict[str, str] = {}
    for text in texts:
        name, equal_sign, value = text.partition("=")
        if not equal_sign or not name:
            raise click.UsageError(f"{flag} takes KEY=VALUE, not {text!r}.")
        if found.get(name, value) != value:
            raise click.UsageError(f"{flag} names {name} twice, as {found[name]!r} and as {value!r}.")
        found[name] = value
    return found


def check_names(found: Mapping[str, str], known: Iterable[str], flag: str) -> None:
    from ottla.model.nearest import nearest_name

    known = list(known)
    for name in found:
        if name not in known:
            nearest = nearest_name(name, known)
            ending = f"  Did you mean {nearest}?" if nearest is not None else f"  It knows {', '.join(known)}."
            raise click.UsageError(f"{flag} does not know {name!r}.{ending}")


def truth(name: str, text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise click.UsageError(f"{name} is true or false, not {text!r}.")


# The metavar of a flag that `duration_ms` reads; TIME is that of a moment.
DURATION: Final = "DURATION"
_ISO_DURATION: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.\d+)?S)?)?\Z", re.ASCII | re.IGNORECASE
)
_SHORT_DURATION: Final = re.compile(r"(\d+)(ms|s|m|h|d)\Z", re.ASCII)
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DURATION_MS_MAX: Final = 10**15


def moment_ms(text: str, flag: str) -> int:
    """ISO 8601 as ms since the epoch; without a zone it is UTC, as in Kafka's tools.  Raises UsageError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"{flag} is a moment like 2026-03-01T12:00:00 (UTC) or 2026-03-01T12:00:00+02:00, not {text!r}."
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def duration_ms(text: str, flag: str) -> int:
    """ISO 8601 (`P1DT2H`) or a number with its unit (`90m`).  Raises UsageError."""
    short = _SHORT_DURATION.match(text)
    iso = _ISO_DURATION.match(text)
    if short is not None:
        found = int(short[1]) * _UNIT_MS[short[2]]
    elif iso is not None and any(iso.groups()):
        days, hours, minutes, seconds = (int(part or 0) for part in iso.groups())
        found = ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1_000
    else:
        raise click.UsageError(f"{flag} is a duration like PT1H30M, P2D or 90m, not {text!r}.")
    if found > _DURATION_MS_MAX:
        raise click.UsageError(f"{flag} {text} is longer than any retention.")
    return found
