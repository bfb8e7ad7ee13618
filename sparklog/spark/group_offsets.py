"""Commits a query's progress to a consumer group, for tools that show lag. Only Spark's checkpoint decides
where a query resumes.
"""

import warnings

import msgspec

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.groups import SPARK_METADATA, GroupOffset
from sparklog.errors import SparklogError
from sparklog.model import Offset
from sparklog.spark.offsets import PartitionOffsets
from sparklog.spark.options import Options

TIMEOUT_MS = 5_000
"""The maximum wait of a micro-batch for the coordinator; the next commit includes a skipped one."""


class GroupOffsets:
    """Commits positions to the group in the options; does nothing if there is none."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._admin: Admin | None = None
        self._committed: PartitionOffsets = {}
        self._warned = ""

    def commit(self, reached: PartitionOffsets) -> None:
        """Commits the offsets below which all records are processed. A refusal is a warning: the query does
        not depend on it.
        """
        if self._options.group_id is None or not reached or reached == self._committed:
            return
        if self._admin is None:
            timeout_ms = min(TIMEOUT_MS, self._options.client.default_api_timeout_ms)
            self._admin = Admin.from_settings(
                msgspec.structs.replace(self._options.client, default_api_timeout_ms=timeout_ms)
            )
        moved = {
            tp: GroupOffset(Offset(offset), metadata=SPARK_METADATA)
            for tp, offset in reached.items()
            if self._committed.get(tp) != offset
        }
        try:
            self._admin.alter_group_offsets(self._options.group_id, moved)
        except SparklogError as error:
            if str(error) != self._warned:
                self._warned = str(error)
                warnings.warn(
                    f"group {self._options.group_id!r} cannot be told the progress of this query: {error}",
                    stacklevel=2,
                )
            return
        self._committed, self._warned = dict(reached), ""

    def close(self) -> None:
        """Closes the connections; the next commit opens them again."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None
