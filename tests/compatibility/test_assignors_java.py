"""Our assignors beside Java's own, on the subscriptions that we would send: the same shares where Java
specifies them.

Sticky shares depend on the order of a Java hash map: there, as much is kept as Java keeps, and it is as even.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from sparklog.client.membership.assignors import ASSIGNORS, Shares, Subscriber, subscriber, subscription
from sparklog.model import TopicPartition
from tests.tools import KAFKA_JARS, require_kafka_tools

pytestmark = pytest.mark.compat

STICKY = ("sticky", "cooperative-sticky")
CASES = 150


class Case:
    """A group as an assignor sees it."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        self.name = ("range", "roundrobin", *STICKY)[seed % 4]
        self.counts = {
            topic: random.randint(1, 7) for topic in random.sample(["a", "b", "c"], random.randint(1, 3))
        }
        topics, is_even = sorted(self.counts), random.random() < 0.6 or (self.name in STICKY and seed % 3 > 0)
        self.members = [
            Subscriber(
                f"m{number}",
                tuple(topics)
                if is_even
                else tuple(sorted(random.sample(topics, random.randint(1, len(topics))))),
                random.choice((None, f"i{random.randint(10, 99)}{number}")),
                generation=random.choice((3, 3, 2)),
            )
            for number in range(random.randint(1, 6))
        ]
        if random.random() < 0.7:
            self._have_owned(random)

    def _have_owned(self, random: Random) -> None:
        owned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in self.members}
        for topic, count in self.counts.items():
            wanting = [member.member_id for member in self.members if topic in member.topics]
            for number in range(count):
                if wanting and random.random() < 0.8:
                    owned[random.choice(wanting)].append(TopicPartition(topic, number))
        self.members = [
            Subscriber(m.member_id, m.topics, m.instance_id, tuple(owned[m.member_id]), m.generation)
            for m in self.members
        ]

    def metadata(self, member: Subscriber) -> bytes:
        owned = () if self.name == "sticky" else member.owned
        return subscription(self.name, member.topics, owned, member.generation, had=member.owned, rack="")

    def line(self) -> str:
        counts = ",".join(f"{topic}={count}" for topic, count in self.counts.items())
        members = [f"{m.member_id}/{m.instance_id or ''}/{self.metadata(m).hex()}" for m in self.members]
        return " ".join((self.name, counts, *members))

    def ours(self) -> Shares:
        told = [subscriber(self.name, m.member_id, m.instance_id, self.metadata(m)) for m in self.members]
        return {
            member_id: sorted(share) for member_id, share in ASSIGNORS[self.name](told, self.counts).items()
        }


def of_java(cases: Sequence[Case], tmp_path: Path) -> list[Shares]:
    require_kafka_tools()
    source = Path(__file__).parent / "Assignors.java"
    command = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{KAFKA_JARS}/*", str(source)]
    given = "".join(case.line() + "\n" for case in cases)
    run = subprocess.run(
        command, input=given, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert run.returncode == 0, run.stderr
    lines = [line for line in run.stdout.splitlines() if line.startswith("m0:")]
    return [{word.split(":")[0]: partitions(word.split(":")[1]) for word in line.split()} for line in lines]


def partitions(text: str) -> list[TopicPartition]:
    return sorted(TopicPartition(one.split("-")[0], int(one.split("-")[1])) for one in text.split(",") if one)


def kept(case: Case, shares: Shares) -> int:
    return sum(len({*member.owned} & {*shares[member.member_id]}) for member in case.members)


def test_shares_are_those_of_java(tmp_path: Path) -> None:
    cases = [Case(seed) for seed in range(CASES)]
    theirs = of_java(cases, tmp_path)
    assert len(theirs) == CASES
    for case, java in zip(cases, theirs, strict=True):
        ours = case.ours()
        if case.name not in STICKY:
            assert ours == java, case.line()
            continue
        is_even = all(member.topics == case.members[0].topics for member in case.members)
        if is_even and not any(member.owned for member in case.members):
            assert ours == java, case.line()
        if is_even:
            assert kept(case, ours) == kept(case, java), case.line()
        spread = [max(map(len, shares.values())) - min(map(len, shares.values())) for shares in (ours, java)]
        if is_even and case.name == "sticky":
            assert spread[0] <= spread[1], case.line()
