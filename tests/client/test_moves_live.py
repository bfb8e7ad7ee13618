"""A real broker moves a replica between two real directories, to and fro, while a producer writes it and a
consumer reads it.
"""

from pathlib import Path

import pytest

import sparklog
from sparklog.client.admin.admin import Admin, ItemsFailed
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer
from sparklog.errors import BrokerError, ErrorCode
from sparklog.model import TopicPartition

AT = TopicPartition("moved", 0)
MOVES = 4
RECORD_BYTES = 20_000


def test_nobody_who_writes_or_reads_notices_that_a_replica_moves(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("one", "two")]
    with sparklog.embedded(data_dir=",".join(paths), log_segment_bytes=1 << 20) as broker:
        servers = broker.bootstrap_servers
        # A batch for each record: with larger ones the writer is as fast as the copy, which stays behind.
        with (
            Admin(bootstrap_servers=servers) as admin,
            Producer(bootstrap_servers=servers, batch_size=RECORD_BYTES // 2) as producer,
        ):
            admin.create_topics({AT.topic: 1})
            node = admin.describe_cluster().nodes[0].node_id

            def homes() -> dict[str, bool]:
                """Where it lies; True for a copy."""
                return {
                    one.path: one.replicas[AT].is_future
                    for one in admin.describe_log_dirs()[node]
                    if AT in one.replicas
                }

            with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
                consumer.assign([AT])
                sent, read = 0, []
                for _ in range(MOVES):
                    target = next(path for path in paths if path not in homes())
                    admin.alter_replica_log_dirs(node, {AT: target})
                    while homes() != {target: False}:
                        for _ in range(20):
                            producer.send(AT.topic, b"%d " % sent + bytes(RECORD_BYTES), partition=0)
                            sent += 1
                        read += [
                            int(record.value.split()[0])
                            for record in consumer.poll(10)
                            if record.value is not None
                        ]
                    producer.flush()
                while len(read) < sent and (records := consumer.poll(5000)):
                    read += [int(record.value.split()[0]) for record in records if record.value is not None]
                assert read == list(range(sent))
            with pytest.raises(ItemsFailed) as failed:
                admin.alter_replica_log_dirs(node, {AT: str(tmp_path / "nowhere")})
            assert isinstance(error := failed.value.errors[AT], BrokerError)
            assert error.code is ErrorCode.LOG_DIR_NOT_FOUND
    left = [
        path.name
        for directory in paths
        for path in Path(directory).iterdir()
        if path.name.startswith(AT.topic)
    ]
    assert left == ["moved-0"]
