"""The metadata of a client, and when it is refreshed."""

import pytest

from sparklog.client.cluster import NO_NODE, Broker, Cluster, backoff_us
from sparklog.errors import ErrorCode
from sparklog.model import NodeId, TopicPartition
from sparklog.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from sparklog.wire.messages.produce import LeaderIdAndEpoch, NodeEndpoint
from tests.client.wire import TOPIC_ID, metadata, ms, no_chance, settings

T0 = TopicPartition("t", 0)


def cluster(**given: object) -> Cluster:
    return Cluster(settings(bootstrap_servers="a:1,b:2", **given), no_chance)


def knowing(**given: object) -> Cluster:
    known = cluster(**given)
    known.want(["t"])
    assert known.request(ms(0)) is not None
    known.replied(metadata({"t": [1, 2]}, nodes=[(1, 9092), (2, 9093)], epoch=4), ms(0))
    return known


def names(request: MetadataRequest) -> list[str]:
    return [topic.name or "" for topic in request.topics or []]


def test_bootstrap_addresses_are_brokers_until_the_cluster_names_its_own() -> None:
    known = cluster()
    assert [(broker.host, broker.port) for broker in known.brokers.values()] == [("a", 1), ("b", 2)]
    assert all(node < NO_NODE for node in known.brokers)
    known.request(ms(0))
    known.replied(metadata(nodes=[(7, 9092)]), ms(0))
    assert list(known.brokers) == [7]


def test_leaders_are_found_by_name_and_topics_by_id() -> None:
    known = knowing()
    assert (known.leader(T0), known.leader(TopicPartition("t", 1)), known.leader(TopicPartition("t", 2))) == (
        1,
        2,
        NO_NODE,
    )
    assert known.name_of(TOPIC_ID) == "t"
    assert known.id_of("t") == TOPIC_ID


def test_only_one_request_is_under_way() -> None:
    known = cluster()
    assert known.request(ms(0)) is not None
    assert known.request(ms(0)) is None
    assert known.deadline() is None


def test_knowledge_is_refreshed_when_it_is_old() -> None:
    known = knowing(metadata_max_age_ms=1000)
    assert known.request(ms(999)) is None
    assert known.request(ms(1000)) is not None


def test_a_refresh_asked_for_waits_for_the_back_off() -> None:
    known = knowing(retry_backoff_ms=100)
    known.refresh_soon()
    assert known.deadline() == pytest.approx(ms(100), abs=10)
    assert known.request(ms(101)) is not None


def test_a_topic_never_asked_for_does_not_wait_for_the_back_off() -> None:
    known = knowing()
    known.want(["new"])
    request = known.request(ms(1))
    assert request is not None
    assert names(request) == ["new"]


def test_a_topic_wanted_while_a_request_is_under_way_is_asked_for_as_soon_as_that_is_answered() -> None:
    known = cluster(retry_backoff_ms=100)
    known.request(ms(0))
    known.want(["new"])
    known.replied(metadata(nodes=[(7, 9092)]), ms(5))
    assert known.request(ms(5)) is not None
    known.replied(metadata({"new": [7]}, nodes=[(7, 9092)]), ms(6))
    known.refresh_soon()
    assert known.deadline() == pytest.approx(ms(106), abs=10)


def test_topics_wanted_one_by_one_are_each_requested_once() -> None:
    known, requested = cluster(), 0
    for number in range(100):
        known.want([f"t{number}"])
        request = known.request(ms(number))
        assert request is not None
        requested += len(names(request))
        known.replied(metadata({name: [1] for name in names(request)}), ms(number))
    assert requested == 100
    assert list(known.topics) == [f"t{number}" for number in range(100)]


def test_new_topics_do_not_put_off_the_refresh_of_the_others() -> None:
    known = knowing(retry_backoff_ms=100)
    known.refresh_soon()
    known.want(["new"])
    addition = known.request(ms(50))
    assert addition is not None
    assert names(addition) == ["new"]
    known.replied(metadata({"new": [1]}, nodes=[(1, 9092), (2, 9093)]), ms(60))
    assert known.deadline() == pytest.approx(ms(100), abs=10)
    refresh = known.request(ms(101))
    assert refresh is not None
    assert names(refresh) == ["t", "new"]


def test_a_new_topic_without_a_leader_is_requested_again_after_the_back_off() -> None:
    known = knowing(retry_backoff_ms=100)
    known.want(["new"])
    known.request(ms(50))
    known.replied(metadata({"new": [-1]}, nodes=[(1, 9092), (2, 9093)]), ms(60))
    assert known.deadline() == pytest.approx(ms(160), abs=10)
    known.request(ms(161))
    known.replied(metadata({"t": [1, 2], "new": [1]}, nodes=[(1, 9092), (2, 9093)], epoch=4), ms(162))
    assert known.request(ms(300)) is None


def test_an_older_leader_epoch_is_not_believed() -> None:
    known = knowing()
    known.refresh_soon()
    known.request(ms(1000))
    known.replied(metadata({"t": [2, 1]}, nodes=[(1, 9092), (2, 9093)], epoch=3), ms(1000))
    assert known.leader(T0) == 1


def test_a_newer_leader_named_in_a_reply_counts_at_once() -> None:
    known = knowing()
    assert known.leader_changed(T0, LeaderIdAndEpoch(2, 5), [])
    assert known.leader(T0) == 2
    assert not known.leader_changed(T0, LeaderIdAndEpoch(1, 4), []), "an older epoch"
    assert not known.leader_changed(T0, LeaderIdAndEpoch(9, 6), []), "the address of broker 9 is not known"
    assert not known.leader_changed(T0, LeaderIdAndEpoch(), [])
    assert not known.leader_changed(T0, None, [])


def test_the_address_of_a_new_leader_is_taken_from_the_reply() -> None:
    known = knowing()
    endpoints = [NodeEndpoint(8, "other", 1), NodeEndpoint(9, "host", 9099, "r")]
    assert known.leader_changed(T0, LeaderIdAndEpoch(9, 5), endpoints)
    assert known.leader(T0) == 9
    assert known.brokers[NodeId(9)] == Broker(NodeId(9), "host", 9099, "r")
    assert list(known.brokers) == [1, 2, 9]


def test_a_broker_at_a_new_address_is_tried_without_the_back_off_of_the_old_one() -> None:
    known = knowing(reconnect_backoff_ms=50)
    known.connect_failed(NodeId(1), ms(0))
    known.connect_failed(NodeId(2), ms(0))
    known.request(ms(200))
    known.replied(metadata({"t": [1, 2]}, nodes=[(1, 9192), (2, 9093)], epoch=4), ms(1))
    assert known.may_connect(NodeId(1), ms(1))
    assert known.leader_changed(T0, LeaderIdAndEpoch(2, 5), [NodeEndpoint(2, "127.0.0.1", 9193)])
    assert known.may_connect(NodeId(2), ms(1))


def test_a_topic_that_is_gone_is_forgotten_and_asked_for_again() -> None:
    known = knowing()
    known.refresh_soon()
    known.request(ms(1000))
    known.replied(MetadataResponse(topics=[MetadataResponseTopic(error_code=3, name="t")]), ms(1000))
    assert known.errors == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert "t" not in known.topics
    assert known.request(ms(3000)) is not None


def test_a_missing_leader_is_asked_for_without_a_growing_back_off() -> None:
    known = knowing(retry_backoff_ms=100)
    now = ms(1000)
    known.refresh_soon()
    for _ in range(20):
        assert known.request(now) is not None
        known.replied(metadata({"t": [-1, 2]}, nodes=[(2, 9093)], epoch=5), now)
        assert known.deadline() == pytest.approx(now + ms(100), abs=10)
        now = ms(now / 1000 + 101)


def test_a_leader_that_stays_away_is_asked_for_less_often() -> None:
    known = knowing(retry_backoff_ms=100, retry_backoff_max_ms=1000)
    known.refresh_soon()
    now = ms(1000)
    for _ in range(110):
        assert known.request(now) is not None
        known.replied(metadata({"t": [-1, 2]}, nodes=[(2, 9093)], epoch=5), now)
        now = ms(now / 1000 + 1001)
    assert known.deadline() == pytest.approx(now - ms(1), abs=10)


def test_a_broker_elected_since_its_last_failure_is_tried_without_back_off() -> None:
    known = knowing(reconnect_backoff_ms=1000)
    known.connect_failed(NodeId(1), ms(0))
    known.request(ms(200))
    known.replied(metadata({"t": [2, 2]}, nodes=[(1, 9092), (2, 9093)], epoch=5), ms(200))
    assert not known.may_connect(NodeId(1), ms(300))
    known.refresh_soon()
    known.request(ms(400))
    known.replied(metadata({"t": [1, 2]}, nodes=[(1, 9092), (2, 9093)], epoch=6), ms(400))
    assert known.may_connect(NodeId(1), ms(400))


def test_failures_back_off_longer_and_longer_up_to_the_limit() -> None:
    waits = [backoff_us(100, 1000, attempt, no_chance) // 1000 for attempt in range(6)]
    assert waits == pytest.approx([100, 200, 400, 800, 1000, 1000], abs=1)


def test_jitter_moves_a_back_off_by_a_fifth_at_most() -> None:
    assert backoff_us(100, 1000, 0, bytes) == 80_000
    assert backoff_us(100, 1000, 0, lambda size: b"\xff" * size) == 120_000


def test_a_broker_that_cannot_be_reached_is_left_alone_for_a_while() -> None:
    known = knowing(reconnect_backoff_ms=50)
    known.connect_failed(NodeId(1), ms(0))
    assert not known.may_connect(NodeId(1), ms(49))
    assert known.may_connect(NodeId(1), ms(51))
    assert known.candidates()[0] == 2
    known.connected(NodeId(1))
    assert known.may_connect(NodeId(1), ms(0))


def test_a_broker_has_left_once_metadata_names_others() -> None:
    known = cluster()
    assert not known.has_left(NodeId(3))
    known = knowing()
    assert known.has_left(NodeId(3))
    assert not known.has_left(NodeId(2))


def test_a_caller_that_waits_for_metadata_does_not_wait_for_the_back_off() -> None:
    known = knowing()
    known.refresh_soon()
    assert known.request(ms(1)) is None
    known.refresh_now()
    assert known.request(ms(1)) is not None


def test_a_broker_that_may_be_tried_again_does_not_hide_when_another_may() -> None:
    known = knowing(reconnect_backoff_ms=50, metadata_recovery_strategy="none")
    known.connect_failed(NodeId(1), ms(0))
    known.connect_failed(NodeId(2), ms(100))
    first, second = known.next_reach(), known.next_reach(ms(100))
    assert first is not None
    assert second is not None
    assert ms(0) < first < ms(100) < second
    assert known.next_reach(second) is None


def test_when_no_broker_can_be_reached_the_client_begins_anew() -> None:
    known = knowing()
    known.connect_failed(NodeId(1), ms(0))
    assert list(known.brokers) == [1, 2]
    known.connect_failed(NodeId(2), ms(0))
    assert [broker.host for broker in known.brokers.values()] == ["a", "b"]
    assert known.leader(T0) == NO_NODE


def test_beginning_anew_can_be_switched_off() -> None:
    known = knowing(metadata_recovery_strategy="none")
    known.connect_failed(NodeId(1), ms(0))
    known.connect_failed(NodeId(2), ms(0))
    assert list(known.brokers) == [1, 2]


def test_the_cluster_can_tell_the_client_to_begin_anew() -> None:
    known = knowing()
    known.refresh_soon()
    known.request(ms(1000))
    known.replied(MetadataResponse(error_code=129), ms(1000))
    assert [broker.host for broker in known.brokers.values()] == ["a", "b"]


def test_any_node_but_the_known_brokers_has_left() -> None:
    known = knowing()
    assert not any(known.has_left(node) for node in known.brokers)
    assert known.has_left(NodeId(0))
    assert not cluster().has_left(NodeId(0)), "no broker is known yet"
