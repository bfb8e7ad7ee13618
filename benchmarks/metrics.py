"""The cost of metrics: CPU of the broker per pipelined Produce with the HTTP listener on and off, and a
scrape of 1 000 partitions and 100 groups.

Two brokers run beside each other, and rounds on them alternate, so that what the machine does meanwhile
meets both; the ratio is the median over the pairs. The scrape is measured by the node itself, as the time of
its pieces (`sparklog_scrape_seconds`), and at the client; the loop by the histogram of its turns.

    python -m benchmarks.metrics
"""

import re
import statistics
import time
import urllib.request
from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks import harness, raw
from sparklog import Admin, Consumer, TopicPartition
from sparklog.client.admin.admin import NewTopic

PAIRS = 20
REQUESTS = 10_000
IN_FLIGHT = 16
TOPICS, PARTITIONS = 50, 20
GROUPS = 100
SCRAPES = 20


def on_cpu_us(subject: harness.Subject) -> float:
    """The time that the threads of a broker were on a processor, which Linux counts in nanoseconds."""
    tasks = Path(f"/proc/{subject.process.pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e3


def pipelined_cpu_us(subject: harness.Subject, topic: str) -> float:
    """Sixteen requests always under way on one connection."""
    frame, reply_bytes = raw.produce_request(topic, value_bytes=100), raw.produce_reply_bytes(topic)
    with raw.connect(subject) as connection:
        before_us = on_cpu_us(subject)
        connection.sendall(frame * IN_FLIGHT)
        sent, answered, pending_bytes = IN_FLIGHT, 0, 0
        while answered < REQUESTS:
            pending_bytes += len(connection.recv(65536))
            whole, pending_bytes = divmod(pending_bytes, reply_bytes)
            answered += whole
            if (more := min(whole, REQUESTS - sent)) > 0:
                connection.sendall(frame * more)
                sent += more
        return (on_cpu_us(subject) - before_us) / answered


def cost(figures: harness.Figures, on: harness.Subject, off: harness.Subject, repeat: int) -> None:
    topic = f"cost-{repeat}"
    for subject in (on, off):
        harness.create_topic(subject, topic)
        pipelined_cpu_us(subject, topic)
    ratios = []
    for pair in range(PAIRS):
        order = (on, off) if pair % 2 else (off, on)
        found = {subject.name: pipelined_cpu_us(subject, topic) for subject in order}
        figures.add("CPU per pipelined Produce, metrics on", "µs", "sparklog", found[on.name])
        figures.add("CPU per pipelined Produce, metrics off", "µs", "sparklog", found[off.name])
        ratios.append(found[on.name] / found[off.name])
    figures.add("on / off, median of the pairs", "", "sparklog", statistics.median(ratios), bound="<= 1.03")


def scrape(figures: harness.Figures, subject: harness.Subject, url: str) -> None:
    with Admin(bootstrap_servers=subject.bootstrap_servers) as admin:
        admin.create_topics(
            [NewTopic(f"topic-{number}", partition_count=PARTITIONS) for number in range(TOPICS)]
        )
    for number in range(GROUPS):
        topic = f"topic-{number % TOPICS}"
        group = f"group-{number}"
        with Consumer(
            bootstrap_servers=subject.bootstrap_servers, group_id=group, enable_auto_commit=False
        ) as consumer:
            partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
            consumer.assign(partitions)
            consumer.commit(dict.fromkeys(partitions, 0))
    got(url)
    longer_before = longer_turns(got(url))
    for _ in range(SCRAPES):
        began = time.perf_counter()
        text = got(url)
        figures.add("scrape, at the client", "ms", "sparklog", (time.perf_counter() - began) * 1e3)
        own_s = re.search(r"^sparklog_scrape_seconds (\S+)$", got(url), re.MULTILINE)
        assert own_s is not None
        figures.add("scrape, on the loop in all", "ms", "sparklog", float(own_s[1]) * 1e3, bound="<= 30")
    figures.add("series", "", "sparklog", text.count("\n") - text.count("\n# "))
    figures.add("text", "KiB", "sparklog", len(text) / 1024)
    longer = longer_turns(got(url)) - longer_before
    figures.add("turns of the loop above 1.024 ms during these scrapes", "", "sparklog", longer, bound="<= 0")


def got(url: str) -> str:
    """One scrape."""
    with closing(urllib.request.urlopen(f"{url}/metrics", timeout=60)) as answer:
        return str(answer.read().decode())


def longer_turns(text: str) -> int:
    """The turns of the loop so far that took longer than 1.024 ms, a bound of the histogram."""
    counts = dict(re.findall(r'^sparklog_loop_turn_seconds_bucket\{le="(.*)"\} (\d+)$', text, re.MULTILINE))
    return int(counts["+Inf"]) - int(counts["0.001024"])


def main() -> None:
    options = harness.options(__doc__)
    figures = harness.Figures("metrics")
    with ExitStack() as stack:
        port = harness.free_port()
        never = {"sparklog.ack.flush": "never"}
        http = {"sparklog.http.listener": f"http://127.0.0.1:{port}"}
        on = stack.enter_context(harness.sparklog(name="on", settings=never | http))
        off = stack.enter_context(harness.sparklog(name="off", settings=never))
        for repeat in range(options.repeats):
            cost(figures, on, off, repeat)
        scrape(figures, on, f"http://127.0.0.1:{port}")
    figures.report(options)


if __name__ == "__main__":
    main()
