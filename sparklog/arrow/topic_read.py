"""`sparklog.read`: a bounded read of topics as Arrow, several partitions at once, without Spark."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack
from weakref import WeakSet

import pyarrow as pa

from sparklog.arrow.formats.types import ddl_of
from sparklog.arrow.plan import FormatName, ModeName, Plan, PrefixName, Request, WhenLost, plan_of
from sparklog.arrow.projection import Projection, every_column
from sparklog.arrow.ranges import OffsetRange
from sparklog.arrow.workers import ParallelRead
from sparklog.client.settings import ClientSettings, CommonOptions, IsolationLevel
from sparklog.errors import SettingsError

if TYPE_CHECKING:
    import pandas
    import polars

    from sparklog.arrow.dataset import TopicDataset


class ReadOptions(CommonOptions, total=False):
    """Settings of the client of a read."""

    isolation_level: IsolationLevel
    check_crcs: bool
    fetch_max_wait_ms: int
    client_rack: str


def read(
    topics: str | Sequence[str],
    *,
    start: str | int | datetime = "earliest",
    end: str | int | datetime = "latest",
    partitions: Sequence[int] | None = None,
    columns: Sequence[str] | None = None,
    value_format: FormatName = "binary",
    value_schema: str | None = None,
    value_message: str | None = None,
    key_format: FormatName = "binary",
    key_schema: str | None = None,
    key_message: str | None = None,
    schema_id_prefix: PrefixName = "auto",
    mode: ModeName | None = None,
    on_data_loss: WhenLost = "fail",
    **options: Unpack[ReadOptions],
) -> "TopicRead":
    """Plan a read of topics from `start` to `end`, in the columns and formats of the Spark source.

    A position is `earliest`, `latest`, an offset of each partition, `-1000` (the last thousand records of
    each), `-10m` (ten minutes ago), an ISO 8601 time, or a datetime with a time zone. The ends are looked up
    now: records written later are not read. A time means the first record at or after it.

    `columns` chooses among the columns of the log (key, value, topic, partition, offset, timestamp,
    timestampType, headers, _corrupt) and the fields of the decoded value; only these are decoded. Without
    `value_schema`, the fields of JSON are inferred from the first and last records of each partition. A
    record that cannot be decoded is null, and its bytes are in `_corrupt`, with mode `permissive`, the
    default with a schema; it raises UndecodableRecord with `failfast`, the default without.

    The read is read_committed unless `isolation_level` says otherwise. Raises UnknownTopic, SettingsError,
    and DataLoss if records of the range are no longer in the log, also while reading.

    One function, because each parameter is an option of the Spark source, under the same name.
    """
    for name in options:
        if name.replace(".", "_") not in ReadOptions.__annotations__:
            raise SettingsError(f"{name} is not a setting of a read")
    settings: dict[str, object] = {"isolation_level": "read_committed", **options}
    request = Request(
        topics=(topics,) if isinstance(topics, str) else tuple(topics),
        start=start,
        end=end,
        partitions=partitions,
        value_format=value_format,
        value_schema=value_schema,
        value_message=value_message,
        key_format=key_format,
        key_schema=key_schema,
        key_message=key_message,
        schema_id_prefix=schema_id_prefix,
        mode=mode,
        on_data_loss=on_data_loss,
    )
    return TopicRead.from_settings(ClientSettings.for_role("consumer", settings), request, columns)


class TopicRead:
    """A planned read; each method reads the same records from the brokers. It has connections only while it
    reads, and `close` ends that.
    """

    def __init__(self, plan: Plan, projection: Projection) -> None:
        self._plan = plan
        self._projection = projection
        self._open: WeakSet[ParallelRead] = WeakSet()

    @classmethod
    def from_settings(
        cls, settings: ClientSettings, request: Request, columns: Sequence[str] | None = None
    ) -> Self:
        """Plan a read by a client with these settings."""
        plan = plan_of(settings, request)
        return cls(plan, Projection(plan.known, columns))

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._projection.schema

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """The ranges of offsets that are read, by topic and partition; offsets may be missing in them."""
        return self._plan.ranges

    @property
    def available(self) -> tuple[str, ...]:
        """The columns to choose among: those of the log, and the fields of the value that are not named like
        one of them.
        """
        return tuple(every_column(self._plan.known))

    @property
    def value_schema(self) -> str:
        """The type of `value` as the argument `value_schema` takes it."""
        return ddl_of(self._plan.known.field("value").type)

    def select(self, columns: Sequence[str]) -> "TopicRead":
        """The same read with other columns."""
        return TopicRead(self._plan, Projection(self._plan.known, columns))

    def dataset(self) -> "TopicDataset":
        """These columns as a pyarrow dataset: DuckDB and Polars read only the columns that a query names, and
        of the log only what its conditions on partition, offset and timestamp leave.
        """
        from sparklog.arrow.dataset import TopicDataset  # loads pyarrow.dataset

        return TopicDataset(self._plan, self._projection)

    def batches(self) -> pa.RecordBatchReader:
        """The records as they arrive, in order within each partition, in bounded memory. Connections close
        at the end, when the reader is deleted, or by `close`.
        """
        return pa.RecordBatchReader.from_batches(self.schema, self._rows())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The stream that Polars, DuckDB and pyarrow take."""
        return self.batches().__arrow_c_stream__(requested_schema)

    def to_arrow(self) -> pa.Table:
        """All records, by topic, partition and offset."""
        with self._begin() as read:
            found = sorted(read, key=lambda batch: batch.place)  # stable: offsets stay in order
        return pa.Table.from_batches([batch.rows for batch in found], schema=self.schema)

    def to_pandas(self) -> "pandas.DataFrame":
        """All records as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> "polars.DataFrame":
        """All records as a Polars DataFrame."""
        import polars

        made = polars.from_arrow(self.to_arrow())
        assert isinstance(made, polars.DataFrame), "a table"
        return made

    def close(self) -> None:
        """End the reads that are under way: their readers raise ClientClosed."""
        for read in list(self._open):
            read.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self) -> ParallelRead:
        read = self._plan.begin(self._projection)
        self._open.add(read)
        return read

    def _rows(self) -> Iterator[pa.RecordBatch]:
        with self._begin() as read:
            for batch in read:
                yield batch.rows
