"""The records of a topic: browse, one record, and produce."""

import base64
import binascii
from time import time
from typing import Final, NamedTuple

import msgspec
from starlette.responses import Response

from sparklog.client.consumer import ConsumerRecord
from sparklog.client.producer import Producer, RecordMetadata
from sparklog.client.settings import ClientSettings
from sparklog.errors import SparklogError
from sparklog.model import TopicPartition
from sparklog_server.cli.positions import Position, position
from sparklog_server.console.ask import Ask, Refused, get, post
from sparklog_server.console.browse import Wanted, read
from sparklog_server.console.filters import BadExpression, Filter
from sparklog_server.console.shown import FORMS, Form, Shown, shown

LIMIT: Final = 50
LIMIT_MAX: Final = 500
PREVIEW_CHARACTERS: Final = 320
WHOLE_CHARACTERS: Final = 64 * 1024
HEADERS_SHOWN_MAX: Final = 100
_ENCODINGS: Final = ("text", "json", "base64", "hex")


class RecordShown(NamedTuple):
    """A record on a page."""

    record: ConsumerRecord
    key: Shown
    value: Shown
    headers: list[tuple[str, Shown]]
    headers_left_out: int


def record_shown(ask: Ask, record: ConsumerRecord, form: Form, limit: int) -> RecordShown:
    """A record with its parts as text; the schema of the topic is that of its values."""
    decode = ask.console.schemas.get(record.topic)
    is_compact = limit == PREVIEW_CHARACTERS
    plain: Form = form if form in ("text", "hex", "json") else "auto"
    return RecordShown(
        record,
        shown(record.key, plain, limit, is_compact=is_compact),
        shown(record.value, form, limit, decode, is_compact=is_compact),
        [
            (name, shown(value, plain, limit, is_compact=True))
            for name, value in record.headers[:HEADERS_SHOWN_MAX]
        ],
        max(0, len(record.headers) - HEADERS_SHOWN_MAX),
    )


def form_of(ask: Ask) -> Form:
    """The form in which parts are shown."""
    text = ask.query("as", "auto")
    return next((form for form in FORMS if form == text), "auto")


def selection_of(ask: Ask) -> Filter | None:
    """The filter of the address; raises BadExpression."""
    text = ask.query("filter")
    return Filter(text) if text else None


async def partitions_of(ask: Ask) -> list[int]:
    """The partitions of the topic of the path."""
    name = ask.part("topic")
    described = (await ask.admin(lambda admin: admin.describe_topics([name])))[name]
    return [one.partition for one in described.partitions]


async def browse(ask: Ask) -> Response:
    """Records from a position on, or the newest ones."""
    name, form, partitions = ask.part("topic"), form_of(ask), await partitions_of(ask)
    chosen = ask.query("partition")
    numbers = [one for one in partitions if not chosen or str(one) == chosen]
    if not numbers:
        raise Refused(f"{name} has no partition {chosen!r}; it has {len(partitions)}, from 0 on")
    start, limit = ask.query("from", "newest"), max(1, ask.number("limit", LIMIT, at_most=LIMIT_MAX))
    error, found = None, None
    try:
        wanted = Wanted(
            [TopicPartition(name, number) for number in numbers],
            None if start in ("", "newest", "end", "latest") else position(start, "from", int(time() * 1000)),
            limit,
            selection_of(ask),
            "read_committed" if ask.query("committed") == "1" else "read_uncommitted",
        )
        settings = ask.cluster.settings
        found = await ask.admin(lambda admin: read(admin, settings, wanted))
    except BadExpression as refused:
        error = f"filter: {refused}"
    records = [] if found is None else found.records
    single = None if found is None or len(numbers) != 1 else TopicPartition(name, numbers[0])
    return ask.page(
        "records.html",
        status=200 if error is None else 400,
        topic=name,
        error=error,
        found=found,
        rows=[record_shown(ask, record, form, PREVIEW_CHARACTERS) for record in records],
        partitions=partitions,
        chosen=chosen,
        start=start,
        limit=limit,
        filter=ask.query("filter"),
        form=form,
        forms=FORMS,
        is_committed=ask.query("committed") == "1",
        older=_older(found.begins[single], records, limit) if found and single else None,
        newer=found.reached[single]
        if found and single and found.reached[single] < found.ends[single]
        else None,
        has_schema=name in ask.console.schemas,
    )


async def record(ask: Ask) -> Response:
    """One record, by its address."""
    name, form = ask.part("topic"), form_of(ask)
    found = await _at(ask)
    return ask.page(
        "record.html",
        topic=name,
        partition=found.partition,
        offset=int(ask.part("offset")),
        shown=record_shown(ask, found, form, WHOLE_CHARACTERS),
        form=form,
        forms=FORMS,
    )


async def raw(ask: Ask) -> Response:
    """The bytes of a key or value, as a file to save: a browser never shows them as a page."""
    found, part = await _at(ask), ask.query("part", "value")
    content = found.key if part == "key" else found.value
    name = f"{found.topic}-{found.partition}-{found.offset}.{'key' if part == 'key' else 'value'}"
    return Response(
        content or b"",
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"},
    )


async def _at(ask: Ask) -> ConsumerRecord:
    """The record of the path, or the next one if compaction has removed it."""
    partition, offset = ask.part("partition"), ask.part("offset")
    if not (partition.isdecimal() and offset.isdecimal() and len(partition) < 10 and len(offset) < 20):
        raise Refused("a record has the address /topics/TOPIC/records/PARTITION/OFFSET")
    at = TopicPartition(ask.part("topic"), int(partition))
    if at.partition not in await partitions_of(ask):
        raise Refused(f"{at.topic} has no partition {at.partition}")
    settings, wanted = ask.cluster.settings, Wanted([at], Position("offset", int(offset)), 1)
    found = await ask.admin(lambda admin: read(admin, settings, wanted))
    if int(offset) >= found.ends[at] or not found.records:
        raise Refused(
            f"{at} has no record at offset {int(offset)}; it has those from {found.begins[at]} to "
            f"{found.ends[at] - 1}"
        )
    return found.records[0]


def _older(begin: int, records: list[ConsumerRecord], limit: int) -> int | None:
    first = min((one.offset for one in records), default=begin)
    return max(begin, first - limit) if first > begin else None


# -- produce -------------------------------------------------------------------------------------------------


async def produce_form(ask: Ask) -> Response:
    """The form for a record."""
    return _form(ask, await partitions_of(ask), 200, None)


async def produce(ask: Ask) -> Response:
    """Write one record; an error shows the form again as it was."""
    partitions = await partitions_of(ask)
    name, settings = ask.part("topic"), ask.cluster.settings
    try:
        partition = ask.field("partition")
        number = None if not partition else next((one for one in partitions if str(one) == partition), -1)
        if number == -1:
            raise Refused(f"there is no partition {partition!r}")
        key, value = _content(ask, "key"), _content(ask, "value")
        headers = _headers(ask.field("headers"))
        told = await ask.cluster.run(_send, settings, name, number, key, value, headers)
    except (SparklogError, Refused) as error:
        return _form(ask, partitions, 400, str(error))
    return ask.moved(
        f"/topics/{name}/records/{told.topic_partition.partition}/{told.offset}",
        f"Written to {told.topic_partition}, offset {told.offset}.",
    )


def _send(
    settings: ClientSettings,
    topic: str,
    partition: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
) -> RecordMetadata:
    patient = msgspec.structs.replace(
        settings, linger_ms=0, delivery_timeout_ms=settings.default_api_timeout_ms, request_timeout_ms=5_000
    )
    with Producer.from_settings(patient) as producer:
        return producer.send(topic, value, key, headers=headers, partition=partition).result()


def _form(ask: Ask, partitions: list[int], status: int, error: str | None) -> Response:
    given = {name: values[0] for name, values in ask.form.items()}
    return ask.page(
        "produce.html",
        status,
        topic=ask.part("topic"),
        partitions=partitions,
        encodings=_ENCODINGS,
        given=given,
        error=error,
    )


def _content(ask: Ask, part: str) -> bytes | None:
    """The bytes of a key or value; None for null, and for an empty key."""
    text, encoding = ask.field(part), ask.field(f"{part}.encoding", "text")
    if ask.field(f"{part}.null") or (part == "key" and not text):
        return None
    try:
        if encoding == "hex":
            return bytes.fromhex(text)
        if encoding == "base64":
            return base64.b64decode(text, validate=True)
        if encoding == "json":
            msgspec.json.decode(text)
        return text.encode()
    except (ValueError, binascii.Error, msgspec.MsgspecError, RecursionError) as error:
        raise Refused(f"the {part} is not {encoding}: {error}") from None


def _headers(text: str) -> list[tuple[str, bytes | None]]:
    """Lines `name: value`; a name alone has no value."""
    found: list[tuple[str, bytes | None]] = []
    for line in text.splitlines():
        if line.strip():
            name, colon, value = line.partition(":")
            found.append((name.strip(), value.strip().encode() if colon else None))
    return found


ROUTES = [
    get("/topics/{topic}/records", browse),
    get("/topics/{topic}/records/{partition}/{offset}", record),
    get("/topics/{topic}/records/{partition}/{offset}/raw", raw),
    get("/topics/{topic}/produce", produce_form),
    post("/topics/{topic}/produce", produce),
]
