"""What access rules add to a Produce: microseconds of processor time inside the broker, with ten thousand
rules and without an authorizer.

Both brokers run in this process, without sockets, and take turns (`benchmarks.turn` has the driver): a busy
machine slows both. Half of the rules name a topic, half a prefix; the client writes by one rule of each kind.

    python -m benchmarks.acls
"""

import gc
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks import harness, raw
from benchmarks.turn import TOPIC, VALUE_BYTES, Driver, create_topic
from sparklog.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from sparklog_server.config.access_settings import STANDARD_AUTHORIZER

RULES = 10_000
ROUNDS = 100
REQUESTS_PER_ROUND = 200
WITH_AUTHORIZER = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "allow.everyone.if.no.acl.found": "true",  # for the rules themselves
}
_TOPIC, _LITERAL, _PREFIXED, _WRITE, _ALLOW = 2, 3, 4, 4, 3
_ANONYMOUS = "User:ANONYMOUS"


def add_rules(driver: Driver, count: int) -> None:
    """Rules of a hundred users for topics of their teams, and two for the client."""
    rules = [
        AclCreation(_TOPIC, TOPIC, _LITERAL, _ANONYMOUS, "*", _WRITE, _ALLOW),
        AclCreation(_TOPIC, TOPIC[:2], _PREFIXED, _ANONYMOUS, "127.0.0.1", _WRITE, _ALLOW),
    ]
    for index in range((count - len(rules)) // 2):
        user = f"User:user-{index % 100}"
        rules += [
            AclCreation(_TOPIC, f"team-{index:05}.orders", _LITERAL, user, "*", _WRITE, _ALLOW),
            AclCreation(_TOPIC, f"team-{index:05}.", _PREFIXED, user, "*", _WRITE, _ALLOW),
        ]
    for begin in range(0, len(rules), 500):
        some = CreateAclsRequest(rules[begin : begin + 500])
        answer = driver.ask(some, 3, CreateAclsResponse)
        assert isinstance(answer, CreateAclsResponse)
        assert not any(one.error_code for one in answer.results)


def round_us(driver: Driver, frame: bytes) -> float:
    """Microseconds of one request, over a round."""
    driver.replies.clear()
    started_s = time.process_time()
    for _ in range(REQUESTS_PER_ROUND):
        driver.turn(frame)
    elapsed_s = time.process_time() - started_s
    assert len(driver.replies) == REQUESTS_PER_ROUND
    return elapsed_s / REQUESTS_PER_ROUND * 1e6


def measured() -> tuple[float, float, float]:
    """(without rules, with rules, difference of a round), each the median of the rounds."""
    frame = raw.produce_request(TOPIC, value_bytes=VALUE_BYTES)
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as first, tempfile.TemporaryDirectory(dir=place) as second:
        plain, ruled = Driver(Path(first)), Driver(Path(second), WITH_AUTHORIZER)
        for driver in (plain, ruled):
            create_topic(driver)
        add_rules(ruled, RULES)
        for driver in (plain, ruled):
            round_us(driver, frame)
        assert len(plain.replies[-1]) == len(ruled.replies[-1])
        gc.collect()
        gc.freeze()
        rounds = [(round_us(plain, frame), round_us(ruled, frame)) for _ in range(ROUNDS)]
    return (
        statistics.median(one for one, _ in rounds),
        statistics.median(two for _, two in rounds),
        statistics.median(two - one for one, two in rounds),
    )


def main() -> None:
    """Measure, and print the table."""
    options = harness.options(__doc__)
    figures = harness.Figures("acls")
    for _ in range(options.repeats):
        plain, ruled, more = measured()
        figures.add("produce without an authorizer", "µs", "sparklog", plain)
        figures.add(f"produce with {RULES} rules", "µs", "sparklog", ruled)
        figures.add("the rules' share", "µs", "sparklog", more, bound="<= 3")
    figures.note("processor time of one process; sparklog.ack.flush=never, the data in memory")
    figures.report(options)


if __name__ == "__main__":
    main()
