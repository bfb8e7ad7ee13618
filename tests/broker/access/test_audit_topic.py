"""The audit log as records of `__sparklog_audit`: of one node, of nodes that do not lead it, and of more
lines than there is room for.
"""

import json

from sparklog.errors import ErrorCode
from sparklog.model import NodeId
from sparklog.wire.messages.fetch import FetchResponse
from sparklog.wire.messages.list_offsets import ListOffsetsResponse
from sparklog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from sparklog.wire.messages.produce import ProduceResponse
from sparklog_server.broker.access import audit_topic
from sparklog_server.config.access_settings import STANDARD_AUTHORIZER
from sparklog_server.coordinator.placement import AUDIT_TOPIC
from tests.broker.access.test_access import Access
from tests.broker.clusters import Cluster
from tests.broker.world import FETCH_BY_NAME, PRODUCE_BY_NAME, fetch, fetched, latest, produce, produced
from tests.compatibility.access_client import CLIENT
from tests.compatibility.access_coordinators import TOPICS
from tests.compatibility.access_requests import requests
from tests.log.logs import records_of

ON = {"sparklog.audit.topic.enable": "true"}
OF_NODES = {
    "authorizer_class_name": STANDARD_AUTHORIZER,
    "super_users": "User:ANONYMOUS",
    "sparklog_audit_allowed": "true",
    "sparklog_audit_topic_enable": "true",
    "offsets_topic_replication_factor": "3",
}


def records(access: Access) -> list[dict[str, object]]:
    answer = access.world.ask(access.admin, fetch(AUDIT_TOPIC, 0), FETCH_BY_NAME, FetchResponse)
    code, values = fetched(answer)
    assert code == ErrorCode.NONE
    return [json.loads(value) for value in values]


def logged(access: Access, event: str) -> list[str]:
    return [line for line in access.world.node.trace if line.startswith(f"{event} ")]


def is_created(access: Access) -> bool:
    return AUDIT_TOPIC in access.world.node.running._quorum.image.topics_by_name


def test_each_line_of_the_log_is_a_record_of_the_topic_which_the_first_one_creates() -> None:
    access = Access(**ON)
    assert not is_created(access)
    access.ask(requests("-")["ListOffsets"])
    found = records(access)
    assert [one["resource_name"] for one in found] == list(TOPICS)
    assert found[0].pop("time_ms")
    assert found[0] == {
        "node": access.world.node.running.settings.node_id,
        "event": "audit",
        "decision": "denied",
        "principal": "User:ANONYMOUS",
        "host": CLIENT,
        "operation": "DESCRIBE",
        "resource_type": "TOPIC",
        "resource_name": TOPICS[0],
        "count": 1,
    }
    assert len(found) == len(logged(access, "audit"))


def test_without_the_setting_there_is_no_topic() -> None:
    access = Access()
    access.ask(requests("-")["ListOffsets"])
    assert not is_created(access)


def test_the_topic_is_internal_keeps_a_week_and_takes_no_records_of_clients() -> None:
    access = Access(**ON)
    access.ask(requests("-")["ListOffsets"])
    live = access.world.node.running._live.log(AUDIT_TOPIC)
    assert (live.is_compacted, live.retention_ms) == (False, audit_topic.RETENTION_MS)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=AUDIT_TOPIC)])
    answer = access.world.ask(access.admin, request, 9, MetadataResponse)
    assert isinstance(answer, MetadataResponse)
    assert answer.topics[0].is_internal
    before = len(records(access))
    forged = produce(AUDIT_TOPIC, access.world.batch(b"forged"))
    code, _ = produced(access.world.ask(access.client, forged, PRODUCE_BY_NAME, ProduceResponse))
    assert code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [one["operation"] for one in records(access)[before:]] == ["WRITE"]


def test_lines_that_find_the_queue_full_are_counted_in_the_log_and_in_the_topic() -> None:
    access = Access(**ON)
    many = [f"{index:0249}" for index in range(8_000)]  # about 4 MiB of lines before the topic exists
    for start in range(0, len(many), 1000):
        asked = latest(many[start])
        asked.topics = [latest(name).topics[0] for name in many[start : start + 1000]]
        access.client.send(asked, 5, ListOffsetsResponse)
    access.world.settle(5_000)
    written = records_of_all(access)
    lost = sum(int(str(one.get("lines_lost", 0))) for one in written)
    lines = [one for one in written if "lines_lost" not in one]
    assert lost > 0
    assert lost + len(lines) == len(many) == len(logged(access, "audit"))
    access.world.settle(20_000)
    told = [int(line.partition("count=")[2].split()[0]) for line in logged(access, "audit-lines-lost")]
    assert sum(told) == lost


def records_of_all(access: Access) -> list[dict[str, object]]:
    partition = access.world.node.running._partitions.find(AUDIT_TOPIC, 0)
    assert partition is not None
    return [json.loads(record.value or b"") for record in records_of(partition.log)]


def test_every_node_writes_to_the_one_that_leads_the_topic() -> None:
    cluster = Cluster(**OF_NODES).start()
    cluster.run_until(lambda: cluster.is_ready)
    for number in cluster.nodes:
        assert cluster.create(cluster.nodes[number], f"t{number}") == ErrorCode.NONE
    cluster.run_until(lambda: nodes_heard(cluster) == {1, 2, 3})
    assert cluster.isr(AUDIT_TOPIC) == {1, 2, 3}


def test_lines_go_to_the_next_leader_when_one_ends() -> None:
    cluster = Cluster(**OF_NODES).start()
    cluster.run_until(lambda: cluster.is_ready)
    assert cluster.create(cluster.nodes[NodeId(1)], "t") == ErrorCode.NONE
    cluster.run_until(lambda: bool(nodes_heard(cluster)) and cluster.isr(AUDIT_TOPIC) == {1, 2, 3})
    leader = cluster.leading(AUDIT_TOPIC)
    assert leader is not None
    cluster.nodes[NodeId(leader)].kill()
    other = next(number for number in cluster.nodes if number != leader)
    client = cluster.nodes[other].connect()
    client.send(latest("of-another"), 5, ListOffsetsResponse)
    cluster.run_until(lambda: "of-another" in resources(cluster))


def lines_of(cluster: Cluster) -> list[dict[str, object]]:
    leader = cluster.leading(AUDIT_TOPIC)
    return [] if leader is None else [json.loads(value) for value in cluster.values(leader, AUDIT_TOPIC)]


def nodes_heard(cluster: Cluster) -> set[object]:
    return {line["node"] for line in lines_of(cluster)}


def resources(cluster: Cluster) -> set[object]:
    return {line.get("resource_name") for line in lines_of(cluster)}


def test_a_stop_while_lines_are_being_written_ends_cleanly() -> None:
    access = Access(**ON)
    access.ask(requests("-")["ListOffsets"])
    log = access.world.node.running._audit
    assert log is not None
    topic = log._topic
    assert topic is not None
    topic._is_sending = True
    topic.close()
    topic.settled(1, ErrorCode.NONE, access.world.clock.now)
    assert not topic._lines
