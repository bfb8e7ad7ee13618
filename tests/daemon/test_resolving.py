"""The sockets of the resolver: names are looked up beside the loop, and one that has no address costs a
back-off.
"""

from collections.abc import Callable

from sparklog.client.decisions import sink_name, task_id
from sparklog.client.settings import ClientSettings
from sparklog.client.transport import now_us
from sparklog.model import Instant, Millis
from sparklog_server.broker.resolver import SinkResolver
from sparklog_server.coordinator.txn.events import Answer
from sparklog_server.daemon.jobs import Done, Job
from sparklog_server.daemon.reactor import Reactor
from sparklog_server.daemon.resolving import Resolving


def test_a_name_is_looked_up_by_a_job_and_the_next_attempt_waits_if_it_has_no_address() -> None:
    settings = ClientSettings.from_kafka({"bootstrap.servers": "broker.invalid:9092"})
    resolver = SinkResolver(settings, entropy=bytes, trace=lambda *_, **__: None)
    calls: list[Callable[[], None]] = []
    jobs: list[tuple[Job, Done]] = []
    resolving = Resolving(
        resolver,
        Reactor(),
        after=lambda _, call: calls.append(call),
        run=lambda job, done: jobs.append((job, done)),
    )
    assert (
        resolver.verdict(task_id(sink_name("s"), 0, 0, "aa"), 7, 0, Instant(now_us(), Millis(0)))
        is Answer.ASK_AGAIN
    )
    resolving.call_soon()
    calls.pop()()
    ((_, done),) = jobs
    (node,) = resolver.cluster.candidates()
    assert resolver.cluster.may_connect(node, now_us())
    done(UnicodeError("label too long"))
    assert not resolver.cluster.may_connect(node, now_us())
