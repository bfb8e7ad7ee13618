"""The exactly-once sink against a live broker, without Spark: decisions, retried tasks, paused drivers,
checkpoints older than the sink, and batch writes.
"""

import threading
import warnings

import pytest

pytest.importorskip("pyspark.sql", reason="needs pyspark")

from sparklog import Admin
from sparklog.client.exactly_once.committer import (
    BatchNotWhole,
    CheckpointOlderThanSink,
    Older,
    TransactionsLost,
    VersionOlderThanSink,
)
from sparklog.client.exactly_once.decision_log import KEPT_MAX
from sparklog.client.exactly_once.decisions import TOPIC, coordinator_id, sink_name
from sparklog.client.failures import TransactionError
from sparklog.client.producer.transaction_states import ProducerIdentity
from sparklog.client.settings import ClientSettings
from sparklog.model import ProducerEpoch, ProducerId
from sparklog.spark.connections import ROLLS_FORWARD, transaction_timeout_ms
from sparklog.spark.delivery import NO_BATCH, Task
from sparklog.spark.exactly_once import Job, NoSink
from tests.spark.conftest import MakeTopic
from tests.spark.sinks import (
    BATCHES,
    QUERY,
    STEPS,
    Died,
    Driver,
    committed,
    dies_at,
    flat,
    names,
    open_ids,
)

# -- the plain course ----------------------------------------------------------------------------------------


def test_nothing_of_a_batch_is_read_before_it_is_committed_and_then_all_of_it(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topic = make_topic(3)
    with Driver(servers, identity=sink) as driver:
        messages = driver.run_tasks(topic, 0, BATCHES[0])
        assert committed(servers, topic, may_hang=True) == []
        driver.commit(messages, 0)
    assert sorted(committed(servers, topic)) == flat(BATCHES[:1])


def test_more_tasks_than_requests_that_are_on_their_way_at_a_time_are_all_committed(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topic, tasks = make_topic(2), names(0, tasks=12, rows=1)
    with Driver(servers, identity=sink) as driver:
        driver.run_batch(topic, 0, tasks)
    assert sorted(committed(servers, topic)) == flat([tasks])


def test_the_decision_names_the_transactions_and_where_their_records_end(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topic = make_topic(2)
    with Driver(servers, identity=sink) as driver:
        driver.run_batch(topic, 0, [["a", "b", "c"], ["d"]])
        last = driver.log.last(sink_name(sink))
    assert last is not None
    assert last.is_finished
    assert (last.decision.identity, last.decision.query, last.decision.batch) == (sink, QUERY, 0)
    assert [one.transactional_id.split(".")[2:4] for one in last.decision.transactions] == [
        ["0", "0"],
        ["0", "1"],
    ]
    # Partition 1 holds "b", the marker of its transaction may stand before "d" or after it.
    assert last.decision.ends[topic][0] == 2
    assert last.decision.ends[topic][1] >= 2


def test_an_empty_task_begins_no_transaction_and_an_empty_batch_is_decided_all_the_same(
    servers: str, make_topic: MakeTopic, sink: str, admin: Admin
) -> None:
    topic = make_topic()
    with Driver(servers, identity=sink) as driver:
        messages = driver.run_tasks(topic, 0, [[], ["x"], []])
        assert [message.transaction is None for message in messages] == [True, False, True]
        driver.commit(messages, 0)
        driver.run_batch(topic, 1, [[], []])
        with pytest.raises(CheckpointOlderThanSink):
            driver.run_batch(topic, 0, [["x"]])
    assert committed(servers, topic) == ["x"]


def test_sinks_whose_names_begin_alike_leave_each_other_alone(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topic = make_topic()
    with Driver(servers, identity=sink) as one, Driver(servers, identity=f"{sink}.b") as other:
        open_here = other.run_tasks(topic, 0, [["other"]])
        one.run_batch(topic, 0, [["one"]])
        one.abort([None], 1)
        other.commit(open_here, 0)
    assert committed(servers, topic) == ["one", "other"] or committed(servers, topic) == ["other", "one"]


def test_many_sinks_share_the_topic_of_decisions(servers: str, make_topic: MakeTopic, sink: str) -> None:
    topic = make_topic(2)
    sinks = [f"{sink}/{number}" for number in range(20)]
    for identity in sinks:
        with Driver(servers, identity=identity) as driver:
            driver.run_batch(topic, 0, [[identity]])
    assert sorted(committed(servers, topic)) == sorted(sinks)
    with Driver(servers, identity=sink) as driver:
        assert all(driver.log.last(sink_name(identity)) is not None for identity in sinks)


def test_the_topic_of_decisions_is_compacted(
    servers: str, make_topic: MakeTopic, sink: str, admin: Admin
) -> None:
    with Driver(servers, identity=sink) as driver:
        driver.run_batch(make_topic(), 0, [["x"]])
    assert admin.describe_configs([TOPIC])[TOPIC]["cleanup.policy"].value == "compact"


def test_a_worker_keeps_few_of_the_many_sinks_it_writes_to(servers: str, sink: str) -> None:
    names_of = [f"{sink}/{number}" for number in range(KEPT_MAX + 2)]
    with Driver(servers, identity=sink) as driver:
        for batch in range(2):
            for identity in names_of:
                driver.committer(identity).commit(QUERY, batch, [], {})
        for identity in names_of:
            last = driver.log.last(sink_name(identity))
            assert last is not None
            assert (last.decision.batch, last.is_finished) == (1, True)


def test_a_task_may_take_as_long_as_the_brokers_allow_less_what_ours_need_to_find_out(
    servers: str, admin: Admin
) -> None:
    settings = ClientSettings.from_kafka({"bootstrap.servers": servers})
    node = admin.describe_cluster().nodes[0].node_id
    told = admin.describe_configs(brokers=[node])[str(node)]
    longest_ms = int(told["transaction.max.timeout.ms"].value or 0)
    assert transaction_timeout_ms(settings) == longest_ms - (60_000 if ROLLS_FORWARD in told else 0)
    said = ClientSettings.from_kafka({"bootstrap.servers": servers, "transaction.timeout.ms": "7000"})
    assert transaction_timeout_ms(said) == 7_000


# -- tasks that are run twice, and queries that are stopped --------------------------------------------------


def test_an_attempt_that_lost_is_aborted_by_the_commit(
    servers: str, make_topic: MakeTopic, sink: str, admin: Admin
) -> None:
    topic = make_topic(2)
    with Driver(servers, identity=sink) as driver:
        lost = driver.run_task(topic, Task(0, 0, QUERY, 0), ["a", "b"])
        won = driver.run_task(topic, Task(0, 1, QUERY, 0), ["a", "b"])
        assert lost.transaction != won.transaction
        driver.commit([won], 0)
    assert sorted(committed(servers, topic)) == ["a", "b"]
    assert open_ids(admin, sink) == []


def test_a_query_that_is_stopped_while_its_tasks_write_leaves_nothing_open(
    servers: str, make_topic: MakeTopic, sink: str, admin: Admin
) -> None:
    topic = make_topic(2)
    with Driver(servers, identity=sink) as driver:
        driver.run_batch(topic, 0, BATCHES[0])
        driver.run_tasks(topic, 1, BATCHES[1])
        driver.abort([None, None, None], 1)
        assert open_ids(admin, sink) == []
        assert sorted(committed(servers, topic)) == flat(BATCHES[:1])
        driver.run_batch(topic, 1, BATCHES[1])
    assert sorted(committed(servers, topic)) == flat(BATCHES[:2])


def test_a_task_that_fails_takes_back_what_it_wrote(
    servers: str, make_topic: MakeTopic, sink: str, admin: Admin
) -> None:
    topic = make_topic()
    with Driver(servers, identity=sink) as driver:
        writer = driver.open(Task(0, 0, QUERY, 0))
        from sparklog.record.batch import build_batch

        writer.add(topic, 0, build_batch([(None, b"x", (), 0)]), 1)
        writer.abort()
    assert open_ids(admin, sink) == []
    assert committed(servers, topic) == []


# -- two drivers ---------------------------------------------------------------------------------------------


class Paused:
    """A driver's commit in a thread, stopped after a step until it is woken."""

    def __init__(self, servers: str, identity: str, step: str, topic: str, batch: int) -> None:
        self._reached, self._woken = threading.Event(), threading.Event()
        self._step = step
        self.error: Exception | None = None
        self.driver = Driver(servers, identity=identity, told=self._told)
        self.messages = self.driver.run_tasks(topic, batch, BATCHES[batch])
        self._thread = threading.Thread(target=self._commit, args=(batch,))
        self._thread.start()
        assert self._reached.wait(30)

    def _told(self, step: str) -> None:
        if step == self._step:
            self._reached.set()
            assert self._woken.wait(60)

    def _commit(self, batch: int) -> None:
        try:
            self.driver.commit(self.messages, batch)
        except Exception as error:
            self.error = error

    def wake(self) -> None:
        self._woken.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.mark.parametrize(
    "batches_meanwhile", [pytest.param(0, marks=pytest.mark.long), 1, pytest.param(2, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("step", STEPS)
def test_a_paused_driver_that_wakes_beside_a_newer_one_writes_nothing_twice(
    servers: str, make_topic: MakeTopic, sink: str, step: str, batches_meanwhile: int
) -> None:
    topic = make_topic(2)
    with Driver(servers, identity=sink) as driver:
        driver.run_batch(topic, 0, BATCHES[0])
    paused = Paused(servers, sink, step, topic, 1)
    with Driver(servers, identity=sink) as newer:
        for number in range(1, 1 + batches_meanwhile):
            newer.run_batch(topic, number, BATCHES[number])
        paused.wake()
        if paused.error is not None:
            paused.driver.abort(paused.messages, 1)
    paused.driver.log.close()
    with Driver(servers, identity=sink) as newest:
        for number in range(1 + batches_meanwhile, 3):
            newest.run_batch(topic, number, BATCHES[number])
    assert sorted(committed(servers, topic)) == flat(BATCHES)


def test_a_driver_that_was_fenced_cannot_decide(servers: str, make_topic: MakeTopic, sink: str) -> None:
    topic = make_topic()
    paused = Paused(servers, sink, "check", topic, 0)
    with Driver(servers, identity=sink) as newer:
        newer.abort([None], 0)
        paused.wake()
    paused.driver.log.close()
    assert isinstance(paused.error, BatchNotWhole)  # which is the result
    assert isinstance(paused.error.__context__, TransactionError)
    assert committed(servers, topic) == []


def test_a_batch_whose_transaction_was_ended_by_somebody_is_refused_before_it_is_decided(
    servers: str, make_topic: MakeTopic, sink: str, admin: Admin
) -> None:
    topic = make_topic()
    with Driver(servers, identity=sink) as driver:
        messages = driver.run_tasks(topic, 0, [["x"], ["y"]])
        identity = messages[1].transaction
        assert identity is not None
        admin.fence_producers([identity[0]])
        with pytest.raises(BatchNotWhole, match=r"1 of 2 transactions are no longer open"):
            driver.commit(messages, 0)
        driver.abort(messages, 0)
        driver.run_batch(topic, 0, [["x"], ["y"]])
    assert sorted(committed(servers, topic)) == ["x", "y"]


def test_what_was_lost_after_the_decision_is_said_loudly_each_time_until_somebody_accepts_it(
    servers: str, make_topic: MakeTopic, sink: str, admin: Admin
) -> None:
    topic = make_topic()
    with Driver(servers, identity=sink, told=dies_at("decide")) as driver:
        messages = driver.run_tasks(topic, 0, [["x"], ["y"]])
        with pytest.raises(Died):
            driver.commit(messages, 0)
    lost = messages[0].transaction
    assert lost is not None
    admin.end_transaction(
        ProducerIdentity(lost[0], ProducerId(lost[1]), ProducerEpoch(lost[2])), is_commit=False
    )
    with Driver(servers, identity=sink) as driver:
        for _ in range(2):
            with pytest.raises(TransactionsLost, match=r"aborted 1 of its 2 transactions .* LOST"):
                driver.commit(messages, 0)
        with pytest.warns(UserWarning, match="the loss is accepted"):
            driver.committer(sink).resolve(accepts_loss=True)
        driver.run_batch(topic, 1, [["z"]])
    assert committed(servers, topic) == ["y", "z"]


# -- checkpoints and lineages --------------------------------------------------------------------------------


def test_a_checkpoint_older_than_its_sink_is_refused_with_what_to_do(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topic = make_topic()
    with Driver(servers, identity=sink) as driver:
        for number in range(3):
            driver.run_batch(topic, number, BATCHES[number])
    with (
        Driver(servers, identity=sink) as old,
        pytest.raises(
            CheckpointOlderThanSink,
            match=r"batch 1 .* after batch 2 was committed .* new checkpoint, or another sinkId",
        ),
    ):
        old.run_batch(topic, 1, BATCHES[1])
    assert sorted(committed(servers, topic)) == flat(BATCHES)


@pytest.mark.parametrize("step", ["decide", "sweep"])
def test_a_new_query_finishes_what_the_one_before_decided_and_says_that_it_begins_anew(
    servers: str, make_topic: MakeTopic, sink: str, step: str
) -> None:
    topic = make_topic()
    with Driver(servers, identity=sink, told=dies_at(step)) as driver, pytest.raises(Died):
        driver.run_batch(topic, 7, [["old"]])
    with (
        Driver(servers, identity=sink) as driver,
        pytest.warns(UserWarning, match="now query another begins batches of its own"),
    ):
        driver.run_batch(topic, 0, [["new"]], query="another")
    assert committed(servers, topic) == ["old", "new"]


def test_a_sink_without_a_name_is_known_by_the_query_that_its_tasks_tell(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topic, query = make_topic(), f"query-of-{sink}"
    with Driver(servers) as driver:
        driver.run_batch(topic, 0, [["x"], []], query=query)
        assert driver.log.last(sink_name(query)) is not None
        driver.abort([None, None], 1)  # of an unknown sink: nothing happens
        with pytest.raises(NoSink, match="at_least_once"):
            driver.open(Task(0, 0, "", NO_BATCH))


# -- batch writes --------------------------------------------------------------------------------------------


def test_a_batch_write_is_there_as_a_whole_and_leaves_no_decision_behind(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topic = make_topic(2)
    job = Job(f"job:{sink}", sink, 0, is_repeatable=False)
    with Driver(servers, job=job) as driver:
        driver.run_batch(topic, NO_BATCH, [["a"], ["b"]])
        assert driver.log.last(sink_name(job.identity)) is None
    assert sorted(committed(servers, topic)) == ["a", "b"]


@pytest.mark.parametrize("step", STEPS)
def test_a_write_with_a_version_is_dropped_when_it_is_run_again(
    servers: str, make_topic: MakeTopic, sink: str, step: str
) -> None:
    topic = make_topic(2)

    def job(version: int) -> Job:
        return Job(f"app:{sink}", "app", version, is_repeatable=True)

    with Driver(servers, job=job(4), told=dies_at(step)) as driver, pytest.raises(Died):
        driver.run_batch(topic, NO_BATCH, BATCHES[0])
    for version, tasks in ((4, BATCHES[0]), (4, BATCHES[0]), (5, BATCHES[2])):
        with Driver(servers, job=job(version)) as driver:
            driver.run_batch(topic, NO_BATCH, tasks)
    assert sorted(committed(servers, topic)) == flat([BATCHES[0], BATCHES[2]])


@pytest.mark.parametrize("older", ["skip", "fail"])
def test_a_write_with_a_version_below_the_last_is_dropped_with_one_warning_or_fails(
    servers: str, make_topic: MakeTopic, sink: str, admin: Admin, older: Older
) -> None:
    topic = make_topic(2)

    def job(version: int) -> Job:
        return Job(f"app:{sink}", "app", version, is_repeatable=True, older=older)

    with Driver(servers, job=job(4)) as driver:
        driver.run_batch(topic, NO_BATCH, BATCHES[0])
    told = "version 0 of application 'app' is lower than the last one that was written, 4: "
    if older == "fail":
        with (
            Driver(servers, job=job(0)) as driver,
            pytest.raises(VersionOlderThanSink, match=told + "nothing"),
        ):
            driver.run_batch(topic, NO_BATCH, BATCHES[1])
    else:
        with Driver(servers, job=job(0)) as driver, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            driver.run_batch(topic, NO_BATCH, BATCHES[1])
            driver.run_batch(topic, NO_BATCH, BATCHES[1])
        (warned,) = caught
        assert told + "this write is dropped" in str(warned.message)
    assert sorted(committed(servers, topic)) == flat(BATCHES[:1])
    assert open_ids(admin, f"app:{sink}") == []


def test_the_coordinator_of_a_sink_is_never_swept(
    servers: str, make_topic: MakeTopic, sink: str, admin: Admin
) -> None:
    topic = make_topic()
    with Driver(servers, identity=sink) as driver:
        for number in range(3):
            driver.run_batch(topic, number, BATCHES[number])
    name = coordinator_id(sink_name(sink))
    assert admin.describe_transactions([name])[name].state in ("CompleteCommit", "PrepareCommit")
