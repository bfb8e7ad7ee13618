"""The plain-Python twin of the `avro` kernel: flat records in Avro's binary encoding to Arrow-layout columns.

Source: Apache Avro 1.12, "Binary encoding". A field is (sort, branch of null in its union or -1, whether
its column is built).

A program is a schema of any shape as int32 numbers: the sort of a node and what follows from it, children
as their index in the program.

    BOOLEAN … STRING, AVRO_NULL          FIXED size          ENUM symbols          ARRAY child, MAP child (of its values)
    UNION branches child…           RECORD fields child…
"""  # noqa: E501

from collections.abc import Sequence
from struct import pack_into, unpack_from

Buffer = bytes | bytearray | memoryview
Field = tuple[int, int, bool]
Column = tuple[bytearray, ...]

BOOLEAN = 0
INT = 1
LONG = 2
MILLIS = 3
"""A long of milliseconds, whose column has microseconds."""
FLOAT = 4
DOUBLE = 5
BYTES = 6
STRING = 7
AVRO_NULL = 8
FIXED = 9
ENUM = 10
UNION = 11
ARRAY = 12
MAP = 13
RECORD = 14

NEVER = 0
ALWAYS = 1
PERHAPS = 2
"""Whether one byte 0 and a schema's id of four bytes come before the record."""

_PREFIX = 5
_MILLIS_MAX = (2**63 - 1) // 1000
_WIDTHS = {INT: 4, FLOAT: 4, LONG: 8, MILLIS: 8, DOUBLE: 8}
_FORMATS = {INT: "=i", LONG: "=q", MILLIS: "=q", FLOAT: "=f", DOUBLE: "=d"}


def read_records(
    count: int,
    validity: Buffer | None,
    offsets: Buffer,
    content: Buffer,
    start: int,
    fields: Sequence[Field],
    prefix: int,
) -> tuple[bytearray, list[Column | None], list[int]]:
    """Rows `[start, start + count)` of a binary column: (validity of the rows, a column or None per field,
    rows that were refused).

    A column is (validity, values), of bytes and text (validity, int32 offsets, bytes). A row is null where
    the value is null or refused, and its fields with it. Refused is a row that is not exactly one record,
    whose text is not UTF-8, or that has a number beyond its type.
    """
    made = [_Column(count, sort) if is_wanted else None for sort, _, is_wanted in fields]
    valid, refused = bytearray((count + 7) >> 3), []
    for row in range(count):
        at = start + row
        if validity is None or validity[at >> 3] >> (at & 7) & 1:
            first, end = unpack_from("=ii", offsets, 4 * at)
            values = _record(bytes(content[first:end]), fields, prefix)
            if values is None:
                refused.append(row)
            else:
                valid[row >> 3] |= 1 << (row & 7)
                for column, value in zip(made, values, strict=True):
                    if column is not None and value is not None:
                        column.put(row, value)
        for column in made:
            if column is not None:
                column.end(row)
    return valid, [None if column is None else column.parts() for column in made], refused


def check_records(
    count: int,
    validity: Buffer | None,
    offsets: Buffer,
    content: Buffer,
    start: int,
    program: Buffer,
    prefix: int,
) -> bytearray:
    """Where in each of the rows `[start, start + count)` a value of `program` begins, as int32: 0, or 5
    behind a schema's id.

    -1 - p says that there is none, and that what is wrong begins at byte p of the row; 0 stands for a null row too. The items of an
    array must take at least one byte each. A value must fill its row; its text is UTF-8, and its numbers
    are within their type.
    """  # noqa: E501
    numbers = memoryview(program).cast("B").cast("i")
    starts = bytearray(4 * count)
    for row in range(count):
        at = start + row
        if validity is None or validity[at >> 3] >> (at & 7) & 1:
            first, end = unpack_from("=ii", offsets, 4 * at)
            pack_into("=i", starts, 4 * row, _start_of(numbers, bytes(content[first:end]), prefix))
    return starts


class _Fault(Exception):
    """No value begins at the position that is its argument."""


def _start_of(program: memoryview, content: bytes, prefix: int) -> int:
    is_prefixed = prefix != NEVER and len(content) >= _PREFIX and content[0] == 0
    found = _checked(program, content, _PREFIX) if is_prefixed else -1
    if (not is_prefixed and prefix != ALWAYS) or (is_prefixed and prefix == PERHAPS and found < 0):
        found = _checked(program, content, 0)
    return found


def _checked(program: memoryview, content: bytes, start: int) -> int:
    try:
        end = _walk(program, 0, content, start)
    except _Fault as fault:
        position: int = fault.args[0]
        return -1 - position
    return start if end == len(content) else -1 - end


def _walk(program: memoryview, node: int, content: bytes, at: int) -> int:
    """The position after one value; _Fault where there is none."""
    sort = program[node]
    if sort == AVRO_NULL:
        return at
    if sort == RECORD:
        for child in program[node + 2 : node + 2 + program[node + 1]]:
            at = _walk(program, child, content, at)
        return at
    if sort in (ARRAY, MAP):
        return _walk_blocks(program, program[node + 1], content, at, is_map=sort == MAP)
    if sort == FIXED:
        return at + _within(program[node + 1], content, at, at)
    if sort not in (ENUM, UNION):
        read = _value(content, at, sort)
        if read is None:
            raise _Fault(at)
        return read[1]
    number, after = _number(content, at)
    if not 0 <= number < program[node + 1]:
        raise _Fault(at)
    return after if sort == ENUM else _walk(program, program[node + 2 + number], content, after)


def _walk_blocks(program: memoryview, inner: int, content: bytes, at: int, *, is_map: bool) -> int:
    while True:
        begin = at
        count, at = _number(content, begin)
        if count == 0:
            return at
        if count < 0:  # the block's size in bytes follows, for readers that skip it
            try:
                size, at = _number(content, at)
                _within(size, content, at, begin)
            except _Fault:
                raise _Fault(begin) from None
            count = -count
        _within(count, content, at, begin)
        for _ in range(count):
            if is_map:
                key = _value(content, at, STRING)
                if key is None:
                    raise _Fault(at)
                at = key[1]
            at = _walk(program, inner, content, at)


def _number(content: bytes, at: int) -> tuple[int, int]:
    read = _varint(content, at)
    if read is None:
        raise _Fault(at)
    return read


def _within(size: int, content: bytes, at: int, begin: int) -> int:
    if not 0 <= size <= len(content) - at:
        raise _Fault(begin)
    return size


class _Column:
    """One column while it is filled."""

    def __init__(self, count: int, sort: int) -> None:
        self._sort = sort
        self._validity = bytearray((count + 7) >> 3)
        is_long = sort in (BYTES, STRING)
        size = (count + 7) >> 3 if sort == BOOLEAN else 4 * (count + 1) if is_long else _WIDTHS[sort] * count
        self._values = bytearray(size)
        self._content = bytearray() if is_long else None

    def put(self, row: int, value: int | float | bytes) -> None:
        self._validity[row >> 3] |= 1 << (row & 7)
        if self._content is not None:
            assert isinstance(value, bytes)
            self._content += value
        elif self._sort == BOOLEAN:
            self._values[row >> 3] |= int(bool(value)) << (row & 7)
        elif isinstance(value, bytes):
            width = _WIDTHS[self._sort]
            self._values[row * width : (row + 1) * width] = value
        else:
            pack_into(_FORMATS[self._sort], self._values, row * _WIDTHS[self._sort], value)

    def end(self, row: int) -> None:
        if self._content is not None:
            pack_into("=i", self._values, 4 * (row + 1), len(self._content))

    def parts(self) -> Column:
        return (
            (self._validity, self._values)
            if self._content is None
            else (self._validity, self._values, self._content)
        )


def _record(content: bytes, fields: Sequence[Field], prefix: int) -> list[int | bytes | None] | None:
    is_prefixed = prefix != NEVER and len(content) >= _PREFIX and content[0] == 0
    if prefix == ALWAYS and not is_prefixed:
        return None
    values = _fields(content, _PREFIX if is_prefixed else 0, fields)
    # Plain Avro may begin with a zero byte, too.
    return _fields(content, 0, fields) if values is None and is_prefixed and prefix == PERHAPS else values


def _fields(content: bytes, at: int, fields: Sequence[Field]) -> list[int | bytes | None] | None:
    values: list[int | bytes | None] = []
    for sort, null_branch, _ in fields:
        if null_branch >= 0:
            branch = _varint(content, at)
            if branch is None or branch[0] not in (0, 1):
                return None
            at = branch[1]
            if branch[0] == null_branch:
                values.append(None)
                continue
        read = _value(content, at, sort)
        if read is None:
            return None
        value, at = read
        values.append(value)
    return values if at == len(content) else None


def _value(content: bytes, at: int, sort: int) -> tuple[int | bytes, int] | None:
    if sort in (BOOLEAN, FLOAT, DOUBLE):
        end = at + (1 if sort == BOOLEAN else _WIDTHS[sort])
        fixed = content[at:end]  # little-endian, as the column's
        if end > len(content) or (sort == BOOLEAN and fixed[0] > 1):
            return None
        return (fixed[0] if sort == BOOLEAN else fixed), end
    read = _varint(content, at)
    if read is None:
        return None
    number, at = read
    if sort == INT:
        return None if not -(2**31) <= number < 2**31 else (number, at)
    if sort == LONG:
        return number, at
    if sort == MILLIS:
        return None if abs(number) > _MILLIS_MAX else (number * 1000, at)
    if not 0 <= number <= len(content) - at:
        return None
    value = content[at : at + number]
    if sort == STRING:
        try:
            value.decode()
        except UnicodeDecodeError:
            return None
    return value, at + number


def _varint(content: bytes, at: int) -> tuple[int, int] | None:
    """A zig-zag varint of at most 64 bits and the position after it."""
    raw = 0
    for shift in range(0, 70, 7):
        if at >= len(content):
            return None
        byte = content[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return None if raw >> 64 else ((raw >> 1) ^ -(raw & 1), at)
    return None
