"""A controller with commands given as text: its records are replayed at once, as if every append were
committed.
"""

from collections.abc import Collection

from sparklog.effects import Loss
from sparklog.errors import code_of
from sparklog.model import Instant, Micros, Millis, NodeId, Offset, TopicPartition
from sparklog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from sparklog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from sparklog.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
)
from sparklog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from sparklog.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from sparklog.wire.messages.controller_registration import ControllerRegistrationRequest
from sparklog.wire.messages.controller_registration import Feature as ControllerFeature
from sparklog.wire.messages.controller_registration import Listener as ControllerListener
from sparklog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from sparklog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from sparklog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparklog.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from sparklog.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from sparklog.wire.messages.unregister_broker import UnregisterBrokerRequest
from sparklog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from sparklog.wire.schema import Message
from sparklog_server.config.settings import BrokerSettings
from sparklog_server.controller.controller import Controller
from sparklog_server.controller.quorum_port import QuorumPort
from sparklog_server.controller.sessions import Probe
from sparklog_server.metadata.records import (
    ConfigRecord,
    PartitionRecord,
    TopicRecord,
)
from tests.controller.telling import answer, eligible, told
from tests.entropy import CountingEntropy
from tests.story import arguments

CLUSTER_ID = "a-cluster"


def directory(letter: str) -> bytes:
    return letter.encode() * 16


class QuorumOfOne:
    """Node 1 is the only voter, of a kraft.version that raft does not raise."""

    kraft_version = 0
    voter_ids: Collection[NodeId] = (NodeId(1),)

    def upgrade_kraft_version(self, level: int, *, is_only_validated: bool, now: Instant) -> str | None:
        return f"no upgrade to {level}"


class World:
    """One controller on node 1, its clock and its log's end."""

    def __init__(self, quorum: QuorumPort | None = None, *, idle_interval_ms: int = 0, **given: str) -> None:
        self._given = given
        self._quorum = quorum or QuorumOfOne()
        self._idle_interval_ms = idle_interval_ms
        self._entropy = CountingEntropy()
        self.controller = self._controller()
        self.now = Instant(Micros(0), Millis(1_700_000_000_000))
        self.offset = Offset(0)
        self.appended: list[Message] = []
        self.in_flight: dict[str, Probe] = {}
        self._records_max: int | None = None
        self.controller.activate(self.now)
        self.append(self.controller.bootstrap())

    def _controller(self) -> Controller:
        return Controller(
            BrokerSettings.of(self._given),
            CLUSTER_ID,
            self._entropy,
            self._quorum,
            idle_interval_ms=self._idle_interval_ms,
        )

    def run(self, line: str) -> list[str]:
        words, named = arguments(line)
        return list(getattr(self, "_" + words[0].replace("-", "_"))(words[1:], named))

    def decide(self, command: Message) -> Message:
        """Decide, replay, and return the reply."""
        return self._decided(command)[0]

    def append(self, records: tuple[Message, ...]) -> None:
        self.appended += records
        self.controller.replay(
            [(Offset(self.offset + index), record) for index, record in enumerate(records)]
        )
        self.offset = Offset(self.offset + len(records))

    def _decided(self, command: Message) -> tuple[Message, list[str]]:
        outcome = self.controller.decide(command, self.offset, self.now)
        records = outcome.records if outcome.is_atomic else outcome.records[: self._records_max]
        lines = [told(record, self.name_of) for record in records]
        self.append(records)
        return outcome.reply, lines

    def _register(self, words: list[str], named: dict[str, str]) -> list[str]:
        """register NODE life= [dirs= features= rack= stopped-cleanly[=EPOCH]]: after a clean stop of the
        present epoch, unless another is named.
        """
        broker = self.controller.pending.brokers.get(NodeId(int(words[0])))
        stopped_epoch = broker.epoch if broker and "stopped-cleanly" in words else -1
        request = BrokerRegistrationRequest(
            broker_id=int(words[0]),
            cluster_id=named.get("cluster", CLUSTER_ID),
            incarnation_id=directory(named["life"]),
            listeners=[Listener("PLAINTEXT", "127.0.0.1", int(named.get("port", "9092")), 0)],
            features=[
                Feature("metadata.version", 30, int(named.get("metadata-version-max", "30"))),
                Feature("transaction.version", 0, 2),
                Feature("eligible.leader.replicas.version", 0, 1),
                *(Feature(*one) for one in _ranges(named.get("features", ""))),
            ],
            rack=named.get("rack"),
            log_dirs=[directory(letter) for letter in named.get("dirs", "ABCDEFGHIJKLM"[int(words[0])])],
            previous_broker_epoch=int(named.get("stopped-cleanly", stopped_epoch)),
        )
        reply, lines = self._decided(request)
        return [*lines, f"-> {code_of(reply.error_code).name} epoch={reply.broker_epoch}"]

    def _register_controller(self, words: list[str], named: dict[str, str]) -> list[str]:
        """register-controller NODE life= [features=NAME:LOWEST-HIGHEST,...]"""
        request = ControllerRegistrationRequest(
            controller_id=int(words[0]),
            incarnation_id=directory(named["life"]),
            listeners=[ControllerListener("CONTROLLER", "127.0.0.1", 9093, 0)],
            features=[ControllerFeature(*one) for one in _ranges(named.get("features", ""))],
        )
        reply, lines = self._decided(request)
        return [*lines, f"-> {code_of(reply.error_code).name}"]

    def _features(self, words: list[str], named: dict[str, str]) -> list[str]:
        """features [downgrade] [validate-only] NAME=LEVEL ..."""
        kind = 2 if "downgrade" in words else 1
        updates = [
            FeatureUpdateKey(feature=name, max_version_level=int(level), upgrade_type=kind)
            for name, level in named.items()
        ]
        request = UpdateFeaturesRequest(feature_updates=updates, validate_only="validate-only" in words)
        reply, lines = self._decided(request)
        return [*lines, answer("features", reply.error_code, reply.error_message)]

    def _heartbeat(self, words: list[str], named: dict[str, str]) -> list[str]:
        broker = self.controller.pending.brokers.get(NodeId(int(words[0])))
        request = BrokerHeartbeatRequest(
            broker_id=int(words[0]),
            broker_epoch=int(named.get("epoch", broker.epoch if broker else -1)),
            current_metadata_offset=int(named.get("seen", self.offset - 1)),
            want_fence="want-fence" in words,
            want_shut_down="want-shut-down" in words,
            offline_log_dirs=[directory(letter) for letter in named.get("offline", "")],
            cordoned_log_dirs=[directory(letter) for letter in named["cordoned"]]
            if "cordoned" in named
            else None,
        )
        reply, lines = self._decided(request)
        claims = [name for name in ("is_caught_up", "is_fenced", "should_shut_down") if getattr(reply, name)]
        return [*lines, f"-> {code_of(reply.error_code).name} {' '.join(claims)}".rstrip()]

    def _unregister(self, words: list[str], named: dict[str, str]) -> list[str]:
        reply, lines = self._decided(UnregisterBrokerRequest(int(words[0])))
        return [*lines, answer(f"broker {words[0]}", reply.error_code, reply.error_message)]

    def _create(self, words: list[str], named: dict[str, str]) -> list[str]:
        """create NAME... [partitions= replicas= assign=1,2;2,1 validate-only config.KEY=VALUE]"""
        configs = [
            CreatableTopicConfig(key[len("config.") :], value)
            for key, value in named.items()
            if key.startswith("config.")
        ]
        assignments = (
            [
                CreatableReplicaAssignment(index, [int(node) for node in nodes.split(",") if node])
                for index, nodes in enumerate(named["assign"].split(";"))
            ]
            if "assign" in named
            else []
        )
        topics = [
            CreatableTopic(
                name,
                int(named.get("partitions", "-1")),
                int(named.get("replicas", "-1")),
                assignments,
                configs,
            )
            for name in words
            if name != "validate-only"
        ]
        reply, lines = self._decided(
            CreateTopicsRequest(topics=topics, validate_only="validate-only" in words)
        )
        return [
            *lines,
            *(answer(topic.name, topic.error_code, topic.error_message) for topic in reply.topics),
        ]

    def _place(self, words: list[str], named: dict[str, str]) -> list[str]:
        """place NAME assign=1,2;2,1 [config.KEY=VALUE]: append a topic with several replicas, as a Kafka
        controller would.
        """
        (name,) = words
        topic_id = (name.encode() * 16)[:16]
        brokers = self.controller.pending.brokers
        records: list[Message] = [TopicRecord(name=name, topic_id=topic_id)]
        records += [
            ConfigRecord(resource_type=2, resource_name=name, name=key[len("config.") :], value=value)
            for key, value in named.items()
            if key.startswith("config.")
        ]
        for index, nodes in enumerate(named["assign"].split(";")):
            replicas = [NodeId(int(node)) for node in nodes.split(",")]
            records.append(
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=list(replicas),
                    isr=list(replicas),
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[brokers[node].directories[0] for node in replicas],
                )
            )
        lines = [told(record, self.name_of) for record in records]
        self.append(tuple(records))
        return lines

    def _delete(self, words: list[str], named: dict[str, str]) -> list[str]:
        states = [DeleteTopicState(name=name) for name in words]
        if "id" in named:
            states.append(DeleteTopicState(name=None, topic_id=self._id(named["id"])))
        reply, lines = self._decided(DeleteTopicsRequest(topics=states))
        return [
            *lines,
            *(
                answer(topic.name or "(no name)", topic.error_code, topic.error_message)
                for topic in reply.responses
            ),
        ]

    def _grow(self, words: list[str], named: dict[str, str]) -> list[str]:
        """grow NAME count= [assign=1,2;2,1 validate-only]"""
        assignments = (
            [
                CreatePartitionsAssignment([int(node) for node in nodes.split(",")])
                for nodes in named["assign"].split(";")
            ]
            if "assign" in named
            else None
        )
        topics = [
            CreatePartitionsTopic(name, int(named["count"]), assignments)
            for name in words
            if name != "validate-only"
        ]
        reply, lines = self._decided(
            CreatePartitionsRequest(topics=topics, validate_only="validate-only" in words)
        )
        return [
            *lines,
            *(answer(topic.name, topic.error_code, topic.error_message) for topic in reply.results),
        ]

    def _producer_ids(self, words: list[str], named: dict[str, str]) -> list[str]:
        broker = self.controller.pending.brokers[NodeId(int(words[0]))]
        request = AllocateProducerIdsRequest(int(words[0]), int(named.get("epoch", broker.epoch)))
        reply, lines = self._decided(request)
        return [
            *lines,
            f"-> {code_of(reply.error_code).name} [{reply.producer_id_start}, +{reply.producer_id_len})",
        ]

    def _torn(self, words: list[str], named: dict[str, str]) -> list[str]:
        """torn COUNT COMMAND...: only the first COUNT records of the command reach the log, unless they are
        atomic.
        """
        self._records_max = int(words[0])
        lines = list(getattr(self, "_" + words[1].replace("-", "_"))(words[2:], named))
        self._records_max = None
        return lines[:-1]

    def _lead(self, words: list[str], named: dict[str, str]) -> list[str]:
        """lead [NODE]: the controller of another node, 1 if none is named, begins a leadership."""
        self._given["node.id"] = words[0] if words else "1"
        image = self.controller.pending
        self.controller = self._controller()
        self.controller.reset(image)
        self.controller.activate(self.now)
        self.in_flight = {}
        return []

    def _heartbeat_lost(self, words: list[str], named: dict[str, str]) -> list[str]:
        """heartbeat-lost NODE: the connection of its heartbeats has ended."""
        self.controller.sessions.heartbeat_lost(NodeId(int(words[0])), self.now)
        return []

    def _probes(self, words: list[str], named: dict[str, str]) -> list[str]:
        """probes [NODE=LOSS | NODE=answered ...]: take the probes that are due, and give the outcome of
        those that are named; the others stay in flight.
        """
        self._advance(["0"], {})
        probes = self.controller.take_probes()
        for probe in probes:
            self.in_flight[str(probe.node)] = probe
        for node, outcome in named.items():
            loss = None if outcome == "answered" else Loss[outcome.upper().replace("-", "_")]
            if node in self.in_flight:
                self.controller.sessions.probed(self.in_flight.pop(node), loss, self.now)
        return [f"probe {probe.node} {probe.host}:{probe.port}" for probe in probes] or ["(no probes)"]

    def _assign_dirs(self, words: list[str], named: dict[str, str]) -> list[str]:
        """assign-dirs NODE [epoch=] TOPIC-PARTITION=DIRECTORY ..."""
        epoch = int(named.pop("epoch", self.controller.pending.brokers[NodeId(int(words[0]))].epoch))
        directories = [
            AssignReplicasToDirsRequestDirectoryData(
                directory(letter),
                [
                    AssignReplicasToDirsRequestTopicData(
                        self._id(partition.rsplit("-", 1)[0]),
                        [AssignReplicasToDirsRequestPartitionData(int(partition.rsplit("-", 1)[1]))],
                    )
                ],
            )
            for partition, letter in named.items()
        ]
        reply, lines = self._decided(AssignReplicasToDirsRequest(int(words[0]), epoch, directories))
        return [*lines, f"-> {code_of(reply.error_code).name}"]

    def _config(self, words: list[str], named: dict[str, str]) -> list[str]:
        """config TOPIC | broker NODE | cluster KEY=VALUE ...: no value removes the key."""
        kind, name = (4, "".join(words[1:])) if words[0] in ("broker", "cluster") else (2, words[0])
        configs = [AlterableConfig(key, 0 if value else 1, value or None) for key, value in named.items()]
        resource = AlterConfigsResource(kind, name, configs)
        reply, lines = self._decided(IncrementalAlterConfigsRequest(resources=[resource]))
        (told,) = reply.responses
        return [*lines, answer(" ".join(words), told.error_code, told.error_message)]

    def _elect(self, words: list[str], named: dict[str, str]) -> list[str]:
        """elect preferred | unclean [TOPIC-PARTITION ...]: all partitions if none is named."""
        asked = [
            TopicPartitions(name.rpartition("-")[0], [int(name.rpartition("-")[2])]) for name in words[1:]
        ]
        kind = ["preferred", "unclean"].index(words[0])
        reply, lines = self._decided(ElectLeadersRequest(kind, asked or None))
        return lines + [
            f"-> {topic.topic}-{one.partition_id} {code_of(one.error_code).name}"
            for topic in reply.replica_election_results
            for one in topic.partition_result
        ]

    def _alter_isr(self, words: list[str], named: dict[str, str]) -> list[str]:
        """alter-isr LEADER TOPIC-PARTITION=NODE[@EPOCH],... ... [epoch= leader-epoch= partition-epoch=]
        [v2 recovering]: the present epochs unless others are named.
        """
        image = self.controller.pending
        broker = image.brokers.get(NodeId(int(words[0])))
        epoch = int(named.pop("epoch", broker.epoch if broker else -1))
        leader_epoch, partition_epoch = (named.pop(key, None) for key in ("leader-epoch", "partition-epoch"))
        topics = []
        for name, nodes in named.items():
            topic, _, index = name.rpartition("-")
            known = image.partition(TopicPartition(topic, int(index)))
            states = [BrokerState(*map(int, node.split("@"))) for node in nodes.split(",") if node]
            asked = AlterPartitionRequestPartitionData(
                int(index),
                int(leader_epoch or (known.leader_epoch if known else 0)),
                leader_recovery_state="recovering" in words,
                partition_epoch=int(partition_epoch or (known.partition_epoch if known else 0)),
            )
            if "v2" in words:
                asked.new_isr = [state.broker_id for state in states]
            else:
                asked.new_isr_with_epochs = states
            topics.append(AlterPartitionRequestTopicData(self._id(topic), [asked]))
        reply, lines = self._decided(AlterPartitionRequest(int(words[0]), epoch, topics))
        if reply.error_code:
            return [*lines, f"-> {code_of(reply.error_code).name}"]
        for topic in reply.topics:
            for one in topic.partitions:
                state = f"leader={one.leader_id} e{one.leader_epoch} isr={','.join(map(str, one.isr))} p{one.partition_epoch}"  # noqa: E501
                code = code_of(one.error_code)
                name = f"{self.name_of(topic.topic_id)}-{one.partition_index}"
                lines.append(f"-> {name} {code.name if code else state}")
        return lines

    def _advance(self, words: list[str], named: dict[str, str]) -> list[str]:
        """advance SECONDS | MILLISms: advance the clock and let the controller fence expired brokers."""
        word = words[0]
        millis = int(word[:-2]) if word.endswith("ms") else int(word) * 1000
        self.now = Instant(
            Micros(self.now.mono_us + millis * 1000),
            Millis(self.now.wall_ms + millis),
        )
        lines: list[str] = []
        while records := self.controller.tick(self.now):
            lines += [told(record, self.name_of) for record in records]
            self.append(records)
        return lines or ["(nothing)"]

    def _show(self, words: list[str], named: dict[str, str]) -> list[str]:
        image = self.controller.pending
        lines = []
        for name in words or sorted(image.topics_by_name):
            topic = image.topics_by_name.get(name)
            for index, one in enumerate(topic.partitions if topic else ()):
                numbers = [",".join(map(str, nodes)) for nodes in (one.replicas, one.isr)]
                lines.append(
                    f"{name}-{index} replicas={numbers[0]} isr={numbers[1]} leader={one.leader} "
                    f"e{one.leader_epoch}{eligible(one)}"
                )
        return lines or ["(no topics)"]

    def _id(self, name: str) -> bytes:
        topic = self.controller.pending.topics_by_name.get(name)
        return topic.topic_id if topic else bytes(15) + b"\x09"

    def name_of(self, topic_id: bytes) -> str:
        topic = self.controller.pending.topics_by_id.get(topic_id)
        return topic.name if topic else "?"


def _ranges(text: str) -> list[tuple[str, int, int]]:
    """The features in `NAME:LOWEST-HIGHEST,...`."""
    ranges = [one.replace(":", "-").split("-") for one in text.split(",") if one]
    return [(name, int(lowest), int(highest)) for name, lowest, highest in ranges]
