"""The check of Avro values against a schema, in pure Python: the counterpart of `check_records` of the `avro`
kernel.

It stays beside fastavro, which trusts its input: fastavro reads a union branch of -1 as the last branch, a
boolean of 2 as true, and wraps numbers beyond 64 bits. Source: Apache Avro 1.12, "Binary encoding".

A program is a schema as int32 numbers, each node a sort and its arguments; a child is its index in the
program:

    BOOLEAN … STRING, AVRO_NULL    -
    FIXED                          size
    ENUM                           number of symbols
    ARRAY, MAP                     child (of a map: of its values)
    UNION, RECORD                  number of children, children
"""

from struct import pack_into, unpack_from

Buffer = bytes | bytearray | memoryview

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
"""Whether a zero byte and a schema id of four bytes precede the record."""

_PREFIX = 5
_MILLIS_MAX = (2**63 - 1) // 1000
_WIDTHS = {BOOLEAN: 1, FLOAT: 4, DOUBLE: 8}


def check_records(
    count: int,
    validity: Buffer | None,
    offsets: Buffer,
    content: Buffer,
    start: int,
    program: Buffer,
    prefix: int,
) -> bytearray:
    """The start of the value of `program` in each of the rows `[start, start + count)`, as int32: 0, or 5
    after a schema id.

    -1 - p means that the row has no such value, and that the fault begins at byte p of the row. A null row
    has 0. A value must fill its row, its text must be UTF-8, its numbers must fit their types, and each item
    of an array must take at least one byte.
    """
    numbers = memoryview(program).cast("B").cast("i")
    starts = bytearray(4 * count)
    for row in range(count):
        at = start + row
        if validity is None or validity[at >> 3] >> (at & 7) & 1:
            first, end = unpack_from("=ii", offsets, 4 * at)
            pack_into("=i", starts, 4 * row, _start_of(numbers, bytes(content[first:end]), prefix))
    return starts


class _Fault(Exception):
    """The bytes at a position, the argument, are not a value of the schema."""


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
    """The position after one value; raises _Fault if there is no value."""
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


def _value(content: bytes, at: int, sort: int) -> tuple[int | bytes, int] | None:
    if sort in (BOOLEAN, FLOAT, DOUBLE):
        end = at + _WIDTHS[sort]
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
