"""The records of a topic: browse, one record, and produce."""

import base64
import binascii
import csv
import io
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from starlette.responses import Response

from sparklog.client.admin.positions import Position
from sparklog.client.consumer.consumer import ConsumerRecord
from sparklog.client.producer.producer import Producer, RecordMetadata
from sparklog.client.settings import ClientSettings
from sparklog.model import TopicPartition
from sparklog_server.console.ask import Ask, Refused, get, position_in, post
from sparklog_server.console.browse import Found, Wanted, read
from sparklog_server.console.filters import BadExpression, Filter
from sparklog_server.operations.inert_text import FORMS, Form, Shown, shown
from sparklog_server.operations.json_records import RECORD_FIELDS, json_text
from sparklog_server.operations.refused import OperationRefused

_COLUMNS: Final = ("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def as_json_lines(records: Sequence[ConsumerRecord]) -> str:
    """An object for each record, which `sparklog produce --from-json` reads."""
    return "".join(json_text({name: getattr(record, name) for name in RECORD_FIELDS}) for record in records)


def as_csv(records: Sequence[ConsumerRecord]) -> str:
    """A row for each record, below one of names. Null is an empty field, bytes that are not UTF-8 are `0x`
    and hexadecimal digits, headers are a list of JSON. An apostrophe stands before text that a spreadsheet
    would take for a formula.
    """
    file = io.StringIO()
    rows = csv.writer(file)
    rows.writerow(_COLUMNS)
    for one in records:
        headers = json_text(one.headers).rstrip() if one.headers else ""
        place = (one.topic, one.partition, one.offset, one.timestamp_ms)
        rows.writerow((*place, _cell(one.key), _cell(one.value), headers))
    return file.getvalue()


def _cell(content: bytes | None) -> str:
    if content is None:
        return ""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return f"0x{content.hex()}"
    return f"'{text}" if text.startswith(_FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# -- pages ---------------------------------------------------------------------------------------------------

LIMIT: Final = 50
LIMIT_MAX: Final = 500
PREVIEW_CHARACTERS: Final = 320
WHOLE_CHARACTERS: Final = 64 * 1024
HEADERS_SHOWN_MAX: Final = 100
PAGED_PARTITIONS_MAX: Final = 1_000
"""Partitions whose positions fit into an address."""
_ENCODINGS: Final = ("text", "json", "base64", "hex")
_FILES: Final = {
    "jsonl": ("application/x-ndjson", as_json_lines),
    "csv": ("text/csv; charset=utf-8", as_csv),
}


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
    """The filter of the address."""
    text = ask.query("filter")
    try:
        return Filter(text) if text else None
    except BadExpression as error:
        raise Refused(str(error), "filter") from None


async def partitions_of(ask: Ask) -> list[int]:
    """The partitions of the topic of the path."""
    name = ask.part("topic")
    described = (await ask.admin(lambda admin: admin.describe_topics([name])))[name]
    return [one.partition for one in described.partitions]


def chosen_of(partitions: list[int], chosen: str) -> list[int]:
    """The partition that is chosen, or all."""
    numbers = [one for one in partitions if not chosen or str(one) == chosen]
    if not numbers:
        raise Refused(
            f"there is no partition {chosen!r}; there are {len(partitions)}, from 0 on", "partition"
        )
    return numbers


def positions_in(ask: Ask, parameter: str) -> dict[TopicPartition, int] | None:
    """The positions `0:123,1:45` of an address, without parts that are none; None if it has no such list."""
    text, topic, found = ask.query(parameter), ask.part("topic"), {}
    for part in text.split(","):
        partition, _, offset = part.partition(":")
        if partition.isdecimal() and offset.isdecimal() and len(part) < 30:
            found[TopicPartition(topic, int(partition))] = int(offset)
    return found if text else None


def positions_text(offsets: Mapping[TopicPartition, int]) -> str:
    """As `positions_in` reads them."""
    return ",".join(f"{at.partition}:{offset}" for at, offset in sorted(offsets.items()))


def _wanted(ask: Ask, partitions: list[int]) -> Wanted:
    """What the address asks for."""
    name, start = ask.part("topic"), ask.query("from", "newest")
    after, before = positions_in(ask, "after"), positions_in(ask, "before")
    is_newest = start in ("", "newest", "end", "latest") or after is not None or before is not None
    return Wanted(
        [TopicPartition(name, number) for number in chosen_of(partitions, ask.query("partition"))],
        None if is_newest else position_in(start, "from"),
        max(1, ask.number("limit", LIMIT, at_most=LIMIT_MAX)),
        selection_of(ask),
        "read_committed" if ask.query("committed") == "1" else "read_uncommitted",
        after=after,
        before=before,
        until=positions_in(ask, "until"),
    )


async def _found(ask: Ask, partitions: list[int]) -> Found | None:
    """The records; None if a field of the form is wrong, which the page then says."""
    settings = ask.cluster.settings
    try:
        wanted = _wanted(ask, partitions)
    except OperationRefused as error:
        ask.wrong(error)
        return None
    return await ask.admin(lambda admin: read(admin, settings, wanted))


async def browse(ask: Ask) -> Response:
    """Records from a position on, or the newest ones."""
    name, form, partitions = ask.part("topic"), form_of(ask), await partitions_of(ask)
    found = await _found(ask, partitions)
    is_paged = found is not None and len(found.first) <= PAGED_PARTITIONS_MAX
    return ask.page(
        "records.html",
        topic=name,
        found=found,
        rows=[]
        if found is None
        else [record_shown(ask, one, form, PREVIEW_CHARACTERS) for one in found.records],
        partitions=partitions,
        chosen=ask.query("partition"),
        start=ask.query("from", "newest"),
        limit=ask.number("limit", LIMIT, at_most=LIMIT_MAX),
        filter=ask.query("filter"),
        form=form,
        forms=FORMS,
        is_committed=ask.query("committed") == "1",
        first=positions_text(found.first) if found is not None and is_paged else None,
        beyond=positions_text(found.limit) if found is not None and is_paged else None,
    )


async def download(ask: Ask) -> Response:
    """The records of a page as a file: JSON lines, or CSV."""
    kind = ask.part("kind")
    if kind not in _FILES:
        raise Refused(f"{kind[:40]!r} is no form of a file; there are {', '.join(_FILES)}", status=404)
    found = await _found(ask, await partitions_of(ask))
    if found is None:
        raise Refused(" ".join(ask.problems.values()))
    media_type, lines = _FILES[kind]
    return Response(
        await ask.cluster.run(lines, found.records),
        media_type=media_type,
        headers={
            "Content-Disposition": f'attachment; filename="{ask.part("topic")}.{kind}"',
            "Cache-Control": "no-store",
        },
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


# -- produce -------------------------------------------------------------------------------------------------


async def produce_form(ask: Ask) -> Response:
    """The form for a record."""
    return ask.page(
        "produce.html", topic=ask.part("topic"), partitions=await partitions_of(ask), encodings=_ENCODINGS
    )


async def produce(ask: Ask) -> Response:
    """Write one record."""
    partitions = await partitions_of(ask)
    name, settings = ask.part("topic"), ask.cluster.settings
    partition = ask.field("partition")
    number = None if not partition else next((one for one in partitions if str(one) == partition), -1)
    if number == -1:
        raise Refused(f"there is no partition {partition!r}", "partition")
    key, value = _content(ask, "key"), _content(ask, "value")
    headers = _headers(ask.field("headers"))
    written = await ask.cluster.run(_send, settings, name, number, key, value, headers)
    return ask.moved(
        f"/topics/{name}/records/{written.topic_partition.partition}/{written.offset}",
        f"Written to {written.topic_partition}, offset {written.offset}.",
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
        raise Refused(f"the {part} is not {encoding}: {error}", part) from None


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
    get("/topics/{topic}/download/{kind}", download),
    get("/topics/{topic}/records/{partition}/{offset}", record),
    get("/topics/{topic}/records/{partition}/{offset}/raw", raw),
    get("/topics/{topic}/produce", produce_form),
    post("/topics/{topic}/produce", produce, form=produce_form),
]
