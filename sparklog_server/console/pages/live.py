"""Live tail: new records as server-sent events, at most so many a second, the others counted.

event: rows   rows of the table, as HTML
event: counts   {"seen", "shown", "skipped", "at"}: counts since the start; `at` resumes after a pause
event: gone   why the tail ended
"""

import json
from collections import Counter
from collections.abc import AsyncIterator
from heapq import heapify, heappop, heappush
from time import time
from typing import Final, NamedTuple

import anyio
import msgspec
from jinja2 import Template
from starlette.responses import Response, StreamingResponse

from sparklog.client.consumer.consumer import Consumer, ConsumerRecord
from sparklog.errors import SparklogError
from sparklog.model import TopicPartition
from sparklog_server.console.ask import Ask, Refused, get
from sparklog_server.console.filters import Filter
from sparklog_server.console.pages.records import (
    PREVIEW_CHARACTERS,
    chosen_of,
    form_of,
    partitions_of,
    positions_in,
    positions_text,
    record_shown,
    selection_of,
)
from sparklog_server.console.rendering import templates
from sparklog_server.operations.inert_text import FORMS, Form, inert_name

EVERY_S: Final = 0.25
"""The pause between two reads: records that arrive meanwhile come in one response of the broker."""
RATE: Final = 50
RATE_MAX: Final = 1000
RECORDS_PER_READ_MAX: Final = 5_000
"""A tail that is further behind skips to the end: it shows what is new, and does not hold the broker up."""
_FETCH_BYTES: Final = 2 << 20
_POLL_MS: Final = 20


class Read(NamedTuple):
    """New records, and the number of those that were left out because there were too many."""

    records: list[ConsumerRecord]
    skipped: int


class Tail:
    """A consumer at the end of some partitions. Its methods block."""

    def __init__(self, ask: Ask, partitions: list[TopicPartition], starts: dict[TopicPartition, int]) -> None:
        self._consumer = Consumer.from_settings(
            msgspec.structs.replace(
                ask.cluster.settings,
                group_id=None,
                auto_offset_reset="latest",
                allow_auto_create_topics=False,
                fetch_max_bytes=_FETCH_BYTES,
                max_poll_records=RECORDS_PER_READ_MAX,
            )
        )
        self._partitions = partitions
        self._starts = starts

    def begin(self) -> None:
        """Take the positions: those of a pause, or the ends."""
        self._consumer.assign(self._partitions)
        ends = self._consumer.end_offsets(self._partitions)
        for at in self._partitions:
            self._consumer.seek(at, min(self._starts.get(at, ends[at]), ends[at]))

    def read(self) -> Read:
        """The records since the last read."""
        records = self._consumer.poll(_POLL_MS, RECORDS_PER_READ_MAX)
        if not records:
            return Read(records, 0)
        before = {at: self._consumer.position(at) for at in self._partitions}
        ends = self._consumer.end_offsets(self._partitions)
        behind = sum(max(0, ends[at] - position) for at, position in before.items())
        if behind < RECORDS_PER_READ_MAX:
            return Read(records, 0)
        for at, position in before.items():
            self._consumer.seek(at, max(position, ends[at]))
        return Read(records, behind)

    def positions(self) -> str:
        """Where the tail stands: `0:123,1:45`."""
        return positions_text({at: self._consumer.position(at) for at in self._partitions})

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()


async def live(ask: Ask) -> Response:
    """The page, whose script opens the stream."""
    partitions, chosen = await partitions_of(ask), ask.query("partition")
    try:
        chosen_of(partitions, chosen)
        selection_of(ask)
    except Refused as error:
        ask.wrong(error)
    return ask.page(
        "live.html",
        topic=ask.part("topic"),
        partitions=partitions,
        chosen=chosen,
        filter=ask.query("filter"),
        form=form_of(ask),
        forms=FORMS,
        rate=_rate(ask),
        query=ask.request.url.query,
    )


async def tail(ask: Ask) -> Response:
    """The stream."""
    name, numbers = ask.part("topic"), chosen_of(await partitions_of(ask), ask.query("partition"))
    partitions = [TopicPartition(name, one) for one in numbers]
    selection, starts = selection_of(ask), positions_in(ask, "at") or {}
    stream = _events(ask, Tail(ask, partitions, starts), selection, form_of(ask), _rate(ask))
    return StreamingResponse(
        stream,
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _events(
    ask: Ask, tail: Tail, selection: Filter | None, form: Form, rate: int
) -> AsyncIterator[str]:
    holder = object()
    try:
        ask.console.tails.acquire_on_behalf_of_nowait(holder)
    except anyio.WouldBlock:
        yield _event("gone", "As many live tails are open as the console allows; close one first.")
        return
    try:
        async for event in _followed(ask, tail, selection, form, rate):
            yield event
    except SparklogError as error:
        yield _event("gone", inert_name(str(error)))
    finally:
        ask.console.tails.release_on_behalf_of(holder)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(tail.close)


async def _followed(
    ask: Ask, tail: Tail, selection: Filter | None, form: Form, rate: int
) -> AsyncIterator[str]:
    rows = templates().get_template("_rows.html")
    seen = shown = skipped = 0
    of_partitions: Counter[int] = Counter()
    allowance = 0.0
    await ask.cluster.run(tail.begin)
    is_new = True
    while not ask.console.is_stopping:
        if ask.session.is_over(time()):
            yield _event("gone", "The session has ended; log in again.")
            return
        ask.session.seen_s = time()
        new = await ask.cluster.run(tail.read)
        seen += len(new.records) + new.skipped
        wanted = new.records
        if selection is not None:
            wanted = await ask.cluster.run(_selected, selection, wanted)
        allowance = min(rate * EVERY_S + allowance % 1, float(rate))
        taken = fair_share(wanted, int(allowance), of_partitions)
        shown += len(taken)
        skipped += len(wanted) - len(taken) + new.skipped
        if taken:
            yield _event("rows", await ask.cluster.run(_rendered, ask, rows, taken, form))
        if new.records or is_new:
            at = await ask.cluster.run(tail.positions)
            yield _event("counts", json.dumps({"seen": seen, "shown": shown, "skipped": skipped, "at": at}))
            is_new = False
        else:
            yield ":\n\n"  # a comment: it finds out that the browser is gone
        await anyio.sleep(EVERY_S)


def fair_share(records: list[ConsumerRecord], count: int, shown: Counter[int]) -> list[ConsumerRecord]:
    """At most `count` of the records, the newest ones of each partition: those partitions come first of which
    fewest were shown lately. `shown` counts them from one call to the next, and halves with each.
    """
    own: dict[int, list[ConsumerRecord]] = {}
    for record in records:
        own.setdefault(record.partition, []).append(record)
    for partition in shown:
        shown[partition] //= 2
    shares = dict.fromkeys(own, 0)
    waiting = [(shown[partition], partition) for partition in own]
    heapify(waiting)
    for _ in range(min(count, len(records))):
        _, partition = heappop(waiting)
        shares[partition] += 1
        shown[partition] += 1
        if shares[partition] < len(own[partition]):
            heappush(waiting, (shown[partition], partition))
    taken = [
        one for partition, share in shares.items() for one in own[partition][len(own[partition]) - share :]
    ]
    return sorted(taken, key=lambda one: one.timestamp_ms)


def _selected(selection: Filter, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
    return [one for one in records if selection.selects(one)]


def _rendered(ask: Ask, rows: Template, records: list[ConsumerRecord], form: Form) -> str:
    return rows.render(rows=[record_shown(ask, one, form, PREVIEW_CHARACTERS) for one in reversed(records)])


def _event(name: str, text: str) -> str:
    lines = text.splitlines() or [""]
    return f"event: {name}\n" + "".join(f"data: {line}\n" for line in lines) + "\n"


def _rate(ask: Ask) -> int:
    return max(1, ask.number("rate", RATE, at_most=RATE_MAX))


ROUTES = [get("/topics/{topic}/live", live), get("/topics/{topic}/tail", tail)]
