"""The functions that a Produce, a Fetch, a micro-batch of Spark, a CreateTopics and a scrape call, in order:
`python -m tests.architecture.walked DATA FILE` runs a node in its main thread and clients in another, and
writes them into a file of JSON, by walk, each as [file, qualified name].

The calls of a walk are those of the node's loop, and for a micro-batch those of the process that plans and
reads, without Spark's JVM.
"""

import json
import os
import signal
import sys
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

from sparklog import Admin, Consumer, Producer, TopicPartition
from sparklog.client.admin.admin import NewTopic
from sparklog_server.config.load import load
from sparklog_server.daemon.logs import TraceLog
from sparklog_server.daemon.node import run_node
from sparklog_server.daemon.supervisor import Ports
from tests.architecture.source_tree import PROJECT

TOPIC: Final = "flights"
_OURS: Final = tuple(f"{PROJECT / package}{os.sep}" for package in ("sparklog", "sparklog_server"))


class Recorder:
    """The calls of our own functions in threads that it profiles."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def called(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(_OURS):
            self.calls.append((str(Path(code.co_filename).relative_to(PROJECT)), code.co_qualname))

    def during(self, act: Callable[[], object]) -> list[tuple[str, str]]:
        """The calls while `act` runs."""
        self.calls.clear()
        act()
        return self.calls[:]


def main() -> int:
    directory, target = sys.argv[1:]
    ports = Ports()
    listener, page = (f"127.0.0.1:{ports.reserve(0)}" for _ in range(2))
    loaded = load(
        None,
        [
            f"log.dirs={directory}",
            f"listeners=PLAINTEXT://{listener}",
            f"sparklog.http.listener=http://{page}",
        ],
    )
    of_the_node, found = Recorder(), dict[str, list[tuple[str, str]]]()

    def ask() -> None:
        try:
            found.update(walks(listener, f"http://{page}/metrics", of_the_node))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    clients = threading.Thread(target=ask)
    clients.start()
    sys.setprofile(of_the_node.called)
    code = run_node(loaded.settings, loaded.warnings, TraceLog(sys.stderr), remedy="")
    sys.setprofile(None)
    clients.join()
    Path(target).write_text(json.dumps(found))
    return code


def walks(servers: str, page: str, of_the_node: Recorder) -> dict[str, list[tuple[str, str]]]:
    """Every walk once."""
    found = {}
    partition = TopicPartition(TOPIC, 0)
    with Admin(bootstrap_servers=servers) as admin:
        admin.describe_cluster()
        found["One CreateTopics"] = of_the_node.during(lambda: admin.create_topics([NewTopic(TOPIC, 1)]))
    with Producer(bootstrap_servers=servers) as producer:
        producer.send(TOPIC, value=b"first", partition=0).result()
        found["One Produce"] = of_the_node.during(
            lambda: producer.send(TOPIC, value=b"second", partition=0).result()
        )
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        found["One Fetch"] = of_the_node.during(lambda: consumer.poll(timeout_ms=10_000))
    found["One scrape"] = of_the_node.during(lambda: urllib.request.urlopen(page).read())
    found["One micro-batch of Spark"] = micro_batch(servers)
    return found


def micro_batch(servers: str) -> list[tuple[str, str]]:
    """The calls that Spark makes for one micro-batch of records."""
    from sparklog.spark.source import SparklogSource

    options = {"kafka.bootstrap.servers": servers, "subscribe": TOPIC, "startingOffsets": "earliest"}
    source = SparklogSource(options)
    recorder = Recorder()

    def run() -> None:
        reader = source.streamReader(source.schema())
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert end != start
        for task in reader.partitions(start, end):
            assert sum(batch.num_rows for batch in reader.read(task)) == 2
        reader.commit(end)
        reader.stop()

    def profiled() -> None:
        sys.setprofile(recorder.called)
        run()
        sys.setprofile(None)

    return recorder.during(profiled)


if __name__ == "__main__":
    sys.exit(main())
