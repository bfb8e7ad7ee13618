"""The audit log has the first decision of an interval at once, and counts the others."""

from sparklog.model import Instant, Micros, Millis
from sparklog_server.security import audit
from sparklog_server.security.audit import Audit, Decision


def denied(principal: str = "User:a", resource: str = "t", operation: str = "READ") -> Decision:
    return Decision(principal, "10.0.0.1", operation, "TOPIC", resource, False)


def at(ms: int) -> Instant:
    return Instant(Micros(ms * 1000), Millis(ms))


class Log:
    """An audit log with an interval of a second, and its lines."""

    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []
        self.audit = Audit(interval_ms=1000, logs_allowed=False)

    def decide(self, ms: int, *decisions: Decision) -> None:
        for one in decisions:
            self.audit.decided(one)
        self.flush(ms)

    def flush(self, ms: int) -> None:
        self.lines += self.audit.flush(at(ms))


def test_the_first_decision_has_a_line_and_the_next_ones_share_one_at_the_end_of_the_interval() -> None:
    log = Log()
    log.decide(0, denied(), denied())
    assert [(one["operation"], one["count"]) for one in log.lines] == [("READ", 2)]
    log.decide(500, denied(), denied(operation="WRITE"))
    assert len(log.lines) == 1
    assert log.audit.deadline_us == 1_000_000
    log.flush(1000)
    assert [(one["operation"], one["count"]) for one in log.lines[1:]] == [("WRITE", 2)]
    assert log.audit.deadline_us is None


def test_principals_and_resources_have_lines_of_their_own() -> None:
    log = Log()
    log.decide(0, denied(), denied("User:b"), denied(resource="u"))
    assert len(log.lines) == 3
    assert log.lines[0] == {
        "event": "audit",
        "decision": "denied",
        "principal": "User:a",
        "host": "10.0.0.1",
        "operation": "READ",
        "resource_type": "TOPIC",
        "resource_name": "t",
        "count": 1,
    }


def test_after_the_interval_a_decision_has_a_line_again() -> None:
    log = Log()
    log.decide(0, denied())
    log.decide(1000, denied())
    assert len(log.lines) == 2


def test_a_flood_of_names_is_counted_in_one_line() -> None:
    log = Log()
    log.decide(0, *(denied(resource=f"t{index}") for index in range(audit.TRACKED_MAX + 5)))
    assert len(log.lines) == audit.TRACKED_MAX
    log.flush(1000)
    assert log.lines[-1] == {"event": "audit", "decisions_without_a_line": 5}
