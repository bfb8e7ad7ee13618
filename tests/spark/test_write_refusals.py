"""Batches that a broker refuses: the task names the row, the topic, the content and the limit."""

import time
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from sparklog import Admin
from sparklog.client.admin.admin import NewTopic
from sparklog.client.failures import BatchRefused
from sparklog.spark.exactly_once import delivery_for_batch
from sparklog.spark.options import Options
from sparklog.spark.rows import RowRefused
from sparklog.spark.writers import write_task

NUMBERS = count()
DAY_MS = 86_400_000


@pytest.fixture(params=["exactly_once", "at_least_once"])
def written(request: pytest.FixtureRequest, servers: str, admin: Admin) -> Any:
    """Writes rows of the given columns in one task, to a new topic with the given settings."""

    def write(configs: dict[str, str], *batches: dict[str, list[Any]]) -> None:
        topic = f"refusing-{request.param}-{next(NUMBERS)}"
        admin.create_topics([NewTopic(topic, 1, configs=configs)])
        options = Options.parse(
            {"kafka.bootstrap.servers": servers, "topic": topic, "delivery": request.param, "sinkId": topic}
        )
        columns = {"key": pa.binary(), "value": pa.binary(), "timestamp": pa.timestamp("us", tz="UTC")}
        made = [
            pa.record_batch(
                [pa.array(values, columns[name]) for name, values in batch.items()], names=list(batch)
            )
            for batch in batches
        ]
        write_task(options, delivery_for_batch(options), iter(made))

    return write


def moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat()


@pytest.mark.parametrize(
    ("limit", "days"), [("message.timestamp.after.max.ms", 3), ("message.timestamp.before.max.ms", -3)]
)
def test_a_timestamp_that_the_topic_does_not_accept_is_told_with_its_row_and_the_limit(
    written: Any, limit: str, days: int
) -> None:
    now = time.time_ns() // 1_000_000
    outside = now + days * DAY_MS
    with pytest.raises(RowRefused) as refused:
        written(
            {limit: str(DAY_MS)},
            {"value": [b"a", b"b"], "timestamp": [now * 1000, None]},
            {"value": [b"c", b"d"], "timestamp": [now * 1000, outside * 1000]},
        )
    told = str(refused.value)
    assert f"column 'timestamp' is {moment(outside)} in row 3 of its task, and topic 'refusing-" in told
    assert "INVALID_TIMESTAMP (32): refusing-" in told
    assert f"{limit}={DAY_MS}" in told


def test_a_row_without_the_key_that_its_topic_needs_is_told(written: Any) -> None:
    with pytest.raises(
        RowRefused, match=r"row 2 of its task has no key, and topic 'refusing-.*INVALID_RECORD"
    ):
        written({"cleanup.policy": "compact"}, {"key": [b"k", b"k", None], "value": [b"a", b"b", b"c"]})


def test_rows_of_a_frame_without_a_key_column_are_refused_by_their_first(written: Any) -> None:
    with pytest.raises(RowRefused, match=r"row 0 of its task has no key.*A compacted topic cannot accept"):
        written({"cleanup.policy": "compact"}, {"value": [b"a", b"b"]})


def test_a_refusal_without_a_row_names_the_partition(servers: str, admin: Admin, written: Any) -> None:
    """A frame without timestamps has none that could be named."""
    with pytest.raises(BatchRefused, match=r"\(32\): refusing-\S+-0: .*message\.timestamp\.after\.max\.ms=0"):
        written(
            {"message.timestamp.before.max.ms": "0", "message.timestamp.after.max.ms": "0"}, {"value": [b"a"]}
        )
