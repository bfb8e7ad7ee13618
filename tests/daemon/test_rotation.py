"""A new authority, new certificates of every node and a new password while clients run: none fails."""

import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from sparklog import Admin, Consumer, Producer, embedded
from sparklog.client.failures import AuthenticationFailed
from sparklog_server.cli.main import main
from tests.daemon.broker_process import PATIENCE_S, wait_until
from tests.daemon.test_secure_cluster import rdkafka, served_certificate

TOPIC, PARTITIONS, PASSWORD = "t", 3, "another-secret"
AFTER = 60
"""Records of each client before the changes, and after them."""
PACE_S = 0.005
LISTENERS = 9
"""Three of each node, which read the authorities."""


class Load:
    """A client that writes until it is stopped: what was acknowledged, and its errors."""

    def __init__(self, send: Callable[["Load", int], None]) -> None:
        self.acknowledged = 0
        self.errors: list[str] = []
        self._send = send
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        number = 0
        try:
            while not self._is_stopped:
                self._send(self, number)
                number += 1
                select.select([], [], [], PACE_S)
        except Exception as error:  # the test reports it
            self.errors.append(repr(error))

    def wait_for(self, more: int) -> None:
        """Wait for more acknowledged records, or an error."""
        wanted = self.acknowledged + more
        wait_until(lambda: self.acknowledged >= wanted or bool(self.errors))
        assert self.errors == []

    @contextmanager
    def running(self) -> Iterator["Load"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._is_stopped = True
            self._thread.join(PATIENCE_S)


def by_librdkafka(settings: dict[str, Any]) -> Callable[[Load, int], None]:
    errors: list[str] = []
    producer = confluent_kafka.Producer(
        settings | {"linger.ms": 5, "message.send.max.retries": 0, "log_level": 2},
        error_cb=lambda one: errors.append(str(one)),
    )

    def send(load: Load, number: int) -> None:
        def told(error: confluent_kafka.KafkaError | None, _: object) -> None:
            if error is None:
                load.acknowledged += 1
            else:
                load.errors.append(str(error))

        producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=told)
        if number % 10 == 9:
            producer.flush(1000 * PATIENCE_S)
        load.errors += errors

    return send


def by_ours(settings: dict[str, Any]) -> Callable[[Load, int], None]:
    producer = Producer(**settings, retries=0)

    def send(load: Load, number: int) -> None:
        producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS).result(PATIENCE_S)
        load.acknowledged += 1

    return send


@pytest.mark.long
@pytest.mark.timeout(240)
def test_certificates_and_a_password_change_under_load_without_a_failed_client(tmp_path: Path) -> None:
    with embedded(secure=True, nodes=3, sparklog_ssl_reload_interval_ms=50) as cluster:
        settings = dict(cluster.client_settings)
        directory = str(cluster.data_dir)
        ports = [int(one.rpartition(":")[2]) for one in cluster.bootstrap_servers.split(",")]
        with Admin(**settings) as admin:
            admin.create_topics({TOPIC: PARTITIONS})
        theirs, ours = Load(by_librdkafka(rdkafka(cluster.data_dir))), Load(by_ours(settings))
        with theirs.running(), ours.running():
            for load in (theirs, ours):
                load.wait_for(AFTER)  # each has its connections to all three nodes
            before = {port: served_certificate(port) for port in ports}
            assert main(["certificates", "renew-authority", directory]) == 0
            wait_until(lambda: cluster.log().count(" certificates-changed ") == LISTENERS)
            assert main(["certificates", "renew", directory]) == 0
            wait_until(lambda: all(served_certificate(port) != before[port] for port in ports))
            assert main(["certificates", "retire-authority", directory]) == 0
            (tmp_path / "password").write_text(PASSWORD)
            config = ("--command-config", f"{directory}/client.properties")
            changed = ("users", "password", "admin", "--password-file", str(tmp_path / "password"), *config)
            assert main(list(changed)) == 0
            for load in (theirs, ours):
                load.wait_for(AFTER)
            # Clients that connect from now on need the new password, and see the new certificates.
            renewed = settings | {"sasl_password": PASSWORD}
            with Consumer(**renewed, auto_offset_reset="earliest", group_id="g") as consumer:
                consumer.subscribe([TOPIC])
                assert consumer.poll(timeout_ms=PATIENCE_S * 1000)
            with pytest.raises(AuthenticationFailed), Admin(**settings) as admin:
                admin.list_topics()
            new = rdkafka(cluster.data_dir) | {"sasl.password": PASSWORD}
            assert AdminClient(new).list_topics(timeout=PATIENCE_S).topics
        assert (theirs.errors, ours.errors) == ([], [])
        assert "certificates-refused" not in cluster.log()
