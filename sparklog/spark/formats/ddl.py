"""Schemas as text: Spark's DDL (`a INT, b ARRAY<STRING>`) and Spark's JSON, read where no JVM is at hand.

Spark itself parses DDL only through its JVM, which the processes that plan a Python data source do not have.
"""

import json
import re
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

DEPTH_MAX: Final = 64
TEXT_CHARACTERS_MAX: Final = 1 << 20

_TOKEN = re.compile(
    r"\s*(?:`((?:[^`]|``)+)`|([A-Za-z0-9_]+)|('(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\")|([<>(),:]))"
)
_SIMPLE: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "tinyint": ByteType(),
    "byte": ByteType(),
    "smallint": ShortType(),
    "short": ShortType(),
    "int": IntegerType(),
    "integer": IntegerType(),
    "bigint": LongType(),
    "long": LongType(),
    "float": FloatType(),
    "real": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ltz": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
}


def parse_schema(text: str) -> DataType:
    """A table's columns (as a struct) or a single type, in DDL or the JSON of `DataFrame.schema.json()`;
    or ValueError.
    """
    if len(text) > TEXT_CHARACTERS_MAX:
        raise ValueError(f"a schema of {len(text)} characters is more than the {TEXT_CHARACTERS_MAX} allowed")
    stripped = text.strip()
    if stripped.startswith(("{", '"')):
        return _from_json(stripped)
    try:
        parser = _Parser(stripped)
        kind = parser.type(0)
        parser.end()
    except ValueError as not_a_type:
        try:
            parser = _Parser(stripped)
            kind = StructType(parser.fields(0, closing=None))
        except ValueError as not_columns:
            # The reading that came further tells more.
            raise (
                not_columns if re.match(r"(?is)\s*(array|map|struct)\s*<", text) is None else not_a_type
            ) from None
    return kind


def _from_json(text: str) -> DataType:
    try:
        parsed = json.loads(text)
        if isinstance(parsed, str):
            return parse_schema(parsed)
        sorts: dict[str, type[StructType | ArrayType | MapType]] = {
            "struct": StructType,
            "array": ArrayType,
            "map": MapType,
        }
        kind: DataType = sorts[parsed["type"]].fromJson(parsed)
    except (ValueError, KeyError, TypeError, AssertionError, RecursionError) as error:
        raise ValueError(f"not a Spark schema in JSON ({type(error).__name__}: {error})") from error
    except PySparkException as error:
        raise ValueError(f"not a Spark schema in JSON ({error})") from error
    return kind


class _Parser:
    """Reads tokens from the left: (name, is quoted), or a mark."""

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

    def type(self, depth: int) -> DataType:
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
            return ArrayType(element)
        if name == "map":
            self._expect("<")
            key = self.type(depth + 1)
            self._expect(",")
            value = self.type(depth + 1)
            self._expect(">")
            return MapType(key, value)
        if name == "struct":
            self._expect("<")
            return StructType([] if self._take(">") else self.fields(depth + 1, closing=">"))
        raise ValueError(
            f"{word!r} is not a type; known are {', '.join(_SIMPLE)}, decimal(p,s), array<…>, map<…,…> and "
            f"struct<…>"
        )

    def fields(self, depth: int, *, closing: str | None) -> list[StructField]:
        found: list[StructField] = []
        while True:
            sort, name = self._next()
            if sort not in ("word", "name"):
                raise ValueError(f"{name!r} is not the name of a column")
            self._take(":")
            kind = self.type(depth)
            nullable = not (self._take_word("not") and self._expect_word("null"))
            if self._take_word("comment"):
                self._next()
            found.append(StructField(name, kind, nullable))
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

    def _decimal(self) -> DecimalType:
        precision, scale = 10, 0
        if self._take("("):
            precision = self._number()
            scale = self._number() if self._take(",") else 0
            self._expect(")")
        if not 1 <= precision <= 38 or scale > precision:
            raise ValueError(f"decimal({precision},{scale}) is beyond decimal(38,38)")
        return DecimalType(precision, scale)

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
