"""The lines of the log, each declared once: its logger and its level. The levels change while the broker
runs, as those of Kafka's broker loggers (KIP-412): a logger without a level of its own has that of `root`.

    trace(event) ─► its logger ─► the level in force ─► written, or dropped
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

import msgspec


class Level(IntEnum):
    """Kafka's names with the numbers of Python's logging."""

    TRACE = 5
    DEBUG = 10
    INFO = 20
    WARN = 30
    ERROR = 40
    FATAL = 50


TRACE, DEBUG, INFO, WARN, ERROR, FATAL = Level
ROOT: Final = "root"


class Event(msgspec.Struct, frozen=True):
    """What a line is: the logger that writes it, and how severe it is."""

    logger: str
    level: Level


_DECLARED: Final[dict[str, dict[Level, str]]] = {
    "sparklog.audit": {INFO: "audit", WARN: "audit-lines-lost audit-topic-waits"},
    "sparklog.broker": {
        INFO: "broker-ready controlled-shutdown-begins controlled-shutdown-ends http-listening joining "
        "logger-level-changed ready settings-changed settings-reloaded stopped stopping",
        WARN: "broker-still-fenced descriptor-limit-low envelope-refused feature-level-lowered "
        "job-out-of-memory lines-dropped out-of-descriptors out-of-memory topic-settings-unreadable "
        "warning",
        ERROR: "refused settings-not-reloaded",
        FATAL: "halt",
    },
    "sparklog.cluster": {
        INFO: "node-restart-wanted node-restarted node-stopped",
        WARN: "node-ended node-killed supervisor-socket-failed",
        ERROR: "node-not-started",
    },
    "sparklog.controller": {INFO: "metadata-change metadata-snapshot", WARN: "metadata-snapshot-failed"},
    "sparklog.coordinator": {
        INFO: "coordinator-loaded coordinator-unloaded group-deleted transaction-fenced "
        "transaction-rolled-forward",
        WARN: "coordinator-append-refused coordinator-behind-log markers-failed "
        "transaction-abandoned transaction-timed-out",
        ERROR: "coordinator-load-failed decisions-unread",
    },
    "sparklog.log": {
        INFO: "disk-no-longer-full log-cleaned logs-recovered metadata-log-begins segments-deleted",
        WARN: "checkpoint-beyond-log checkpoint-damaged disk-ballast-halved file-damaged file-missing "
        "file-rebuilt file-removed file-unknown log-cut log-directory-not-closed-cleanly log-hole "
        "log-uncleanable removal-failed",
        ERROR: "batch-unreadable disk-cannot-add-files disk-full log-directory-offline partition-offline",
    },
    "sparklog.network": {
        DEBUG: "connection-ended connection-opened",
        WARN: "cannot-accept connection-displaced connection-refused connections-full link-refused "
        "reply-aborted session-closed",
    },
    "sparklog.raft": {
        INFO: "raft-leader-removed raft-role raft-snapshot-installed raft-truncated raft-voters",
        WARN: "metadata-log-awaits-room metadata-log-not-closed-cleanly raft-change-refused "
        "raft-divergence-unclear raft-records-refused raft-resigned",
        ERROR: "metadata-log-failed metadata-snapshot-damaged raft-committed-records-lost raft-two-leaders",
    },
    "sparklog.replica": {
        INFO: "interrupted-move-resolved move-cancelled moved-log-removed replica-moved replica-moving "
        "replica-truncated",
        WARN: "isr-not-changed partition-has-no-directory replica-begins-anew replica-begins-empty "
        "replica-fetch-failed stray-log-set-aside",
        ERROR: "replica-records-refused",
    },
    "sparklog.requests": {
        INFO: "otlp-export-resumed",
        WARN: "otlp-export-failed otlp-unavailable slow-request",
    },
    "sparklog.security": {
        INFO: "certificates-changed",
        WARN: "http-users-ignored jwks-unreadable sasl-settings-ignored tls-handshake-failed token-refused "
        "unauthenticated-closed",
        ERROR: "certificates-refused",
    },
}

EVENTS: Final = {
    name: Event(logger, level)
    for logger, by_level in _DECLARED.items()
    for level, names in by_level.items()
    for name in names.split()
}
"""By the name of the event, which is the first word of its line."""

LOGGERS: Final = (*_DECLARED, ROOT)


class Loggers:
    """The levels of one broker, as a restart forgets them."""

    def __init__(self) -> None:
        self._own: dict[str, Level] = {ROOT: INFO}

    def level_of(self, logger: str) -> Level:
        """The level in force."""
        return self._own.get(logger) or self._own[ROOT]

    def is_written(self, event: Event) -> bool:
        """Whether the level in force lets a line through."""
        return event.level >= self.level_of(event.logger)

    def levels(self) -> Mapping[str, Level]:
        """The level in force of each logger."""
        return {logger: self.level_of(logger) for logger in LOGGERS}

    def set(self, logger: str, level: Level | None) -> None:
        """Give a logger a level of its own; None takes it away, which `root` cannot do without."""
        assert logger in LOGGERS
        if level is not None:
            self._own[logger] = level
        else:
            assert logger != ROOT
            self._own.pop(logger, None)
