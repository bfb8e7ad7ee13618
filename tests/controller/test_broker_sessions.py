"""The time at which the controller must check for an expired broker session."""

from sparklog.model import Instant, Micros, Millis, NodeId, Offset, Uuid
from sparklog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from sparklog_server.controller.brokers import Brokers
from sparklog_server.controller.configs import TopicSettings
from sparklog_server.controller.sessions import Sessions
from sparklog_server.metadata.entries import BrokerImage
from sparklog_server.metadata.image import MetadataImage


def at(seconds: int) -> Instant:
    return Instant(Micros(seconds * 1_000_000), Millis(0))


def test_the_session_of_a_fenced_broker_ends_without_a_record() -> None:
    fenced = BrokerImage(
        node_id=NodeId(2),
        epoch=7,
        incarnation_id=Uuid(bytes(16)),
        endpoints=(),
        rack=None,
        is_fenced=True,
        is_in_controlled_shutdown=False,
        directories=(),
        cordoned_directories=(),
        features={},
        registered_at=Offset(7),
    )
    image = MetadataImage(brokers={NodeId(2): fenced})
    sessions = Sessions(NodeId(1), "PLAINTEXT", session_timeout_ms=9000)
    brokers = Brokers(NodeId(1), "cluster", sessions)
    brokers.heartbeat(
        image,
        BrokerHeartbeatRequest(broker_id=2, broker_epoch=7, want_fence=True),
        Offset(9),
        at(0),
        _no_topics,
    )
    assert sessions.deadline() == at(9).mono_us
    assert brokers.fence_silent(image, at(10), _no_topics) == ()
    assert sessions.deadline() is None


def _no_topics(topic: str) -> TopicSettings:
    raise AssertionError(topic)
