"""Requests that a cluster could well be sent: every field has a value that fits the others, or one that
fits another client's request.

Contents of replies (producer ids, members, topic ids, settings) are stored and sent again: by their owner,
by another, too early, too late.
"""

from collections import deque
from collections.abc import Callable, Sequence
from math import inf, nan
from random import Random

from sparklog.errors import ErrorCode
from sparklog.record.batch import build_batch
from sparklog.wire import schema
from sparklog.wire.api_keys import API_BY_KEY
from sparklog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from sparklog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from sparklog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from sparklog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from sparklog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from sparklog.wire.schema import Field, Message
from tests.broker.imagined_clients import (
    APIS,
    ASSIGNMENT,
    CLASSIC,
    EPOCH_MAX,
    GROUPS,
    INSTANCES,
    JOINING,
    MEMBERSHIP,
    MODERN,
    NUMBERS,
    OF_CLASSIC_GROUPS,
    OF_MODERN_GROUPS,
    OF_TRANSACTIONS,
    PRODUCING,
    STRANGE_NAMES,
    SUBSCRIPTION,
    TOPICS,
    TRANSACTION,
    TRANSACTIONAL_IDS,
    WORDS,
    Member,
    Producer,
    in_time,
    newcomers,
)
from tests.wire.arbitrary import arbitrary

NO_UUID = bytes(16)


class Imagination:
    """Makes requests from a seed, and handles their replies."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self._producers: deque[Producer] = deque([Producer("a", 0, 0), Producer(None, 1, 0)], 8)
        self._members: deque[Member] = deque(newcomers(), 12)
        self._topic_ids: dict[str, bytes] = {}
        self._configs: list[tuple[str, str]] = [
            ("retention.ms", "1000"),
            ("segment.bytes", "1048576"),
            ("cleanup.policy", "compact"),
        ]
        self._session = (0, -1)
        self._intended: deque[tuple[int, Producer | Member]] = deque(maxlen=30)
        self._topic, self._producer, self._member = "t", self._producers[0], self._members[0]
        self._config = self._configs[0]
        self._fields: dict[str, Callable[[], object]] = self._made_fields()

    # -- a request

    def beginnings(self) -> list[tuple[Message, int, type[Message]]]:
        """What makes a cluster that most requests mean: topics, coordinators, producers, and the names of
        settings.
        """
        wanted = [CreatableTopic(name, 2, 1) for name in ("t", "u")]
        keys = [
            FindCoordinatorRequest(key_type=kind, coordinator_keys=list(names))
            for kind, names in ((0, GROUPS), (1, TRANSACTIONAL_IDS))
        ]
        resources = [
            DescribeConfigsResource(2, "t"),
            DescribeConfigsResource(4, "1"),
            DescribeConfigsResource(32, "g"),
        ]
        inits = [InitProducerIdRequest(name, 60_000) for name in TRANSACTIONAL_IDS]
        return [
            (CreateTopicsRequest(wanted, 30_000), 7, CreateTopicsResponse),
            *((one, 4, FindCoordinatorResponse) for one in keys),
            (DescribeConfigsRequest(resources=resources), 4, DescribeConfigsResponse),
            *((one, 5, InitProducerIdResponse) for one in inits),
        ]

    def request(self) -> tuple[Message, int, type[Message] | None]:
        """A request, its version and the class of its answer; no class if there will be none."""
        random = self.random
        intended = self._intended.popleft() if self._intended and random.random() < 0.5 else None
        api = API_BY_KEY[random.choice(APIS) if intended is None else intended[0]]
        cls, version = (
            api.request(),
            random.choice((api.until, api.until, random.randint(api.since, api.until))),
        )
        if random.random() < 0.01:
            request = in_time(arbitrary(cls, version, random))
            return request, version, None if getattr(request, "acks", 1) == 0 else api.reply()
        self._topic = random.choice(TOPICS) if random.random() < 0.97 else random.choice(STRANGE_NAMES)
        producers = [one for one in self._producers if one.transactional_id or api.key not in OF_TRANSACTIONS]
        self._producer = random.choice(producers or self._producers)
        self._member = self._some_member(api.key)
        if intended is not None and isinstance(intended[1], Producer):
            self._topic, self._producer = random.choice(("t", "u")), intended[1]
        elif intended is not None and isinstance(intended[1], Member):
            self._member = intended[1]
        request = self._message(cls, version)
        if isinstance(request, ConsumerGroupHeartbeatRequest) and random.random() < 0.7:
            self._sensible(request)
        return request, version, None if getattr(request, "acks", 1) == 0 else api.reply()

    def _sensible(self, request: ConsumerGroupHeartbeatRequest) -> None:
        """Say what a member says when it joins, or nothing new."""
        is_joining = request.member_epoch <= 0
        request.rebalance_timeout_ms = 10_000 if is_joining else -1
        request.subscribed_topic_names = ["t", "u"] if is_joining else None
        request.topic_partitions = [] if is_joining else None
        request.subscribed_topic_regex = request.server_assignor = request.rack_id = None

    def _message(self, cls: type[Message], version: int) -> Message:
        return cls(*(self._value(cls, field, version) for field in schema.fields(cls)))

    def _value(self, cls: type[Message], field: Field, version: int) -> object:
        random = self.random
        if not field.since <= version <= field.until or (field.tag >= 0 and random.random() < 0.5):
            return field.default if field.factory is None else field.factory()
        if version >= field.nullable_since and field.tag < 0 and random.random() < 0.08:
            return None
        if field.is_array:
            return [self._element(cls, field, version) for _ in range(random.choice((0, 1, 1, 1, 1, 2)))]
        return self._element(cls, field, version)

    def _element(self, cls: type[Message], field: Field, version: int) -> object:
        if field.struct is not None:
            return self._message(field.struct, version)
        if field.wire_type == schema.RECORDS:
            return self._records()
        if field.name == "name" or field.name == "value":
            return self._named(cls, field)
        make = self._fields.get(field.name)
        if make is None:
            return self._any(field)
        value = make()
        return "" if value is None and version < field.nullable_since else value

    def _any(self, field: Field) -> object:
        """A value of the field's type."""
        random = self.random
        if field.wire_type == schema.BOOL:
            return random.random() < 0.5
        if field.wire_type == schema.FLOAT64:
            return random.choice((-1.0, 1e5, 1e18, inf, nan))  # a quota near 0 mutes its clients for good
        if field.wire_type == schema.UUID:
            return self._some_topic_id()
        if field.wire_type == schema.STRING:
            return random.choice(
                (
                    "",
                    "x",
                    "range",
                    "consumer",
                    "user",
                    "client-id",
                    "producer_byte_rate",
                    "Empty",
                    "Ongoing",
                    "^t.*",
                )
            )
        if field.wire_type == schema.BYTES:
            return random.choice((b"", SUBSCRIPTION, ASSIGNMENT))
        if field.wire_type == schema.UINT16:
            return random.choice((0, 1, 9092, 65_535))
        return random.choice((-1, 0, 0, 1, 1, 2, 3, 100))

    def _named(self, cls: type[Message], field: Field) -> object:
        """A `name` or a `value`, which many things have."""
        random = self.random
        if field.wire_type == schema.FLOAT64:
            return self._any(field)
        if "Config" in cls.__name__:
            self._config = random.choice(self._configs) if field.name == "name" else self._config
            if field.name == "name":
                return self._config[0]
            return self._config[1] if random.random() < 0.3 else random.choice(NUMBERS + WORDS)
        if "Protocol" in cls.__name__:
            return random.choice((*["range"] * 9, "roundrobin", ""))
        return self._some_topic()

    # -- fields

    def _made_fields(self) -> dict[str, Callable[[], object]]:
        random = self.random
        few = (-1, 0, 0, 0, 1, 2, 7)

        def one_of(*values: object) -> Callable[[], object]:
            return lambda: random.choice(values)

        def partition() -> object:
            return random.choice((0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2, -1, 2**31 - 1))

        def offset() -> object:
            return random.choice((0, 0, 1, 2, 5, 20, -1, -2, 2**63 - 1))

        return {
            "topic": self._some_topic,
            "topic_name": self._some_topic,
            "topic_names": self._some_topic,
            "subscribed_topic_names": self._some_topic,
            "topic_id": self._some_topic_id,
            "index": partition,
            "partition": partition,
            "partition_index": partition,
            "partition_indexes": partition,
            "partitions": partition,
            "num_partitions": one_of(-1, 1, 1, 2, 3, 0),
            "count": one_of(0, 1, 2, 3, 4, 5),
            "replication_factor": one_of(-1, 1, 1, 1, 1, 1, 2),
            "broker_ids": one_of(1, 1, 1, 1, 1, 2),
            "replicas": one_of(1, 1, 2),
            "broker_id": one_of(-1, 0, 1, 2, 3),
            "replica_id": one_of(-1, -1, -1, -1, 1, 2),
            "acks": one_of(-1, -1, -1, -1, -1, 1, 1, 0, 2),
            "timeout_ms": one_of(0, 1, 500, 30_000),
            "max_wait_ms": one_of(0, 1, 100, 500),
            "min_bytes": one_of(0, 1, 1, 1000),
            "max_bytes": one_of(0, 1, 1 << 20),
            "partition_max_bytes": one_of(0, 1, 1 << 20),
            "fetch_offset": offset,
            "offset": offset,
            "committed_offset": offset,
            "log_start_offset": offset,
            "timestamp": one_of(-1, -2, -3, -4, -5, 0, 1_700_000_000_000),
            "leader_epoch": one_of(*few),
            "current_leader_epoch": one_of(-1, -1, 0, 1),
            "last_fetched_epoch": one_of(-1, -1, 0, 1),
            "committed_leader_epoch": one_of(-1, -1, 0, 1),
            "coordinator_epoch": one_of(0, 0, 0, 1, -1, 2**31 - 1),
            "session_id": lambda: self._session[0] if random.random() < 0.8 else random.choice(few),
            "session_epoch": lambda: self._session[1] if random.random() < 0.8 else random.choice(few),
            "transactional_id": self._some_transactional_id,
            "transactional_ids": self._some_transactional_id,
            "v3_and_below_transactional_id": self._some_transactional_id,
            "producer_id": self._some_producer_id,
            "producer_id_filters": self._some_producer_id,
            "v3_and_below_producer_id": self._some_producer_id,
            "producer_epoch": self._some_producer_epoch,
            "v3_and_below_producer_epoch": self._some_producer_epoch,
            "transaction_timeout_ms": one_of(60_000, 60_000, 60_000, 1000, 1, 0, -1, 2**31 - 1),
            "transaction_version": one_of(0, 1, 2, 2, 3, -1),
            "group_id": self._some_group,
            "group_ids": self._some_group,
            "groups": self._some_group,
            "groups_names": self._some_group,
            "coordinator_keys": lambda: random.choice((*GROUPS, *TRANSACTIONAL_IDS)),
            "key": lambda: random.choice((*GROUPS, *TRANSACTIONAL_IDS, "producer_byte_rate", "consumer_byte_rate", "request_percentage")),  # noqa: E501
            "key_type": one_of(0, 1, 0, 1, 2, 3),
            "member_id": lambda: self._member.member_id if random.random() < 0.9 else random.choice(("", "x", "y" * 22)),  # noqa: E501
            "group_instance_id": self._some_instance,
            "instance_id": self._some_instance,
            "generation_id": self._some_generation,
            "generation_id_or_member_epoch": self._some_generation,
            "member_epoch": self._some_generation,
            "protocol_type": one_of(*["consumer"] * 12, "connect", ""),
            "protocol_name": one_of(*["range"] * 9, "roundrobin", None),
            "metadata": one_of(SUBSCRIPTION, SUBSCRIPTION, b"", b"\xff"),
            "assignment": one_of(ASSIGNMENT, ASSIGNMENT, b"", b"\xff"),
            "committed_metadata": one_of("", "m", "m" * 5000),
            "session_timeout_ms": one_of(6000, 6000, 10_000, 10_000, 45_000, 45_000, 1),
            "rebalance_timeout_ms": one_of(100, 1000, 10_000, -1, 0),
            "server_assignor": one_of(None, "uniform", "range", "x"),
            "subscribed_topic_regex": one_of(None, "", "^t", "(", ".*"),
            "retention_time_ms": one_of(-1, 0, 1000),
            "resource_type": one_of(2, 2, 2, 4, 8, 16, 32, 0),
            "resource_types": one_of(2, 4, 8, 16),
            "resource_name": self._some_resource,
            "configuration_keys": lambda: random.choice(self._configs)[0],
            "config_operation": one_of(0, 0, 1, 2, 3, 9),
            "path": one_of("/data", "/other", "/nowhere", "any"),
            "feature": one_of("transaction.version", "group.version", "metadata.version", "kraft.version", "x"),  # noqa: E501
            "max_version_level": one_of(0, 1, 2, 3, 30),
            "upgrade_type": one_of(0, 1, 2, 3),
            "match_type": one_of(0, 1, 2, 3),
            "isolation_level": one_of(0, 1, 1, 2),
            "response_partition_limit": one_of(1, 2, 2000),
            "duration_filter": one_of(-1, 0, 1000),
            "cluster_id": one_of(None, None, "x"),
            "rack_id": one_of("", "r"),
        }  # fmt: skip

    def _some_topic(self) -> str:
        return self._topic if self.random.random() < 0.9 else self.random.choice(TOPICS)

    def _some_topic_id(self) -> bytes:
        random = self.random
        return (
            self._topic_ids.get(self._topic, NO_UUID)
            if random.random() < 0.9
            else random.choice([NO_UUID, *self._topic_ids.values()])
        )

    def _some_member(self, api_key: int) -> Member:
        """A member that there is, of the kind that the API is for, or one that there will be."""
        random = self.random
        groups = (
            CLASSIC if api_key in OF_CLASSIC_GROUPS else MODERN if api_key in OF_MODERN_GROUPS else GROUPS
        )
        found = [one for one in self._members if one.group in groups]
        if not found or random.random() < 0.3:
            found = [one for one in newcomers() if one.group in groups]
        return random.choice(found) if random.random() < 0.95 else random.choice(self._members)

    def _some_group(self) -> str:
        return self._member.group if self.random.random() < 0.8 else self.random.choice((*GROUPS, ""))

    def _some_instance(self) -> str | None:
        return self._member.instance if self.random.random() < 0.8 else self.random.choice(INSTANCES)

    def _some_generation(self) -> int:
        generation = self._member.generation
        return (
            generation
            if self.random.random() < 0.8
            else self.random.choice((-2, -1, 0, generation - 1, generation + 1, 2**31 - 1))
        )

    def _some_transactional_id(self) -> str | None:
        return (
            self._producer.transactional_id
            if self.random.random() < 0.85
            else self.random.choice((*TRANSACTIONAL_IDS, "", None))
        )

    def _some_producer_id(self) -> int:
        return (
            self._producer.producer_id
            if self.random.random() < 0.85
            else self.random.choice((-1, 0, 1, 2, 5, 2**63 - 1))
        )

    def _some_producer_epoch(self) -> int:
        epoch = self._producer.epoch
        wrong = (-1, max(epoch - 1, -1), min(epoch + 1, EPOCH_MAX), EPOCH_MAX - 1, EPOCH_MAX)
        return epoch if self.random.random() < 0.8 else self.random.choice(wrong)

    def _some_resource(self) -> str:
        return self.random.choice((self._topic, self._topic, "1", "", self._member.group))

    def _records(self) -> bytes:
        """A batch, of a producer or of none."""
        random, producer = self.random, self._producer
        values = [
            (random.choice((b"k", b"l", None)), b"v" * random.choice((0, 1, 100)), (), 1_700_000_000_000)
        ] * random.choice((1, 1, 2, 3))
        if random.random() < 0.3:
            return bytes(build_batch(values))
        at = (self._topic, 0)
        first = producer.sequences.get(at, 0) if random.random() < 0.9 else random.choice((0, 1, 5))
        producer.sequences[at] = first + len(values)
        is_transactional = producer.transactional_id is not None and random.random() < 0.9
        epoch = max(self._some_producer_epoch(), 0)
        ids = max(self._some_producer_id(), 0)
        return bytes(
            build_batch(
                values,
                producer_id=ids,
                producer_epoch=epoch,
                base_sequence=first,
                is_transactional=is_transactional,
            )
        )

    # -- content of replies

    def _intend(self, one: Producer | Member, requests: Sequence[int]) -> None:
        """Have a producer or member go on as its client would, some of the way."""
        random = self.random
        self._intended.extend((api_key, one) for api_key in requests if random.random() < 0.7)

    def heard(self, request: Message, reply: Message) -> None:
        """Remember the content of a reply."""
        if isinstance(reply, DescribeConfigsResponse):
            found = [(one.name, one.value or "") for result in reply.results for one in result.configs]
            self._configs = found or self._configs
            return
        producer_id = getattr(reply, "producer_id", -1)
        if isinstance(producer_id, int) and producer_id >= 0 and not getattr(reply, "error_code", 0):
            transactional_id = getattr(request, "transactional_id", None)
            if transactional_id is not None or self.random.random() < 0.2:
                known = Producer(transactional_id, producer_id, reply.producer_epoch)  # type: ignore[attr-defined]
                self._producers.append(known)
                self._intend(known, TRANSACTION if transactional_id is not None else PRODUCING)
        member_id = getattr(reply, "member_id", None)
        if member_id:
            generation = getattr(reply, "generation_id", getattr(reply, "member_epoch", -1))
            instance = getattr(request, "group_instance_id", getattr(request, "instance_id", None))
            member = Member(getattr(request, "group_id", "g"), member_id, generation, instance)
            self._members.append(member)
            error = getattr(reply, "error_code", 0)
            self._intend(
                member, MEMBERSHIP if not error else JOINING if error == ErrorCode.MEMBER_ID_REQUIRED else ()
            )
        for topic in getattr(reply, "topics", ()) or ():
            name, topic_id = getattr(topic, "name", None), getattr(topic, "topic_id", NO_UUID)
            if name is not None and topic_id != NO_UUID:
                self._topic_ids[name] = topic_id
        if getattr(reply, "session_id", 0):
            self._session = (reply.session_id, 1)  # type: ignore[attr-defined]
