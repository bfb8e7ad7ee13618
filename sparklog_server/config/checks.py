"""Checks across broker keys: values that are valid by themselves may contradict each other, or open an
address to other machines without encryption, authentication or an authorizer. `roles` has the quorum's.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from sparklog.errors import SettingsError

from .keys import invalid
from .listeners import Listener
from .tls_settings import WithTls, tls_of

ALL_DIRECTORIES = "*"


class _Directories(Protocol):
    """The keys that name data directories."""

    @property
    def log_dirs(self) -> tuple[str, ...]: ...
    @property
    def cordoned_log_dirs(self) -> tuple[str, ...]: ...


class _Settings(_Directories, Protocol):
    """The broker keys that are checked against each other."""

    @property
    def broker_session_timeout_ms(self) -> int: ...
    @property
    def broker_heartbeat_interval_ms(self) -> int: ...


def validate_values(settings: _Settings) -> None:
    """Raises SettingsError for the first contradiction."""
    if not settings.log_dirs:
        raise invalid("log.dirs", settings.log_dirs, "values must not be empty")
    check_cordoned(settings)
    if settings.broker_session_timeout_ms < settings.broker_heartbeat_interval_ms:
        raise invalid(
            "broker.session.timeout.ms",
            settings.broker_session_timeout_ms,
            f"it must not be below broker.heartbeat.interval.ms ({settings.broker_heartbeat_interval_ms})",
        )


def check_cordoned(settings: _Directories) -> None:
    """Raises SettingsError if `cordoned.log.dirs` names a directory outside `log.dirs` (KIP-1066)."""
    cordoned = settings.cordoned_log_dirs
    if ALL_DIRECTORIES in cordoned and len(cordoned) > 1:
        raise invalid(
            "cordoned.log.dirs", cordoned, "`*` means all data directories, and nothing may stand beside it"
        )
    strange = [path for path in cordoned if path not in settings.log_dirs]
    if cordoned != (ALL_DIRECTORIES,) and strange:
        raise invalid("cordoned.log.dirs", cordoned, f"not in log.dirs: {', '.join(strange)}")


def is_cordoned(settings: _Directories, path: str) -> bool:
    """Whether a data directory gets no new partitions."""
    return path in settings.cordoned_log_dirs or settings.cordoned_log_dirs == (ALL_DIRECTORIES,)


AUTHORIZER_KEY: Final = "authorizer.class.name"


class Exposed(WithTls, Protocol):
    """The settings that are checked against each other."""

    @property
    def given(self) -> Mapping[str, str]: ...


def check_exposure(settings: Exposed) -> None:
    """Raises SettingsError with the remedy for the first listener that other machines reach and that is not
    secure.
    """
    for listener in settings.listeners:
        if not listener.is_loopback and (missing := _missing(settings, listener)) is not None:
            raise SettingsError(
                f"{listener} accepts every client that can reach this machine: {missing}, or listen on "
                f"127.0.0.1, or start with --insecure if the network itself is trusted"
            )


def _missing(settings: Exposed, listener: Listener) -> str | None:
    """What would make the listener secure, or None."""
    if not listener.is_encrypted:
        return "use SSL or SASL_SSL as its protocol in listener.security.protocol.map"
    if not listener.is_sasl and tls_of(settings, listener.name).ssl_client_auth != "required":
        return "authenticate clients by ssl.client.auth=required, or by the protocol SASL_SSL"
    if not settings.given.get(AUTHORIZER_KEY, "").strip():
        return (
            f"set {AUTHORIZER_KEY}=org.apache.kafka.metadata.authorizer.StandardAuthorizer and super.users, "
            f"so that access rules apply"
        )
    return None
