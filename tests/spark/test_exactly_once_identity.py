"""By what an exactly-once sink is recognized, without Spark: the query's id wherever its checkpoint is, the
path that earlier releases had in its place, and two queries with one id.
"""

from pathlib import Path

import pytest

pytest.importorskip("pyspark.sql", reason="needs pyspark")

from sparklog import Admin
from sparklog.client.exactly_once.committer import CheckpointOlderThanSink, SinkTakenOver
from sparklog.client.exactly_once.decisions import sink_name
from tests.spark.conftest import MakeTopic
from tests.spark.sinks import BATCHES, Died, Driver, committed, dies_at, flat, open_ids


@pytest.mark.parametrize("step", ["check", "decide", "first end", "sweep"])
def test_a_sink_that_an_earlier_release_knew_by_its_path_goes_on_under_the_id_of_its_query(
    servers: str, make_topic: MakeTopic, sink: str, admin: Admin, step: str
) -> None:
    topic, path, query = make_topic(2), f"/checkpoints/{sink}", f"query-of-{sink}"
    with Driver(servers, identity=path) as earlier:
        earlier.run_batch(topic, 0, BATCHES[0], query=query)
    with Driver(servers, identity=path, told=dies_at(step)) as earlier, pytest.raises(Died):
        earlier.run_batch(topic, 1, BATCHES[1], query=query)
    for run in ("first", "second"):
        with Driver(servers, checkpoint=path + "/") as driver:
            driver.run_batch(topic, 1, BATCHES[1], query=query, run=run)
        assert sorted(committed(servers, topic)) == flat(BATCHES[:2])
    with Driver(servers, checkpoint=path) as driver:
        driver.run_batch(topic, 2, BATCHES[2], query=query, run="third")
        last = driver.log.last(sink_name(query))
    assert last is not None
    assert (last.decision.identity, last.decision.batch) == (query, 2)
    assert sorted(committed(servers, topic)) == flat(BATCHES)
    assert open_ids(admin, path) == []


def test_a_checkpoint_older_than_a_sink_of_an_earlier_release_is_refused(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topic, query = make_topic(), f"query-of-{sink}"
    with Driver(servers, identity=sink) as earlier:
        for number in range(3):
            earlier.run_batch(topic, number, BATCHES[number], query=query)
    with Driver(servers, checkpoint=sink) as driver, pytest.raises(CheckpointOlderThanSink):
        driver.run_batch(topic, 1, BATCHES[1], query=query, run="run")
    assert sorted(committed(servers, topic)) == flat(BATCHES)


def test_a_new_checkpoint_where_an_earlier_release_had_one_begins_anew(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topic = make_topic()
    with Driver(servers, identity=sink, told=dies_at("decide")) as earlier, pytest.raises(Died):
        earlier.run_batch(topic, 7, [["old"]], query="earlier")
    with (
        Driver(servers, checkpoint=sink) as driver,
        pytest.warns(UserWarning, match="begins batches of its own"),
    ):
        driver.run_batch(topic, 0, [["new"]], query=f"query-of-{sink}", run="run")
    assert committed(servers, topic) == ["old", "new"]


def test_a_checkpoint_and_its_copy_fence_each_other_and_no_batch_counts_twice(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topic, query = make_topic(2), f"query-of-{sink}"
    with (
        Driver(servers, checkpoint="/checkpoint") as first,
        Driver(servers, checkpoint="/copy") as copy,
    ):
        first.run_batch(topic, 0, BATCHES[0], query=query, run="first")
        copy.run_batch(topic, 0, BATCHES[0], query=query, run="copy")
        with pytest.raises(SinkTakenOver, match=r"batch 1 .* committed batch 0\. .* checkpoint and its copy"):
            first.run_batch(topic, 1, BATCHES[1], query=query, run="first")
        copy.run_batch(topic, 1, BATCHES[1], query=query, run="copy")
        first.run_batch(topic, 1, BATCHES[1], query=query, run="first, started again")
        with pytest.raises(SinkTakenOver):
            copy.run_batch(topic, 2, BATCHES[2], query=query, run="copy")
        first.run_batch(topic, 2, BATCHES[2], query=query, run="first, started again")
    assert sorted(committed(servers, topic)) == flat(BATCHES)


def test_two_queries_with_one_sink_id_fence_each_other(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topic = make_topic()
    with Driver(servers, identity=sink) as one, Driver(servers, identity=sink) as other:
        one.run_batch(topic, 0, [["one"]], query="one", run="of one")
        with pytest.warns(UserWarning, match="begins batches of its own"):
            other.run_batch(topic, 0, [["other"]], query="other", run="of other")
        with pytest.raises(SinkTakenOver, match="sinkId of its own"):
            one.run_batch(topic, 1, [["one"]], query="one", run="of one")
    assert committed(servers, topic) == ["one", "other"]


def test_a_batch_that_is_dropped_because_it_was_committed_with_fewer_records_is_told(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topic = make_topic()
    with Driver(servers, identity=sink) as driver:
        driver.run_batch(topic, 0, [["a", "b"]])
    with (
        Driver(servers, identity=sink) as copy,
        pytest.warns(UserWarning, match=r"batch 0 was committed with 2 records, and has 3 now"),
    ):
        copy.run_batch(topic, 0, [["a", "b", "c"]])
    assert committed(servers, topic) == ["a", "b"]


def test_a_query_that_is_stopped_before_any_task_reports_is_found_by_its_checkpoint(
    servers: str, make_topic: MakeTopic, sink: str, admin: Admin, tmp_path: Path
) -> None:
    topic, query = make_topic(2), f"query-of-{sink}"
    (tmp_path / "metadata").write_text(f'{{"id":"{query}"}}')
    with Driver(servers, checkpoint=f"file:{tmp_path}") as driver:
        driver.run_tasks(topic, 0, BATCHES[0], query=query, run="run")
        assert len(open_ids(admin, query)) == 3
        driver.abort([None, None, None], 0)
    assert open_ids(admin, query) == []
