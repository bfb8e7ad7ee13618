"""A topic as a pyarrow dataset, for DuckDB and Polars: they ask for columns, and for the records that pass a
filter, and only these columns and the part of the log that can have such records are read.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from sparklog.arrow.plan import Plan
from sparklog.arrow.planning import first_at
from sparklog.arrow.predicates import Predicate
from sparklog.arrow.projection import Projection


class TopicDataset(ds.Dataset):  # type: ignore[misc]
    """The columns of a read. A scan looks at the log between the ends that were planned."""

    def __init__(self, plan: Plan, projection: Projection) -> None:
        self._plan = plan
        self._projection = projection
        self.error: Exception | None = None
        """The error that ended the last scan that failed; DuckDB raises one of its own."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._projection.schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's name
        **_: Any,
    ) -> "Scan":
        """Some columns of the records that pass `filter`; how to scan (batch_size, use_threads …) is left
        to this dataset.
        """
        return Scan(self._plan, self._projection, columns, filter, self._failed)

    def to_table(self, columns: Sequence[str] | None = None, **options: Any) -> pa.Table:
        """The records of a scan."""
        return self.scanner(columns, **options).to_table()

    def to_batches(self, columns: Sequence[str] | None = None, **options: Any) -> Iterator[pa.RecordBatch]:
        """The records of a scan."""
        return iter(self.scanner(columns, **options).to_reader())

    def head(self, num_rows: int, columns: Sequence[str] | None = None, **options: Any) -> pa.Table:
        """The first records of a scan."""
        reader, found = self.scanner(columns, **options).to_reader(), []
        rows = 0
        for batch in reader:
            found.append(batch.slice(0, num_rows - rows))
            rows += found[-1].num_rows
            if rows == num_rows:
                break
        return pa.Table.from_batches(found, schema=reader.schema)

    def count_rows(self, **options: Any) -> int:
        """The number of records of a scan."""
        fewest = [self.schema.names[0]] if self.schema.names else None
        return sum(batch.num_rows for batch in self.scanner(fewest, **options).to_reader())

    def _failed(self, error: Exception) -> None:
        self.error = error

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[ds.Fragment]:  # noqa: A002
        """Not available: the parts of a topic are no files."""
        raise NotImplementedError("the fragments of a topic cannot be scanned one by one: scan the dataset")


class Scan:
    """One scan of a topic, as DuckDB and Polars use a pyarrow Scanner."""

    def __init__(
        self,
        plan: Plan,
        projection: Projection,
        columns: Sequence[str] | None,
        passes: pc.Expression | None,
        failed: Callable[[Exception], None],
    ) -> None:
        self._failed = failed
        self._names = projection.schema.names if columns is None else list(columns)
        needed = self._names
        if passes is not None:
            predicate = Predicate(passes, projection.schema)
            needed = [name for name in projection.schema.names if name in {*needed, *predicate.columns}]
            ranges = predicate.bounded(list(plan.ranges))
            plan = plan.between(first_at(plan.settings, ranges, predicate.timestamp_ms()))
        self._plan = plan
        self._passes = passes
        # Without columns only the number of records matters, and a batch has it by any column.
        self._projection = projection.chosen(needed or projection.schema.names[:1])

    @property
    def projected_schema(self) -> pa.Schema:
        """The columns."""
        return pa.schema([self._projection.schema.field(name) for name in self._names])

    def to_reader(self) -> pa.RecordBatchReader:
        """The records as they arrive."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._batches())

    def to_table(self) -> pa.Table:
        """The records as a table."""
        return self.to_reader().read_all()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        with self._plan.begin(self._projection) as read:
            try:
                for _, rows in read:
                    passed = rows if self._passes is None else rows.filter(self._passes)
                    if passed.num_rows:
                        yield passed.select(self._names)
            except Exception as error:
                self._failed(error)
                raise
