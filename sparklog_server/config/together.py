"""Checks across broker keys: values that are valid by themselves may contradict each other. `roles` has those
of the quorum.
"""

from typing import Protocol

from .keys import invalid

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


def check_together(settings: _Settings) -> None:
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
