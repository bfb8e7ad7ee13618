"""Administration as Kafka's own tools do it: what they print of us is what they print of a real Kafka,
side by side.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.admin import KafkaAdminClient

from sparklog.local_broker import embedded
from tests.compatibility import kafka_tools as tools
from tests.compatibility.clients import PATIENCE_S
from tests.compatibility.conftest import LiveBroker
from tests.compatibility.kafka_broker import NODE_ID, RealKafka
from tests.compatibility.kafka_tools import all_that_is_said, kafka_tool

pytestmark = pytest.mark.compat

LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
METADATA_QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
REASSIGN_PARTITIONS = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LEADER_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
ACLS = "org.apache.kafka.tools.AclCommand"

QUOTA_ENTITIES = (
    ("--entity-type", "users", "--entity-name", "u"),
    ("--entity-type", "users", "--entity-name", "u", "--entity-type", "clients", "--entity-name", "c"),
    ("--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-default"),
    ("--entity-type", "clients", "--entity-default"),
)


def test_kafka_log_dirs_tells_sizes_that_are_those_of_the_files(live: LiveBroker) -> None:
    topic = live.create("measured", partitions=2)
    producer = confluent_kafka.Producer({"bootstrap.servers": live.bootstrap_servers})
    producer.produce(topic, b"x" * 1000, partition=1)
    assert producer.flush(PATIENCE_S) == 0
    output = kafka_tool(
        LOG_DIRS, "--bootstrap-server", live.bootstrap_servers, "--describe", "--topic-list", topic
    )
    told = json.loads(output.splitlines()[-1])
    ((directory,),) = [broker["logDirs"] for broker in told["brokers"]]
    assert directory["error"] is None
    sizes = {
        part["partition"]: (part["size"], part["offsetLag"], part["isFuture"])
        for part in directory["partitions"]
    }
    (log,) = live.data_dir.rglob(f"{topic}-1/*.log")
    assert sizes == {f"{topic}-0": (0, 0, False), f"{topic}-1": (log.stat().st_size, 0, False)}


def test_kafka_configs_sets_tells_and_removes_quotas(live: LiveBroker) -> None:
    server = ("--bootstrap-server", live.bootstrap_servers)
    user = ("--entity-type", "users", "--entity-name", f"u-{live.create('n')}")
    output = kafka_tool(
        tools.CONFIGS,
        *server,
        "--alter",
        *user,
        "--add-config",
        "producer_byte_rate=1024,request_percentage=2.5",
    )
    assert output == f"Completed updating config for user {user[-1]}.\n"
    described = kafka_tool(tools.CONFIGS, *server, "--describe", *user)
    assert described.startswith(f"Quota configs for user-principal '{user[-1]}' are ")
    assert {"producer_byte_rate=1024.0", "request_percentage=2.5"} == set(
        re.findall(r"\w+=[\d.]+", described)
    )
    (log,) = live.data_dir.rglob("__cluster_metadata-0/*0.log")
    dumped = kafka_tool(tools.DUMP_LOG, "--cluster-metadata-decoder", "--files", log)
    kept = [
        json.loads(line.partition("payload: ")[2])["data"]
        for line in dumped.splitlines()
        if '"CLIENT_QUOTA_RECORD"' in line
    ]
    entity = [{"entityType": "user", "entityName": user[-1]}]
    assert sorted((one["key"], one["value"]) for one in kept if one["entity"] == entity) == [
        ("producer_byte_rate", 1024.0),
        ("request_percentage", 2.5),
    ]
    kafka_tool(
        tools.CONFIGS, *server, "--alter", *user, "--delete-config", "producer_byte_rate,request_percentage"
    )
    assert kafka_tool(tools.CONFIGS, *server, "--describe", *user) == ""


def test_a_producer_of_librdkafka_over_its_quota_is_told_and_loses_nothing(live: LiveBroker) -> None:
    topic = live.create("throttled")
    client = ("--entity-type", "clients", "--entity-name", topic)
    kafka_tool(
        tools.CONFIGS,
        "--bootstrap-server",
        live.bootstrap_servers,
        "--alter",
        *client,
        "--add-config",
        "producer_byte_rate=20000",
    )
    delays: list[float] = []
    settings = {"bootstrap.servers": live.bootstrap_servers, "client.id": topic, "batch.num.messages": 1}
    producer = confluent_kafka.Producer(
        {**settings, "throttle_cb": lambda event: delays.append(event.throttle_time)}
    )
    # Ten windows of a second hold 200 kB.
    for _ in range(24):
        producer.produce(topic, b"x" * 10_000)
    assert producer.flush(PATIENCE_S) == 0
    assert max(delays, default=0) > 0.5
    end = confluent_kafka.Consumer({"bootstrap.servers": live.bootstrap_servers, "group.id": "unused"})
    assert end.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=PATIENCE_S) == (0, 24)
    end.close()


def test_kafka_metadata_quorum_finds_one_voter_that_leads(live: LiveBroker) -> None:
    output = kafka_tool(METADATA_QUORUM, "--bootstrap-server", live.bootstrap_servers, "describe", "--status")
    status = dict(re.findall(r"^(\w+):\s+(.*)$", output, re.MULTILINE))
    (voter,) = json.loads(status["CurrentVoters"])
    assert (int(status["LeaderId"]), status["CurrentObservers"]) == (voter["id"], "[]")
    assert (status["MaxFollowerLag"], status["MaxFollowerLagTimeMs"]) == ("0", "0")


# -- side by side


def conversation(server: str, work: Path) -> Iterator[tuple[str, str]]:
    """(request, reply), the same on every broker but for `plainly`."""
    at = ("--bootstrap-server", server)

    def said(name: str, main_class: str, *arguments: str | Path) -> tuple[str, str]:
        return name, plainly(all_that_is_said(main_class, *arguments), server)

    def topics(name: str, *arguments: str) -> tuple[str, str]:
        return said(f"topics {name}", tools.TOPICS, *at, *arguments)

    yield topics(
        "create assigned", "--create", "--topic", "a", "--replica-assignment", f"{NODE_ID},{NODE_ID}"
    )
    yield topics("create again", "--create", "--topic", "a")
    yield topics("create if there is none", "--create", "--topic", "a", "--if-not-exists")
    yield topics("create on nobody", "--create", "--topic", "b", "--replica-assignment", "7")
    yield topics("create three copies", "--create", "--topic", "b", "--replication-factor", "3")
    yield topics("create a bad name", "--create", "--topic", "b/c")
    yield topics("create a long name", "--create", "--topic", "n" * 250)
    yield topics("create dots", "--create", "--topic", "..")
    yield topics("create a bad setting", "--create", "--topic", "b", "--config", "segment.bytes=1")
    yield topics("create another", "--create", "--topic", "b", "--partitions", "3")
    yield topics("create a name like another", "--create", "--topic", "x.y")
    yield topics("create a name that collides", "--create", "--topic", "x_y")
    yield topics("shrink", "--alter", "--topic", "b", "--partitions", "1")
    yield topics("grow by nothing", "--alter", "--topic", "b", "--partitions", "3")
    yield topics(
        "grow assigned",
        "--alter",
        "--topic",
        "a",
        "--partitions",
        "3",
        "--replica-assignment",
        f"{NODE_ID},{NODE_ID},{NODE_ID}",
    )
    yield topics(
        "grow onto nobody",
        "--alter",
        "--topic",
        "a",
        "--partitions",
        "4",
        "--replica-assignment",
        f"{NODE_ID},{NODE_ID},{NODE_ID},7",
    )
    yield topics("describe", "--describe", "--topic", "a|b")
    yield topics("describe page by page", "--describe", "--partition-size-limit-per-response", "2")
    yield topics("describe what is missing", "--describe", "--topic", "missing")
    yield topics("describe what is unavailable", "--describe", "--unavailable-partitions")
    yield topics("list", "--list")

    yield said("log-dirs", LOG_DIRS, *at, "--describe")
    yield said("log-dirs of one", LOG_DIRS, *at, "--describe", "--topic-list", "b")
    yield said("log-dirs of a stranger", LOG_DIRS, *at, "--describe", "--broker-list", "7")
    yield said("quorum", METADATA_QUORUM, *at, "describe", "--status")
    yield said("quorum replication", METADATA_QUORUM, *at, "describe", "--replication")

    for kind in ("preferred", "unclean"):
        yield said(
            f"elect all {kind}", LEADER_ELECTION, *at, "--election-type", kind, "--all-topic-partitions"
        )
        yield said(
            f"elect one {kind}",
            LEADER_ELECTION,
            *at,
            "--election-type",
            kind,
            "--topic",
            "a",
            "--partition",
            "0",
        )
        yield said(
            f"elect none {kind}",
            LEADER_ELECTION,
            *at,
            "--election-type",
            kind,
            "--topic",
            "missing",
            "--partition",
            "0",
        )

    def plan(name: str, *moves: tuple[str, int, list[int]]) -> Path:
        partitions = [
            {"topic": topic, "partition": partition, "replicas": nodes} for topic, partition, nodes in moves
        ]
        path = work / f"{name}.json"
        path.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return path

    file = "--reassignment-json-file"
    stay, away = plan("stay", ("a", 0, [NODE_ID])), plan("away", ("a", 0, [7]))
    missing, twice = plan("missing", ("missing", 0, [NODE_ID])), plan("twice", ("a", 0, [NODE_ID, NODE_ID]))
    yield said("reassign where it is", REASSIGN_PARTITIONS, *at, "--execute", file, stay)
    yield said("verify", REASSIGN_PARTITIONS, *at, "--verify", file, stay)
    yield said("reassign to nobody", REASSIGN_PARTITIONS, *at, "--execute", file, away)
    yield said("reassign what is missing", REASSIGN_PARTITIONS, *at, "--execute", file, missing)
    yield said("reassign twice", REASSIGN_PARTITIONS, *at, "--execute", file, twice)
    yield said("cancel", REASSIGN_PARTITIONS, *at, "--cancel", file, stay)
    yield said("list reassignments", REASSIGN_PARTITIONS, *at, "--list")

    yield said("unregister a stranger", CLUSTER, "unregister", *at, "--id", "7")
    yield said("list endpoints", CLUSTER, "list-endpoints", *at, "--include-fenced-brokers")
    yield said("an unknown feature", FEATURES, *at, "upgrade", "--feature", "no.such.feature=1")
    yield said("producers", TRANSACTIONS, *at, "describe-producers", "--topic", "a", "--partition", "0")

    def quotas(name: str, *arguments: str) -> tuple[str, str]:
        return said(f"quotas {name}", tools.CONFIGS, *at, *arguments)

    for number, entity in enumerate(QUOTA_ENTITIES):
        yield quotas(
            f"set {number}", "--alter", *entity, "--add-config", f"consumer_byte_rate={1000 + number}"
        )
    yield quotas(
        "set for an address",
        "--alter",
        "--entity-type",
        "ips",
        "--entity-name",
        "127.0.0.1",
        "--add-config",
        "connection_creation_rate=5",
    )
    yield quotas("set a fraction", "--alter", *QUOTA_ENTITIES[0], "--add-config", "consumer_byte_rate=1.5")
    yield quotas("set nothing", "--alter", *QUOTA_ENTITIES[0], "--add-config", "consumer_byte_rate=0")
    yield quotas("set an unknown key", "--alter", *QUOTA_ENTITIES[0], "--add-config", "no_such_rate=1")
    yield quotas(
        "delete what is not there", "--alter", *QUOTA_ENTITIES[0], "--delete-config", "producer_byte_rate"
    )
    for number, entity in enumerate(QUOTA_ENTITIES):
        yield quotas(f"describe {number}", "--describe", *entity)
    yield quotas("describe users", "--describe", "--entity-type", "users")
    yield quotas("describe clients", "--describe", "--entity-type", "clients")
    yield quotas("describe addresses", "--describe", "--entity-type", "ips")
    yield from without_security(server)
    yield topics("delete", "--delete", "--topic", "a")
    yield topics("delete what is missing", "--delete", "--topic", "missing")


def without_security(server: str) -> Iterator[tuple[str, str]]:
    """Credentials and access rules, by name of the step, at a cluster that has no security."""

    def credentials(name: str, *arguments: str) -> tuple[str, str]:
        user = ("--entity-type", "users", "--entity-name", "salted")
        return name, plainly(
            all_that_is_said(
                tools.CONFIGS, "--bootstrap-server", server, *arguments[:1], *user, *arguments[1:]
            ),
            server,
        )

    def rules(name: str, *arguments: str) -> tuple[str, str]:
        return name, plainly(all_that_is_said(ACLS, "--bootstrap-server", server, *arguments), server)

    yield credentials(
        "set a credential", "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=p]"
    )
    yield credentials("set another", "--alter", "--add-config", "SCRAM-SHA-512=[password=p]")
    yield credentials(
        "set two at once", "--alter", "--add-config", "SCRAM-SHA-256=[password=p],SCRAM-SHA-512=[password=p]"
    )
    yield credentials("delete a credential", "--alter", "--delete-config", "SCRAM-SHA-512")
    yield credentials("describe credentials", "--describe")
    yield credentials("delete it again", "--alter", "--delete-config", "SCRAM-SHA-512")
    yield rules("list access rules", "--list")
    yield rules(
        "add an access rule", "--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "a"
    )
    yield rules(
        "remove an access rule",
        "--remove",
        "--force",
        "--allow-principal",
        "User:a",
        "--operation",
        "Read",
        "--topic",
        "a",
    )


def plainly(output: str, server: str) -> str:
    """Without values that differ by chance: times, ids, ports, paths and offsets of the metadata log, and the
    order of Java's hash tables.
    """
    text = output.replace(server, "SERVER").replace(server.rpartition(":")[2], "PORT")
    text = re.sub(r"(TopicId|ClusterId|directoryId)(\"?:\s*\"?)[\w-]{22}", r"\1\2ID", text)
    text = re.sub(r"\[\d{4}-\d\d-\d\d [\d:,]+\]", "[TIME]", text)
    text = re.sub(r"\"logDir\":\"[^\"]*\"", '"logDir":"DIR"', text)
    text = re.sub(r"\"log_dirs\":\s*\[\"[^\"]*\"\]", '"log_dirs":["DIR"]', text)
    text = re.sub(r"^(LeaderEpoch|HighWatermark):.*$", r"\1: N", text, flags=re.MULTILINE)
    # With voters that are named in its settings Kafka knows no directories of theirs, and with the feature
    # for eligible leaders it sets min.insync.replicas for the whole cluster.
    text = text.replace('"directoryId": "ID", ', "").replace("Configs: min.insync.replicas=1", "Configs: ")
    text = re.sub(
        r"^(\d+)\s*\t[\w-]{22}\t\d+\s*\t(\d+)\s*\t\d+\s*\t\d+\s*\t(\w+)\s*$",
        r"\1 ID N \2 T T \3",
        text,
        flags=re.MULTILINE,
    )
    text = re.sub(r"\"endpoints\": \[[^\]]*\]", '"endpoints": []', text)
    return "\n".join(
        _sorted_inside(line) for line in text.splitlines() if not line.lstrip().startswith("at ")
    )


def _sorted_inside(line: str) -> str:
    if not line.startswith('{"version"'):
        return line
    told = json.loads(line)
    for broker in told.get("brokers", ()):
        for directory in broker["logDirs"]:
            directory["partitions"].sort(key=lambda part: part["partition"])
    return json.dumps(told, sort_keys=True)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_kafkas_tools_print_of_us_what_they_print_of_a_real_kafka(tmp_path: Path) -> None:
    real = RealKafka(tmp_path)
    with real.running():
        expected = dict(conversation(real.bootstrap_servers, tmp_path))
    with embedded(data_dir=tmp_path / "ours", node_id=NODE_ID) as broker:
        found = dict(conversation(broker.bootstrap_servers, tmp_path))
    different = {name: (expected[name], said) for name, said in found.items() if said != expected[name]}
    assert not different, "\n".join(
        f"== {name}\n-- Kafka\n{theirs}\n-- ours\n{ours}" for name, (theirs, ours) in different.items()
    )


# -- clients


def test_the_admin_client_of_librdkafka_keeps_scram_credentials_and_is_refused_an_access_rule(
    live: LiveBroker,
) -> None:
    admin = AdminClient({"bootstrap.servers": live.bootstrap_servers})
    user = live.create("user")
    mechanism = confluent_kafka.admin.ScramMechanism.SCRAM_SHA_512
    info = confluent_kafka.admin.ScramCredentialInfo(mechanism, 5000)
    change = confluent_kafka.admin.UserScramCredentialUpsertion(user, info, b"password", b"salt")
    admin.alter_user_scram_credentials([change])[user].result(timeout=PATIENCE_S)
    told = admin.describe_user_scram_credentials([user])[user].result(timeout=PATIENCE_S)
    assert [(one.mechanism, one.iterations) for one in told.scram_credential_infos] == [(mechanism, 5000)]
    acls = confluent_kafka.admin
    rule = acls.AclBinding(
        acls.ResourceType.TOPIC,
        "t",
        acls.ResourcePatternType.LITERAL,
        "User:a",
        "*",
        acls.AclOperation.READ,
        acls.AclPermissionType.ALLOW,
    )
    with pytest.raises(confluent_kafka.KafkaException, match="SECURITY_DISABLED"):
        admin.create_acls([rule])[rule].result(timeout=PATIENCE_S)


def test_the_admin_client_of_librdkafka_creates_with_replicas_written_out_and_describes_the_cluster(
    live: LiveBroker,
) -> None:
    admin = AdminClient({"bootstrap.servers": live.bootstrap_servers})
    node = next(iter(admin.list_topics(timeout=PATIENCE_S).brokers))
    topic = f"assigned-{live.create('n')}"
    admin.create_topics([NewTopic(topic, 2, replica_assignment=[[node], [node]])])[topic].result(
        timeout=PATIENCE_S
    )
    described = admin.describe_topics(confluent_kafka.TopicCollection([topic]))[topic].result(
        timeout=PATIENCE_S
    )
    assert [
        (part.id, part.leader.id, [one.id for one in part.replicas]) for part in described.partitions
    ] == [
        (0, node, [node]),
        (1, node, [node]),
    ]
    cluster = admin.describe_cluster(include_authorized_operations=True).result(timeout=PATIENCE_S)
    assert (cluster.controller.id, len(cluster.authorized_operations)) == (node, 7)
    elected = admin.elect_leaders(
        confluent_kafka.ElectionType.PREFERRED, [confluent_kafka.TopicPartition(topic, 0)]
    )
    error = elected.result(timeout=PATIENCE_S)[confluent_kafka.TopicPartition(topic, 0)]
    assert error.code() == confluent_kafka.KafkaError.ELECTION_NOT_NEEDED
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        admin.create_topics([NewTopic(f"{topic}-2", 1, replica_assignment=[[node + 6]])])[
            f"{topic}-2"
        ].result(timeout=PATIENCE_S)
    assert refused.value.args[0].code() == confluent_kafka.KafkaError.INVALID_REPLICA_ASSIGNMENT


def test_the_admin_client_of_kafka_python_asks_about_a_cluster_of_one(live: LiveBroker) -> None:
    topic = live.create("asked-about", partitions=2)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": live.bootstrap_servers, "enable.idempotence": True}
    )
    producer.produce(topic, b"x", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    admin = KafkaAdminClient(bootstrap_servers=live.bootstrap_servers)
    try:
        (page,) = admin.describe_topic_partitions([topic], response_partition_limit=1)["topics"]
        assert [part["partition_index"] for part in page["partitions"]] == [0]
        (state,) = admin.describe_producers([kafka.TopicPartition(topic, 0)])[
            kafka.TopicPartition(topic, 0)
        ].active_producers
        assert (state.producer_epoch, state.last_sequence) == (0, 0)
        (voters,) = [
            part["current_voters"]
            for one in admin.describe_metadata_quorum()["topics"]
            for part in one["partitions"]
        ]
        assert len(voters) == 1
        assert admin.list_partition_reassignments() == {}
        directories = [one for broker in admin.describe_log_dirs() for one in broker["log_dirs"]]
        assert all(
            one["error_code"] == 0 and one["total_bytes"] > one["usable_bytes"] > 0 for one in directories
        )
        assert admin.describe_features()["metadata.version"]["finalized"] == (30, 30)
    finally:
        admin.close()
