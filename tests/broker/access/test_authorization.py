"""What a session may claim without a right, and what the audit log has of it."""

from types import SimpleNamespace
from typing import cast

from sparklog.model import Instant, Micros, Millis, NodeId, SessionId
from sparklog.wire.frame import Framer
from sparklog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from sparklog_server.broker.access.authorization import Authorization, Operation, Resource
from sparklog_server.broker.context import Context
from sparklog_server.broker.handlers.control import command_of_node
from sparklog_server.broker.session import Call, Parked, Session
from sparklog_server.security.audit import Audit

NOW = Instant(Micros(0), Millis(0))


def a_call() -> Call:
    framer = Framer(frame_bytes_max=100, shared=bytearray(100), spares=[])
    session = Session(SessionId(1), framer, listener="CONTROLLER", peer_address="10.0.0.1:1")
    return Call(session, 63, 1, 1, None, session.principal)


def beaten(*, is_allowed: bool) -> tuple[NodeId | None, object]:
    """The broker whose heartbeats a session sends, and the answer to one."""
    authorization = Authorization(decide=lambda *_: is_allowed)
    context = SimpleNamespace(
        may=authorization.may, allow=authorization.allow, propose_for=lambda *_: Parked.MUTING
    )
    call = a_call()
    answer = command_of_node(cast(Context, context), call, BrokerHeartbeatRequest(broker_id=2), NOW)
    return call.session.beats_for, answer


def test_the_end_of_a_session_says_nothing_of_a_broker_for_which_it_may_not_beat() -> None:
    assert beaten(is_allowed=True) == (2, Parked.MUTING)
    node, answer = beaten(is_allowed=False)
    assert node is None
    assert isinstance(answer, BrokerHeartbeatResponse)


def test_a_line_of_the_audit_log_has_256_characters_of_a_name() -> None:
    audit = Audit(interval_ms=1000, logs_allowed=False)
    authorization = Authorization(decide=lambda *_: False, audit=audit)
    assert not authorization.allow(a_call(), Operation.WRITE, Resource.TRANSACTIONAL_ID, "x" * 30_000)
    assert [line["resource_name"] for line in audit.flush(NOW)] == ["x" * 256]
