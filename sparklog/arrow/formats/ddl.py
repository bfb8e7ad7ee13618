"""Parses schemas in Spark's DDL (`a INT, b ARRAY<STRING>`) and in Spark's JSON, without Spark.

Spark parses DDL in its JVM, which neither a client nor the processes that plan a Python data source have.
"""

import json
import re
from typing import Any, Final

import pyarrow as pa

from sparklog.arrow.formats.types import TIMESTAMP, TIMESTAMP_NTZ, array_of, map_of

DEPTH_MAX: Final = 64
TEXT_CHARACTERS_MAX: Final = 1 << 20

_TOKEN = re.compile(
    r"\s*(?:`((?:[^`]|``)+)`|([A-Za-z0-9_]+)|('(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\")|([<>(),:]))"
)
_SIMPLE: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ltz": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
}


def parse_schema(text: str) -> pa.DataType:
    """The columns of a table (as a struct) or a single type, from DDL or the JSON of
    `DataFrame.schema.json()`; raises ValueError.
    """
    if len(text) > TEXT_CHARACTERS_MAX:
        raise ValueError(f"a schema of {len(text)} characters is more than the {TEXT_CHARACTERS_MAX} allowed")
    stripped = text.strip()
    if stripped.startswith(("{", '"')):
        return _from_json(stripped)
    try:
        kind = _one_type(stripped)
    except ValueError as not_a_type:
        try:
            parser = _Parser(stripped)
            kind = pa.struct(parser.fields(0, closing=None))
        except ValueError as not_columns:
            # The error of the more likely reading is more useful.
            raise (
                not_columns if re.match(r"(?is)\s*(array|map|struct)\s*<", text) is None else not_a_type
            ) from None
    return kind


def _from_json(text: str) -> pa.DataType:
    try:
        return _of_json(json.loads(text), 0)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"not a Spark schema in JSON ({type(error).__name__}: {error})") from error


def _of_json(parsed: Any, depth: int) -> pa.DataType:
    """A type as Spark writes it: a word, or an object whose `type` is struct, array or map."""
    if depth > DEPTH_MAX:
        raise ValueError(f"types are nested deeper than {DEPTH_MAX}")
    if isinstance(parsed, str):
        return parse_schema(parsed) if depth == 0 else _one_type(parsed)
    match parsed["type"]:
        case "struct":
            return pa.struct([_field_of_json(field, depth + 1) for field in parsed["fields"]])
        case "array":
            element = _of_json(parsed["elementType"], depth + 1)
            return array_of(element, nullable=bool(parsed["containsNull"]))
        case "map":
            key, value = _of_json(parsed["keyType"], depth + 1), _of_json(parsed["valueType"], depth + 1)
            return map_of(key, value, nullable=bool(parsed["valueContainsNull"]))
    raise ValueError(f"{str(parsed['type'])[:60]!r} is not a type")


def _field_of_json(parsed: Any, depth: int) -> pa.Field:
    if not isinstance(parsed["name"], str):
        raise TypeError(f"{str(parsed['name'])[:60]!r} is not the name of a column")
    return pa.field(
        parsed["name"], _of_json(parsed["type"], depth), nullable=bool(parsed.get("nullable", True))
    )


def _one_type(word: str) -> pa.DataType:
    parser = _Parser(word)
    kind = parser.type(0)
    parser.end()
    return kind


class _Parser:
    """Parses tokens from left to right: (name, is quoted), or a mark."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise ValueError(f"{text[at : at + 20]!r} is not expected here")
            quoted, word, string, mark = found.groups()
            if quoted is not None:
                self._tokens.append(("name", quoted.replace("``", "`")))
            elif word is not None:
                self._tokens.append(("word", word))
            else:
                self._tokens.append(("string", string) if string is not None else ("mark", mark))
            at = found.end()
        self._at = 0

    def type(self, depth: int) -> pa.DataType:
        if depth > DEPTH_MAX:
            raise ValueError(f"types are nested deeper than {DEPTH_MAX}")
        sort, word = self._next()
        name = word.lower()
        if sort != "word":
            raise ValueError(f"{word!r} is not a type")
        if name in _SIMPLE:
            return _SIMPLE[name]
        if name in ("decimal", "dec", "numeric"):
            return self._decimal()
        if name == "array":
            self._expect("<")
            element = self.type(depth + 1)
            self._expect(">")
            return array_of(element)
        if name == "map":
            self._expect("<")
            key = self.type(depth + 1)
            self._expect(",")
            value = self.type(depth + 1)
            self._expect(">")
            return map_of(key, value)
        if name == "struct":
            self._expect("<")
            return pa.struct([] if self._take(">") else self.fields(depth + 1, closing=">"))
        raise ValueError(
            f"{word!r} is not a type; known are {', '.join(_SIMPLE)}, decimal(p,s), array<…>, map<…,…> and "
            f"struct<…>"
        )

    def fields(self, depth: int, *, closing: str | None) -> list[pa.Field]:
        found: list[pa.Field] = []
        while True:
            sort, name = self._next()
            if sort not in ("word", "name"):
                raise ValueError(f"{name!r} is not the name of a column")
            self._take(":")
            kind = self.type(depth)
            nullable = not (self._take_word("not") and self._expect_word("null"))
            if self._take_word("comment"):
                self._next()
            found.append(pa.field(name, kind, nullable=nullable))
            if self._take(","):
                continue
            if closing is None:
                self.end()
            else:
                self._expect(closing)
            return found

    def end(self) -> None:
        if self._at < len(self._tokens):
            raise ValueError(f"{self._tokens[self._at][1]!r} is not expected here")

    def _decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self._take("("):
            precision = self._number()
            scale = self._number() if self._take(",") else 0
            self._expect(")")
        if not 1 <= precision <= 38 or scale > precision:
            raise ValueError(f"decimal({precision},{scale}) is beyond decimal(38,38)")
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        _, word = self._next()
        if not re.fullmatch(r"[0-9]{1,2}", word):
            raise ValueError(f"{word!r} is not a number of digits")
        return int(word)

    def _next(self) -> tuple[str, str]:
        if self._at == len(self._tokens):
            raise ValueError("the text ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, mark: str) -> bool:
        is_there = self._at < len(self._tokens) and self._tokens[self._at] == ("mark", mark)
        self._at += is_there
        return is_there

    def _take_word(self, word: str) -> bool:
        is_there = (
            self._at < len(self._tokens)
            and self._tokens[self._at][0] == "word"
            and self._tokens[self._at][1].lower() == word
        )
        self._at += is_there
        return is_there

    def _expect(self, mark: str) -> None:
        _, word = self._next()
        if word != mark:
            raise ValueError(f"{word!r} stands where {mark!r} is expected")

    def _expect_word(self, word: str) -> bool:
        if not self._take_word(word):
            raise ValueError(f"{word.upper()!r} is expected after NOT")
        return True
