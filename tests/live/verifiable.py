"""Kafka's VerifiableProducer and VerifiableConsumer, whose records and commits are noted, and at the end
Kafka's comparison of replicas. They run with the JARs of `make jars`.
"""

import json
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import harness
from tests.live.history import At, Told
from tests.live.load import PATIENCE_S, VERIFIABLE, Load

RECORDS_PER_SECOND = 50
DELIVERY_MS = 120_000
WRITER = "1"
"""The prefix that the producer gives to its numbers, with a point between them."""

Event = dict[str, object]


def verify(load: Load) -> None:
    """Produce with acks=all and consume in a group of the `consumer` protocol; at the end the consumer has
    seen each acknowledged record.
    """
    with TemporaryDirectory() as directory, _tool("VerifiableConsumer", _consumer_options(load)) as consumer:
        seen: set[Told] = set()
        reader = threading.Thread(target=_note_consumed, args=(load, _events(consumer), seen))
        reader.start()
        try:
            _wait_until_all_are_seen(_produce(load, Path(directory)), seen)
        finally:
            consumer.terminate()
            reader.join()


def _produce(load: Load, directory: Path) -> set[Told]:
    """What is acknowledged until the load is over."""
    settings = directory / "producer.properties"
    settings.write_text(
        f"enable.idempotence=true\nretries=2147483647\ndelivery.timeout.ms={DELIVERY_MS}\nlinger.ms=0\n"
    )
    options = ["--topic", VERIFIABLE, "--bootstrap-server", load.servers, "--value-prefix", WRITER]
    options += ["--throughput", str(RECORDS_PER_SECOND), "--command-config", str(settings)]
    acknowledged = set()
    with _tool("VerifiableProducer", options) as producer:
        threading.Thread(target=lambda: (load.wait(), producer.terminate())).start()
        for event in _events(producer):
            if event["name"] == "producer_send_success":
                acknowledged.add(_told(event))
            elif event["name"] == "producer_send_error":
                load.history.failures.append(f"VerifiableProducer: {event}")
    load.history.acknowledged.extend(acknowledged)
    return acknowledged


def _consumer_options(load: Load) -> list[str]:
    options = ["--topic", VERIFIABLE, "--bootstrap-server", load.servers, "--group-id", "group-verifiable"]
    return [*options, "--group-protocol", "CONSUMER", "--verbose"]


def _note_consumed(load: Load, events: Iterator[Event], seen: set[Told]) -> None:
    for event in events:
        if event["name"] == "record_data":
            seen.add(_told(event))
            load.history.seen.append(_told(event))
        elif event["name"] == "offsets_committed" and event["success"]:
            for one in event["offsets"]:  # type: ignore[attr-defined]
                at = At(one["topic"], one["partition"])
                load.history.commits.append(("group-verifiable", at, one["offset"]))


def _wait_until_all_are_seen(acknowledged: set[Told], seen: set[Told]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while missing := acknowledged - set(seen):
        if time.monotonic() > until_s:
            raise RuntimeError(f"the consumer did not see {len(missing)} records, as {min(missing)}")
        time.sleep(0.1)


def replica_violations(servers: str, topics: Sequence[str]) -> list[str]:
    """What `kafka-replica-verification` says against these topics, from their first record on."""
    options = ["--broker-list", servers, "--topics-include", "|".join(topics), "--time", "-2"]
    found, reports = [], []
    with _tool("ReplicaVerificationTool", [*options, "--report-interval-ms", "1000"]) as tool:
        timer = threading.Timer(PATIENCE_S, tool.terminate)
        timer.start()
        assert tool.stdout is not None
        for line in tool.stdout:
            if "match" in line:
                found.append(line.strip())
            elif "max lag is" in line:
                reports.append(line.strip())
                if "max lag is 0 " in line:
                    break
        tool.terminate()
        timer.cancel()
    if not reports or "max lag is 0 " not in reports[-1]:
        found.append(f"replicas were not compared to their ends: {reports[-1:] or 'no report'}")
    return found


def _tool(name: str, options: Sequence[str]) -> "subprocess.Popen[str]":
    command = harness.java(f"org.apache.kafka.tools.{name}", *options)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _events(tool: "subprocess.Popen[str]") -> Iterator[Event]:
    """What the tool prints as JSON, to its end."""
    assert tool.stdout is not None
    for line in tool.stdout:
        if line.startswith("{"):
            yield json.loads(line)


def _told(event: Event) -> Told:
    partition, offset = event["partition"], event["offset"]
    assert isinstance(partition, int)
    assert isinstance(offset, int)
    return Told(At(str(event["topic"]), partition), offset, str(event["value"]).replace(".", ":"))
