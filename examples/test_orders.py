"""Tests of one's own against a real broker: `pytest examples/test_orders.py`. The fixtures come with the
package.
"""

from sparklog import Consumer, Producer, TopicPartition
from sparklog.local_broker import EmbeddedBroker


def test_orders_arrive_in_order(sparklog_broker: EmbeddedBroker, sparklog_topic: str) -> None:
    with Producer(bootstrap_servers=sparklog_broker.bootstrap_servers) as producer:
        for value in (b"one", b"two"):
            producer.send(sparklog_topic, value=value)
    with Consumer(bootstrap_servers=sparklog_broker.bootstrap_servers) as consumer:
        partition = TopicPartition(sparklog_topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning([partition])
        assert [record.value for record in consumer.poll(timeout_ms=5000)] == [b"one", b"two"]
