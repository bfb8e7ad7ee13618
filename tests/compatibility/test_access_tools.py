"""Kafka's kafka-acls, unmodified, sets, lists and removes rules, and they decide."""

from pathlib import Path

import pytest

from sparklog.errors import ErrorCode
from sparklog.local_broker import embedded
from sparklog.wire.messages.list_offsets import ListOffsetsResponse
from sparklog.wire.schema import Message
from tests.compatibility.access_client import CLIENT, Peer
from tests.compatibility.access_coordinators import TOPICS
from tests.compatibility.access_matrix import SETTINGS, prepare
from tests.compatibility.access_requests import requests
from tests.compatibility.kafka_tools import kafka_tool

pytestmark = pytest.mark.compat

ACLS = "org.apache.kafka.tools.AclCommand"


def codes(reply: Message) -> dict[str, int]:
    assert isinstance(reply, ListOffsetsResponse)
    return {topic.name: topic.partitions[0].error_code for topic in reply.topics}


def test_rules_of_kafka_acls_decide_until_it_removes_them(tmp_path: Path) -> None:
    settings = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
    with embedded(data_dir=tmp_path / "data", **settings) as broker:
        at = ("--bootstrap-server", broker.bootstrap_servers)
        with Peer(broker.bootstrap_servers, "127.0.0.1") as admin:
            prepare(admin)
        who = ("--allow-principal", "User:ANONYMOUS", "--allow-host", CLIENT)
        prefix = ("--topic", "see", "--resource-pattern-type", "prefixed")
        said = kafka_tool(ACLS, *at, "--add", *who, "--operation", "Read", *prefix)
        assert "Adding ACLs for resource" in said
        listed = kafka_tool(ACLS, *at, "--list", *prefix)
        assert f"principal=User:ANONYMOUS, host={CLIENT}, operation=READ, permissionType=ALLOW" in listed
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        asked = requests("-")["ListOffsets"]
        with Peer(broker.bootstrap_servers, CLIENT) as client:
            assert codes(client.ask(*asked)) == dict(zip(TOPICS, (ErrorCode.NONE, refused), strict=True))
            kafka_tool(ACLS, *at, "--remove", "--force", *who, "--operation", "Read", *prefix)
            assert codes(client.ask(*asked)) == dict.fromkeys(TOPICS, refused)
