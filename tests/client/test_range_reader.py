"""A reader of ranges that is kept for long, while the topics change."""

from sparklog import Admin, Producer
from sparklog.client.ranges import RangeReader
from sparklog.client.settings import ClientSettings
from sparklog.local_broker import EmbeddedBroker


def size_of(reader: RangeReader, topic: str, partition: int) -> int:
    return sum(len(view) for view in reader.read(topic, partition, 0, 1))


def test_a_kept_reader_finds_partitions_that_came_after_it_learnt_of_the_topic(sparklog_broker: EmbeddedBroker) -> None:
    servers = sparklog_broker.bootstrap_servers
    settings = ClientSettings.from_kafka({"bootstrap.servers": servers})
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer, RangeReader(settings) as reader:
        admin.create_topics({"kept": 1})
        producer.send("kept", value=b"v", partition=0)
        producer.flush()
        assert size_of(reader, "kept", 0)
        admin.create_partitions({"kept": 2})
        with Producer(bootstrap_servers=servers) as later:
            later.send("kept", value=b"v", partition=1)
        assert size_of(reader, "kept", 1)
