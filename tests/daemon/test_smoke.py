"""A broker in use, as `make check` tries it: all that a record passes on its way, in one process each."""

import sparklog
from sparklog import Admin, Consumer, Producer
from sparklog.client.admin import NewTopic


def test_a_record_goes_through_a_real_broker_and_a_group_remembers_where_it_was() -> None:
    with sparklog.embedded() as broker:
        servers = broker.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic("orders", 3)])
        with Producer(bootstrap_servers=servers) as producer:
            sent = [producer.send("orders", key=b"%d" % n, value=b"order %d" % n) for n in range(100)]
            assert all(one.result(timeout=30).offset >= 0 for one in sent)
        received: set[bytes | None] = set()
        with Consumer(bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            while len(received) < 100 and (records := consumer.poll(timeout_ms=10_000)):
                received |= {record.value for record in records}
            consumer.commit()
        assert received == {b"order %d" % n for n in range(100)}
        with Admin(bootstrap_servers=servers) as admin:
            committed = admin.list_group_offsets(["g"])["g"]
        assert sum(offset.offset for offset in committed.values()) == 100
