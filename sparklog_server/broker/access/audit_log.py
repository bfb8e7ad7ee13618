"""The audit log of this broker: each line goes to the log, and to `__sparklog_audit` if the settings say so.

    decisions of a turn ─► Audit.flush ─► line ─┬─► trace
                                                └─► AuditTopic: queue ─► batch ─► leader of the partition

`audit_topic` has the way to the topic.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from sparklog.model import Instant, Micros, earlier

if TYPE_CHECKING:
    from sparklog_server.broker.access.audit_topic import AuditPort, AuditTopic
    from sparklog_server.security.audit import Audit


class AuditLog:
    """Writes the lines of `Audit`."""

    def __init__(self, context: "AuditPort", audit: "Audit", trace: Callable[..., None]) -> None:
        self._audit = audit
        self._trace = trace
        self._topic: AuditTopic | None = None
        if context.settings.access.sparklog_audit_topic_enable:
            from sparklog_server.broker.access import audit_topic  # at its only use

            self._topic = audit_topic.AuditTopic(context, trace)

    @property
    def deadline_us(self) -> Micros | None:
        """The next time for `turn`, besides new decisions."""
        due_us = self._audit.deadline_us
        return due_us if self._topic is None else earlier(due_us, self._topic.deadline_us)

    def is_due(self, now: Instant) -> bool:
        """Whether `turn` has something to do."""
        if self._audit.has_decisions:
            return True
        due_us = self.deadline_us
        return due_us is not None and due_us <= now.mono_us

    def turn(self, now: Instant) -> None:
        """Write the lines of this turn and those whose time has come."""
        topic = self._topic
        for line in self._audit.flush(now):
            self._trace(**line)
            if topic is not None:
                topic.add(line, now)
        if topic is not None:
            topic.turn(now)

    def close(self) -> None:
        """Write no more to the topic: the broker stops."""
        if self._topic is not None:
            self._topic.close()
            self._topic = None
