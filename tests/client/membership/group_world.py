"""Members of one group, the client's machines, joined with a real broker in virtual time, told as text.

    topic NAME PARTITIONS
    restart                     kills the broker and starts it again
    join NAME [to=TOPICS | pattern=RE] [protocol=consumer strategy=a,b instance=I interval=MS]
                                subscribes and polls; `interval` is max.poll.interval.ms
    want NAME TOPICS            subscribes anew
    silence NAME                the user stops polling      wake NAME       polls again
    kill NAME                   ends without a request      leave NAME      leaves the group
    commit NAME PARTITION OFFSET      committed NAME PARTITION
    run SECONDS                 advances the time; prints the callbacks of that time, in order for each user

Every command prints the callbacks of the users meanwhile, then each member's partitions, if they changed.
"""

from sparklog.client.failures import CommitFailed
from sparklog.client.membership.group import Group
from sparklog.client.membership.member import Errand, StepKind, Subscription
from sparklog.client.membership.offsets import Job, OffsetAndMetadata
from sparklog.client.transport.connection import api_of, reply_class
from sparklog.errors import BrokerError, ConnectionFailed, SparklogError
from sparklog.model import Micros, TopicPartition
from tests.broker.world import World
from tests.client.wire import settings
from tests.story import arguments

TURN_US = 2_000
VERBS = {StepKind.ASSIGN: "assigned", StepKind.REVOKE: "revoked", StepKind.LOSE: "lost"}


def names(partitions: tuple[TopicPartition, ...]) -> str:
    return " ".join(str(partition) for partition in sorted(partitions)) or "nothing"


class User:
    """One consumer: its machine, its connection, and a user who polls."""

    def __init__(self, world: World, name: str, given: dict[str, str]) -> None:
        chosen = {
            "group.id": "g",
            "group.protocol": given.get("protocol", "classic"),
            "max.poll.interval.ms": given.get("interval", "60000"),
        }
        chosen |= {"session.timeout.ms": "10000"} if "protocol" not in given else {}
        chosen |= {"partition.assignment.strategy": given["strategy"]} if "strategy" in given else {}
        chosen |= {"group.instance.id": given["instance"]} if "instance" in given else {}
        self._world = world
        self.name = name
        self.group = Group(
            settings(**{key.replace(".", "_"): value for key, value in chosen.items()}),
            world.random.randbytes,
        )
        self.told: list[str] = []
        self.is_polling = True
        self._was_polling = True
        self._has_failed = False
        self.reconnect()

    def reconnect(self) -> None:
        self._connection = self._world.node.connect()
        self._in_flight: list[Errand] = []

    def lose_connection(self, now: Micros) -> None:
        in_flight, self._in_flight = self._in_flight, []
        for errand in in_flight:
            self.group.failed(errand, ConnectionFailed("the broker died"), now)

    def turn(self, now: Micros) -> None:
        replies, self._connection.replies[:] = list(self._connection.replies), []
        for reply in replies:
            self.group.replied(self._in_flight.pop(0), reply, now)
        self._poll(now)
        for errand in self.group.errands(now):
            api = api_of(type(errand.request))
            version = api.until if errand.version_max is None else min(api.until, errand.version_max)
            self._connection.send(errand.request, version, reply_class(api))
            self._in_flight.append(errand)

    def _poll(self, now: Micros) -> None:
        if self.is_polling or self._was_polling:
            self.group.member.polled(now, is_inside=self.is_polling)
        self._was_polling = self.is_polling
        if self.group.error is not None and not self._has_failed:
            self._has_failed = True
            error = self.group.error
            self.told.append(
                f"{self.name} failed: {error.code.name if isinstance(error, BrokerError) else error}"
            )
        if self.is_polling and self.group.step is not None:
            step = self.group.member.steps.begin()
            self.told.append(f"{self.name} {VERBS[step.kind]} {names(step.partitions)}")
            self.group.member.step_done(now)


class GroupWorld:
    """A broker and the users of one group."""

    def __init__(self, seed: int = 1) -> None:
        self._world = World(
            seed, **{"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}
        )
        self._world.node.start()
        self._world.settle()
        self._admin = self._world.node.connect()
        self._users: dict[str, User] = {}
        self._shown = ""

    @property
    def users(self) -> list[str]:
        """The present members."""
        return list(self._users)

    def held(self) -> list[TopicPartition]:
        """The partitions of the group's members; a partition once for each of its owners."""
        inside = [
            user.group.member for user in self._users.values() if user.group.identity.generation_id >= 0
        ]
        return sorted(partition for member in inside for partition in member.steps.owned)

    def run(self, line: str) -> list[str]:
        (verb, *words), given = arguments(line)
        answers = getattr(self, f"_{verb}")(*words, **({"given": given} if verb == "join" else given)) or []
        return [*answers, *self._told(), *self._holdings()]

    # -- the broker

    def _topic(self, name: str, partitions: str) -> None:
        assert self._world.create(self._admin, name, int(partitions)) == 0
        self._pass(0.1)

    def _restart(self) -> None:
        self._world.node.kill()
        now = self._world.clock.now.mono_us
        for user in self._users.values():
            user.lose_connection(now)
        self._world.node.start()
        self._world.settle(100)
        self._admin = self._world.node.connect()
        for user in self._users.values():
            user.reconnect()

    # -- the users

    def _join(self, name: str, given: dict[str, str]) -> None:
        topics = tuple(given["to"].split(",")) if "to" in given else ()
        user = self._users[name] = User(self._world, name, given)
        user.group.subscribe(Subscription(topics, given.get("pattern")), self._world.clock.now.mono_us)
        self._pass(2)

    def _want(self, name: str, topics: str) -> None:
        self._users[name].group.subscribe(
            Subscription(tuple(topics.split(","))), self._world.clock.now.mono_us
        )
        self._pass(5)

    def _silence(self, name: str) -> None:
        self._users[name].is_polling = False

    def _wake(self, name: str) -> None:
        self._users[name].is_polling = True
        self._pass(2)

    def _kill(self, name: str) -> None:
        del self._users[name]

    def _leave(self, name: str) -> list[str]:
        user = self._users[name]
        user.is_polling = False
        user.group.leave(self._world.clock.now.mono_us)
        self._pass(0.1)
        assert user.group.member.has_left
        del self._users[name]
        self._pass(5)
        return []

    def _commit(self, name: str, partition: str, offset: str) -> list[str]:
        return [
            self._finish(
                name,
                Job(deadline=self._in(1), offsets={partition_of(partition): OffsetAndMetadata(int(offset))}),
            )
        ]

    def _committed(self, name: str, partition: str) -> list[str]:
        job = Job(deadline=self._in(1), wanted=(partition_of(partition),))
        said = self._finish(name, job)
        return [str(job.found[job.wanted[0]].offset) if job.found else said]

    def _run(self, seconds: str) -> None:
        self._pass(float(seconds))

    # -- inside

    def _finish(self, name: str, job: Job) -> str:
        group = self._users[name].group
        try:
            group.commit(job) if job.offsets is not None else group.offsets.add(job)
        except CommitFailed as error:
            return f"{name} {type(error).__name__}: {error}"
        self._pass(1.5)
        assert job.is_done
        error: SparklogError | None = job.error
        return "done" if error is None else f"{name} {type(error).__name__}: {error}"

    def _in(self, seconds: float) -> Micros:
        return Micros(self._world.clock.now.mono_us + int(seconds * 1e6))

    def _pass(self, seconds: float) -> None:
        clock, end = self._world.clock, self._in(seconds)
        while clock.now.mono_us < end:
            clock.run(until_us=min(end, clock.now.mono_us + TURN_US))
            for user in self._users.values():
                user.turn(clock.now.mono_us)

    def _told(self) -> list[str]:
        told = [line for user in self._users.values() for line in user.told]
        for user in self._users.values():
            user.told.clear()
        return told

    def _holdings(self) -> list[str]:
        shown = "; ".join(
            f"{user.name}: {names(user.group.member.steps.owned)}" for user in self._users.values()
        )
        is_news, self._shown = shown != self._shown, shown
        held = self.held()
        assert len(held) == len(set(held)), "two members hold the same partition"
        return [f"= {shown}"] if is_news and shown else []


def partition_of(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))
