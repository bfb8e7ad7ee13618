"""Measures which versions of which APIs each client uses, for the table of docs/protocol.md.

    python -m tests.compatibility.used_versions [CLIENT…]

Each client does its work (`client_work`) on a new broker, whose /metrics counts requests by API and version.
docs/clients.toml has the result; the record of a client that is not named, or not installed, stays.
"""

import datetime
import json
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import pytest

from docs.protocol_page import RECORD, Recorded, recorded
from sparklog.wire.api_keys import API_BY_KEY
from tests.compatibility import client_work
from tests.compatibility.group_members import KAFKAJS
from tests.daemon.broker_process import wait_until
from tests.daemon.http_nodes import HttpNode, http_broker
from tests.metrics.scraping import scrape
from tests.tools import KAFKA_JARS

# With an authorizer, so that the requests on access rules succeed.
SETTINGS = (
    *("--set", "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    *("--set", "super.users=User:ANONYMOUS"),
)
HEAD = (
    "# By `python -m tests.compatibility.used_versions`: the lowest and highest version used of each API.\n"
)


class Tried(NamedTuple):
    """A client: its work, and its installed version."""

    work: Callable[[str, client_work.AwaitHeartbeat], None]
    version: Callable[[], str]


def version_of_kafkajs() -> str:
    return str(json.loads((KAFKAJS / "kafkajs" / "package.json").read_text())["version"])


def version_of_java() -> str:
    (jar,) = KAFKA_JARS.glob("kafka-clients-*.jar")
    return jar.stem.removeprefix("kafka-clients-")


TRIED = {
    "librdkafka": Tried(client_work.by_librdkafka, lambda: confluent_kafka.libversion()[0]),
    "aiokafka": Tried(client_work.by_aiokafka, lambda: version("aiokafka")),
    "kafka-python": Tried(client_work.by_kafka_python, lambda: version("kafka-python")),
    "kafkajs": Tried(client_work.by_kafkajs, version_of_kafkajs),
    "Java": Tried(client_work.by_java, version_of_java),
    "Spark": Tried(client_work.by_spark, lambda: version("pyspark")),
    "sparklog": Tried(client_work.by_sparklog, lambda: version("sparklog")),
}


def measured(name: str) -> dict[str, tuple[int, int]]:
    """The lowest and the highest version of each API that a client uses, in order of API keys."""
    with tempfile.TemporaryDirectory() as directory, http_broker(Path(directory), *SETTINGS) as process:
        node = HttpNode(process)
        assert used(node) == {}, "the broker counts requests of its own"
        TRIED[name].work(
            node.bootstrap_servers, lambda: wait_until(lambda: any("Heartbeat" in api for api in used(node)))
        )
        return used(node)


def used(node: HttpNode) -> dict[str, tuple[int, int]]:
    versions: dict[str, list[int]] = {}
    for labels in scrape(node.url).samples.get("kafka_network_requestmetrics_requests_total", {}):
        named = dict(labels)
        api = "Fetch" if named["request"] == "FetchConsumer" else named["request"]
        versions.setdefault(api, []).append(int(named["version"]))
    names = [api.name for api in API_BY_KEY.values() if api.name in versions]
    return {name: (min(versions[name]), max(versions[name])) for name in names}


def text_of(record: dict[str, Recorded]) -> str:
    """The record as TOML, in order of names."""
    lines = [HEAD]
    for name, one in sorted(record.items()):
        lines += [f"[{name}]", f'version = "{one["version"]}"', f"date = {one['date']}"]
        lines += [f"apis.{api} = [{low}, {high}]" for api, (low, high) in one["apis"].items()]
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    record = recorded()
    for name in sys.argv[1:] or TRIED:
        try:
            apis = measured(name)
        except pytest.skip.Exception as reason:
            print(f"{name}: not measured: {reason}", file=sys.stderr)
            continue
        today = datetime.datetime.now(tz=datetime.UTC).date()
        record[name] = {"version": TRIED[name].version(), "date": today, "apis": apis}
        RECORD.write_text(text_of(record))
        print(f"{name} {record[name]['version']}: {len(apis)} APIs")


if __name__ == "__main__":
    main()
