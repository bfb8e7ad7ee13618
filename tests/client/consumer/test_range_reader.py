"""A reader of ranges that is kept for long, while the topics change."""

from collections.abc import Sequence

import pytest

from sparklog import Admin, Producer
from sparklog.client.consumer.ranges import RangeReader
from sparklog.client.failures import TopicMadeAnew
from sparklog.client.settings import ClientSettings
from sparklog.errors import ErrorCode
from sparklog.local_broker import EmbeddedBroker
from sparklog.record.batch import build_batch
from sparklog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from sparklog.wire.messages.metadata import MetadataRequest
from sparklog.wire.schema import Message
from tests.client.wire import TOPIC_ID, ScriptedBroker, metadata


def size_of(reader: RangeReader, topic: str, partition: int) -> int:
    return sum(len(view) for view in reader.read(topic, partition, 0, 1))


def test_a_kept_reader_finds_partitions_that_came_after_it_learnt_of_the_topic(
    sparklog_broker: EmbeddedBroker,
) -> None:
    servers = sparklog_broker.bootstrap_servers
    settings = ClientSettings.from_kafka({"bootstrap.servers": servers})
    with (
        Admin(bootstrap_servers=servers) as admin,
        Producer(bootstrap_servers=servers) as producer,
        RangeReader(settings) as reader,
    ):
        admin.create_topics({"kept": 1})
        producer.send("kept", value=b"v", partition=0)
        producer.flush()
        assert size_of(reader, "kept", 0)
        admin.create_partitions({"kept": 2})
        with Producer(bootstrap_servers=servers) as later:
            later.send("kept", value=b"v", partition=1)
        assert size_of(reader, "kept", 1)


def test_a_topic_made_anew_while_it_is_read_is_not_taken_for_the_one_asked_for(
    sparklog_broker: EmbeddedBroker,
) -> None:
    servers = sparklog_broker.bootstrap_servers
    settings = ClientSettings.from_kafka({"bootstrap.servers": servers})

    def fill() -> None:
        with Producer(bootstrap_servers=servers, batch_size=1) as producer:
            for _ in range(50):
                producer.send("anew", value=bytes(1000))

    with Admin(bootstrap_servers=servers) as admin, RangeReader(settings, fetch_bytes=2000) as reader:
        admin.create_topics({"anew": 1})
        fill()
        old = admin.describe_topics(["anew"])["anew"].topic_id
        views = reader.read("anew", 0, 0, 50, topic_id=old)
        next(views)
        admin.delete_topics(["anew"])
        admin.create_topics({"anew": 1})
        fill()
        with pytest.raises(TopicMadeAnew, match="topic 'anew' was deleted and made anew"):
            list(views)
        now = admin.describe_topics(["anew"])["anew"].topic_id
        assert sum(map(len, reader.read("anew", 0, 0, 50, topic_id=now))) > 50_000
        with pytest.raises(TopicMadeAnew):
            list(reader.read("anew", 0, 0, 50, topic_id=old))


def fetched(told: PartitionData, endpoints: Sequence[NodeEndpoint] = ()) -> FetchResponse:
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[told])
    return FetchResponse(responses=[topic], node_endpoints=list(endpoints))


def test_a_range_is_read_from_the_leader_that_a_reply_names_without_a_metadata_request() -> None:
    records = bytes(build_batch([(None, b"v", (), 0)]))
    with ScriptedBroker() as old, ScriptedBroker() as new:
        moved = PartitionData(
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=LeaderIdAndEpoch(2, 1)
        )
        at = [NodeEndpoint(2, "127.0.0.1", new.port)]
        old.handlers |= {
            "Metadata": lambda _: metadata({"t": [1]}, nodes=[(1, old.port)]),
            "Fetch": lambda _: fetched(moved, at),
        }
        new.handlers["Fetch"] = lambda _: fetched(PartitionData(records=memoryview(records)))
        settings = ClientSettings.from_kafka({"bootstrap.servers": old.address})
        with RangeReader(settings) as reader:
            assert size_of(reader, "t", 0) == len(records)
        assert [name for name, _ in old.seen].count("Metadata") == 1
        assert [name for name, _ in new.seen] == ["ApiVersions", "Fetch"]


def test_one_metadata_request_is_about_all_topics_that_a_task_reads() -> None:
    records = bytes(build_batch([(None, b"v", (), 0)]))
    topics = [f"t{number}" for number in range(20)]
    with ScriptedBroker() as broker:

        def known(request: Message) -> Message:
            assert isinstance(request, MetadataRequest)
            names = [topic.name or "" for topic in request.topics or []]
            return metadata({key: [1] for key in names}, nodes=[(1, broker.port)])

        broker.handlers |= {
            "Metadata": known,
            "Fetch": lambda _: fetched(PartitionData(records=memoryview(records))),
        }
        with RangeReader(ClientSettings.from_kafka({"bootstrap.servers": broker.address})) as reader:
            reader.expect(topics)
            assert [size_of(reader, topic, 0) for topic in topics] == [len(records)] * 20
        told = [asked for _, asked in broker.seen if isinstance(asked, MetadataRequest)]
        assert [len(asked.topics or []) for asked in told] == [20]


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_range_is_read_from_the_replica_that_the_leader_names_for_the_rack(is_refused: bool) -> None:
    records = bytes(build_batch([(None, b"v", (), 0)]))
    found = PartitionData(records=memoryview(records))
    refused = PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    named = [PartitionData(preferred_read_replica=2, records=memoryview(b"")), found]
    with ScriptedBroker() as leader, ScriptedBroker() as near:
        nodes = [(1, leader.port), (2, near.port)]
        leader.handlers |= {
            "Metadata": lambda _: metadata({"t": [1]}, nodes=nodes),
            "Fetch": lambda _: fetched(named.pop(0)),
        }
        near.handlers["Fetch"] = lambda _: fetched(refused if is_refused else found)
        settings = ClientSettings.from_kafka({"bootstrap.servers": leader.address, "client.rack": "b"})
        with RangeReader(settings) as reader:
            assert size_of(reader, "t", 0) == len(records)
        racks = [asked.rack_id for _, asked in leader.seen if isinstance(asked, FetchRequest)]
        assert racks == ["b"] * (1 + is_refused)
        assert [name for name, _ in near.seen] == ["ApiVersions", "Fetch"]
