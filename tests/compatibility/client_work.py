"""A bounded piece of work for each client: it writes, reads, is a member of a group in each way that it has,
transacts, and administers topics, settings and groups; Kafka's tools and ours administer all else too. A
call that fails ends the work.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import Future

import aiokafka
import confluent_kafka
import kafka
from aiokafka import admin as aio
from confluent_kafka import admin as rd
from kafka import admin as py

import sparklog
from sparklog.client.admin.acls import AclFilter, AclRule
from sparklog.client.admin.admin import LATEST
from sparklog.client.admin.configs import ConfigChange, ConfigResource
from sparklog.client.admin.credentials import ScramUpsertion
from sparklog.client.admin.quotas import QuotaEntity
from tests.compatibility.clients import CONSUMERS, PATIENCE_S, PRODUCERS, Sent
from tests.compatibility.group_members import KAFKAJS, Member
from tests.compatibility.kafka_tools import java_command
from tests.daemon.broker_process import wait_until
from tests.tools import PROJECT, require_command, require_spark_connector, spark_connector_jars

TOPIC, MADE = "t", "made"
COUNT = 10
RECORDS = [Sent(None, b"%d" % number, [], 1_700_000_000_000 + number) for number in range(COUNT)]
CHILD_S_MAX = 300

AwaitHeartbeat = Callable[[], None]
"""Waits until the broker has counted a heartbeat of a group."""


def write_and_read(servers: str, library: str) -> None:
    assert PRODUCERS[library](servers, TOPIC, "none", RECORDS) == list(range(COUNT))
    assert CONSUMERS[library](servers, TOPIC, COUNT) == RECORDS


def join(servers: str, await_heartbeat: AwaitHeartbeat, *ways: str) -> None:
    for way in ways:
        with Member(servers, way, way, TOPIC, is_quick=False) as member:
            member.until(lambda one: len(one.records) >= COUNT and not one.uncommitted)
            await_heartbeat()
            member.leave()


def by_librdkafka(servers: str, await_heartbeat: AwaitHeartbeat) -> None:
    write_and_read(servers, "confluent-kafka")
    groups = ["confluent-classic", "confluent-consumer"]
    join(servers, await_heartbeat, *groups, "confluent-cooperative")
    common: dict[str, object] = {"bootstrap.servers": servers, "log_level": 0}
    at = confluent_kafka.TopicPartition(TOPIC, 0, 1)
    consumer = confluent_kafka.Consumer(common | {"group.id": "transacted"})
    producer = confluent_kafka.Producer(common | {"transactional.id": "id"})
    producer.init_transactions(PATIENCE_S)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce(TOPIC, b"v")
        producer.send_offsets_to_transaction([at], consumer.consumer_group_metadata(), PATIENCE_S)
        end(PATIENCE_S)
    consumer.close()
    admin = rd.AdminClient(common)
    offsets = [confluent_kafka.ConsumerGroupTopicPartitions(groups[0], [at])]
    change = rd.ConfigEntry("retention.ms", "-1", incremental_operation=rd.AlterConfigOpType.SET)
    topic = rd.ConfigResource("topic", TOPIC, incremental_configs=[change])
    done(admin.create_topics([rd.NewTopic(MADE, 1, 1)]))
    done(admin.create_partitions([rd.NewPartitions(MADE, 2)]))
    done(admin.delete_topics([MADE]))
    done(admin.describe_topics(confluent_kafka.TopicCollection([TOPIC])))
    done(admin.describe_cluster())
    done(admin.list_offsets({at: rd.OffsetSpec.latest()}))
    done(admin.delete_records([at]))
    done(admin.describe_configs([topic]))
    done(admin.incremental_alter_configs([topic]))
    done(admin.list_consumer_groups())
    done(admin.describe_consumer_groups(groups))
    done(admin.list_consumer_group_offsets([confluent_kafka.ConsumerGroupTopicPartitions(groups[0])]))
    done(admin.alter_consumer_group_offsets(offsets))
    done(admin.delete_consumer_groups(groups))


def done(asked: "Future[object] | dict[object, Future[object]]") -> None:
    for future in asked.values() if isinstance(asked, dict) else [asked]:
        future.result(timeout=PATIENCE_S)


def by_aiokafka(servers: str, await_heartbeat: AwaitHeartbeat) -> None:
    write_and_read(servers, "aiokafka")
    join(servers, await_heartbeat, "aiokafka")
    asyncio.run(asyncio.wait_for(_transact_and_administer(servers), PATIENCE_S))


async def _transact_and_administer(servers: str) -> None:
    at = aiokafka.TopicPartition(TOPIC, 0)
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id="id") as producer:
        for end in (producer.abort_transaction, producer.commit_transaction):
            await producer.begin_transaction()
            await producer.send_and_wait(TOPIC, b"v")
            await producer.send_offsets_to_transaction({at: 1}, "transacted")
            await end()
    admin = aio.AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    topic = aio.config_resource.ConfigResource("topic", TOPIC, {"retention.ms": "-1"})
    await admin.create_topics([aio.NewTopic(MADE, 1, 1)])
    await admin.create_partitions({MADE: aio.NewPartitions(2)})
    await admin.delete_topics([MADE])
    await admin.describe_topics([TOPIC])
    await admin.describe_configs([topic])
    await admin.alter_configs([topic])
    await admin.list_consumer_groups()
    await admin.describe_consumer_groups(["aiokafka"])
    await admin.list_consumer_group_offsets("aiokafka")
    await admin.delete_records({at: aio.RecordsToDelete(1)})
    await admin.close()


def by_kafka_python(servers: str, await_heartbeat: AwaitHeartbeat) -> None:
    group = "kafka-python"
    write_and_read(servers, group)
    join(servers, await_heartbeat, group)
    at, position = kafka.TopicPartition(TOPIC, 0), kafka.structs.OffsetAndMetadata(1, "", -1)
    producer = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id="id")
    producer.init_transactions()
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.send(TOPIC, b"v").get(timeout=PATIENCE_S)
        producer.send_offsets_to_transaction({at: position}, "transacted")
        end()
    producer.close()
    topic = py.ConfigResource("topic", TOPIC, {"retention.ms": "-1"})
    with py.KafkaAdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics({MADE: {"num_partitions": 1}})
        admin.create_partitions({MADE: 2})
        admin.delete_topics([MADE])
        admin.describe_topics([TOPIC])
        admin.describe_cluster()
        admin.describe_configs([topic])
        admin.alter_configs([topic])
        admin.list_partition_offsets({at: -1})
        admin.delete_records({at: 1})
        admin.list_groups()
        admin.describe_groups([group])
        admin.list_group_offsets(group)
        admin.alter_group_offsets(group, {at: position})
        admin.delete_groups([group])


def by_kafkajs(servers: str, await_heartbeat: AwaitHeartbeat) -> None:
    script = PROJECT / "tests" / "compatibility" / "client_work.js"
    given = json.dumps({"broker": servers, "topic": TOPIC, "made": MADE, "count": COUNT})
    environment = os.environ | {"NODE_PATH": str(KAFKAJS)}
    subprocess.run(
        [require_command("node"), str(script), given], env=environment, timeout=CHILD_S_MAX, check=True
    )
    join(servers, await_heartbeat, "kafkajs")


JAVA = """
ConsoleProducer --topic t
consumer.ConsoleConsumer --topic t --from-beginning --group a --timeout-ms 6000 --command-property group.protocol=classic
consumer.ConsoleConsumer --topic t --from-beginning --group b --timeout-ms 6000 --command-property group.protocol=consumer
TransactionalMessageCopier --input-topic t --input-partition 0 --output-topic u --transactional-id id --consumer-group c
TopicCommand --create --topic made --partitions 1
TopicCommand --alter --topic made --partitions 2
TopicCommand --describe
TopicCommand --delete --topic made
ConfigCommand --alter --topic t --add-config retention.ms=-1
ConfigCommand --describe --topic t
ConfigCommand --alter --entity-type users --entity-name a --add-config SCRAM-SHA-256=[password=p]
ConfigCommand --alter --entity-type users --entity-name a --add-config producer_byte_rate=1024
ConfigCommand --describe --entity-type users --entity-name a
GetOffsetShell --topic t
consumer.group.ConsumerGroupCommand --list
consumer.group.ConsumerGroupCommand --describe --all-groups
consumer.group.ConsumerGroupCommand --reset-offsets --group a --topic t --to-earliest --execute
consumer.group.ConsumerGroupCommand --delete-offsets --group a --topic t
consumer.group.ConsumerGroupCommand --delete --group a
AclCommand --add --allow-principal User:a --operation Read --topic t
AclCommand --list
AclCommand --remove --force --allow-principal User:a --operation Read --topic t
LogDirsCommand --describe
MetadataQuorumCommand describe --status
FeatureCommand describe
LeaderElectionCommand --election-type preferred --all-topic-partitions
TransactionsCommand list
TransactionsCommand describe --transactional-id id
TransactionsCommand describe-producers --topic t --partition 0
"""  # noqa: E501
"""Kafka's tools with their arguments. A console consumer ends when no record has come for 6 s: a member sends
a heartbeat every 3 s.
"""


def by_java(servers: str, await_heartbeat: AwaitHeartbeat) -> None:
    for line in JAVA.strip().splitlines():
        name, *words = line.split()
        package = "kafka.admin" if name == "ConfigCommand" else "org.apache.kafka.tools"
        option = "--broker-list" if name == "TransactionalMessageCopier" else "--bootstrap-server"
        command = java_command(f"{package}.{name}", option, servers, *words)
        given = "".join(f"{number}\n" for number in range(COUNT))
        subprocess.run(
            command, input=given, text=True, timeout=CHILD_S_MAX, check=True, stdout=subprocess.DEVNULL
        )
    await_heartbeat()


SPARK = """
import sys
from pyspark.sql import SparkSession
servers, directory, jars = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.jars", jars)
spark = spark.config("spark.ui.enabled", "false").getOrCreate()
target = {"kafka.bootstrap.servers": servers, "topic": "u"}
source = {"kafka.bootstrap.servers": servers, "subscribe": "u", "startingOffsets": "earliest"}
spark.range(10).selectExpr("CAST(id AS STRING) AS value").write.format("kafka").options(**target).save()
assert spark.read.format("kafka").options(**source).load().count() == 10
stream = spark.readStream.format("kafka").options(**source).load().drop("topic").writeStream.format("kafka")
stream = stream.options(**target, checkpointLocation=directory).trigger(availableNow=True).start()
assert stream.awaitTermination(120)
spark.stop()
"""


def by_spark(servers: str, await_heartbeat: AwaitHeartbeat) -> None:
    require_spark_connector()
    jars = ",".join(map(str, spark_connector_jars()))
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-c", SPARK, servers, directory, jars]
        subprocess.run(command, timeout=CHILD_S_MAX, check=True, stdout=subprocess.DEVNULL)


def by_sparklog(servers: str, await_heartbeat: AwaitHeartbeat) -> None:
    at = sparklog.TopicPartition(TOPIC, 0)
    with sparklog.Producer(bootstrap_servers=servers) as producer:
        for record in RECORDS:
            producer.send(TOPIC, record.value)
    for protocol in ("classic", "consumer"):
        _join_by_sparklog(servers, protocol, await_heartbeat)
    with sparklog.Producer(bootstrap_servers=servers, transactional_id="id") as producer:
        producer.init()
        for end in (producer.abort, producer.commit):
            producer.begin()
            producer.send(TOPIC, b"v")
            producer.send_offsets({at: 1}, sparklog.GroupMetadata("transacted", -1, "", None))
            end()
    with sparklog.Admin(bootstrap_servers=servers) as admin:
        _administer(admin, at)


def _join_by_sparklog(servers: str, protocol: str, await_heartbeat: AwaitHeartbeat) -> None:
    settings = {"group_id": protocol, "group_protocol": protocol, "auto_offset_reset": "earliest"}
    read: list[object] = []
    with sparklog.Consumer(bootstrap_servers=servers, **settings) as consumer:
        consumer.subscribe([TOPIC])
        wait_until(lambda: read.extend(consumer.poll(100)) or len(read) >= COUNT)
        consumer.commit()
        await_heartbeat()


def _administer(admin: sparklog.Admin, at: sparklog.TopicPartition) -> None:
    admin.create_topics({MADE: 1})
    admin.create_partitions({MADE: 2})
    admin.delete_topics([MADE])
    admin.list_topics()
    admin.describe_topics([TOPIC])
    admin.list_offsets({at: LATEST})
    admin.delete_records({at: 1})
    admin.describe_configs([TOPIC])
    admin.alter_configs({ConfigResource("topic", TOPIC): [ConfigChange("retention.ms", "-1")]})
    admin.list_config_resources()
    admin.list_groups()
    admin.describe_groups(["classic", "consumer"])
    admin.list_group_offsets(["classic"])
    admin.alter_group_offsets("classic", {at: 1})
    admin.delete_group_offsets("classic", [at])
    admin.delete_groups(["consumer"])
    admin.list_transactions()
    admin.describe_transactions(["id"])
    admin.describe_producers([at])
    admin.describe_cluster()
    admin.describe_quorum()
    admin.describe_features()
    admin.elect_leaders()
    admin.alter_reassignments({at: [1]})
    admin.list_reassignments()
    admin.describe_log_dirs()
    admin.alter_client_quotas({QuotaEntity.of(user="a"): {"producer_byte_rate": 1024}})
    admin.describe_client_quotas()
    admin.create_acls([AclRule("topic", TOPIC, "User:a", "read")])
    admin.describe_acls()
    admin.delete_acls([AclFilter("topic", TOPIC)])
    admin.alter_user_scram_credentials([ScramUpsertion("a", "p")])
    admin.describe_user_scram_credentials()
