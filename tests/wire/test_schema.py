"""The schema language: the meaning of annotations, and that every message class keeps to it."""

import subprocess
import sys
from random import Random
from typing import Annotated, ClassVar

import pytest

from sparklog.errors import DecodeError
from sparklog.wire import schema
from sparklog.wire.api_keys import API_BY_KEY
from sparklog.wire.codec import decode, encode
from sparklog.wire.schema import (
    Int8,
    Int16,
    Int32,
    Message,
    NullableStr,
    Str,
    Versions,
    essential,
    nullable,
    since,
    tagged,
    until,
)
from tests.wire.arbitrary import arbitrary, every_version


class Leaf(Message):
    number: Int16 = 0


class Sample(Message):
    versions: ClassVar = Versions(0, 5, flexible=3)

    always: Int8 = 0
    early: Annotated[Int32, until(1)] = -1
    late: Annotated[Int32, since(2), essential] = -1
    name: Annotated[NullableStr, nullable(1), essential] = ""
    leaves: Annotated[list[Leaf] | None, since(1), nullable(2)] = []
    leaf: Annotated[Leaf | None, since(4), nullable()] = None
    extra: Annotated[Int32, since(3), tagged(1)] = 7
    first: Annotated[Leaf | None, since(3), tagged(0)] = None
    label: Annotated[Str, since(3), tagged(300)] = ""


def wire(message: Message, version: int) -> str:
    return b"".join(bytes(chunk) for chunk in encode(message, version)).hex(" ")


def test_an_old_version_carries_its_fields_in_their_plain_form() -> None:
    assert wire(Sample(always=1, early=2, name="ab"), 0) == "01 00 00 00 02 00 02 61 62"


def test_a_flexible_version_carries_compact_lengths_and_no_tag_for_a_default() -> None:
    assert (
        wire(Sample(always=1, late=2, name="ab", leaves=[Leaf(5)]), 3)
        == "01 00 00 00 02 03 61 62 02 00 05 00 00"
    )


def test_tags_are_written_in_their_order_with_the_size_of_their_value() -> None:
    message = Sample(extra=8, first=Leaf(5), label="x" * 200)
    expected = "00 ff ff ff ff 01 01 ff 00".split()
    expected[-1:] = "03 00 03 00 05 00 01 04 00 00 00 08 ac 02 ca 01 c9 01".split() + ["78"] * 200
    assert wire(message, 4) == " ".join(expected)
    assert decode(Sample, 4, bytes.fromhex(wire(message, 4))) == message


def test_a_nullable_struct_stands_behind_one_byte() -> None:
    assert wire(Sample(leaf=Leaf(5)), 5) == "00 ff ff ff ff 01 01 01 00 05 00 00"


def test_a_field_outside_its_versions_takes_its_default() -> None:
    assert decode(Sample, 2, bytes.fromhex("01 00 00 00 02 ff ff 00 00 00 00")) == Sample(
        always=1, late=2, name=None
    )


def test_null_before_the_version_that_allows_it_is_refused_both_ways() -> None:
    with pytest.raises(ValueError, match="name may not be null"):
        encode(Sample(name=None), 0)
    with pytest.raises(DecodeError, match="null where none may be"):
        decode(Sample, 0, bytes.fromhex("01 00 00 00 02 ff ff"))


def test_an_essential_value_is_not_dropped_silently_by_a_version_that_lacks_it() -> None:
    assert wire(Sample(early=3, late=-1), 1) == "00 00 00 00 03 00 00 00 00 00 00"
    with pytest.raises(ValueError, match="late cannot be said"):
        encode(Sample(late=5), 1)


@pytest.mark.parametrize(
    "wrong", [Sample(always=128), Sample(late=1 << 31), Sample(always="1"), Sample(name="x" * 32768)]
)  # type: ignore[arg-type]
def test_a_value_that_its_field_cannot_hold_is_refused(wrong: Sample) -> None:
    with pytest.raises((OverflowError, ValueError, TypeError)):
        encode(wrong, 5)


def test_a_version_out_of_range_is_an_error_of_the_right_side() -> None:
    with pytest.raises(ValueError, match="no version 6"):
        encode(Sample(), 6)
    with pytest.raises(DecodeError, match="no version 6"):
        decode(Sample, 6, b"")


def test_known_tags_may_come_in_any_order_and_unknown_ones_are_skipped() -> None:
    octets = "00 ff ff ff ff 01 01 04  01 04 00 00 00 08  05 03 aa bb cc  80 80 01 00  00 03 00 05 00"
    assert decode(Sample, 3, bytes.fromhex(octets)) == Sample(extra=8, first=Leaf(5))


def test_a_default_list_is_never_shared_between_messages() -> None:
    one, other = decode(Sample, 0, bytes.fromhex("01 00 00 00 02 00 00")), Sample()
    assert one.leaves == []
    one.leaves.append(Leaf())
    assert other.leaves == []
    assert decode(Sample, 0, bytes.fromhex("01 00 00 00 02 00 00")).leaves == []


def test_a_class_with_a_field_that_the_language_does_not_know_is_refused() -> None:
    class Wrong(Message):
        versions: ClassVar = Versions(0, 0)

        number: int = 0

    with pytest.raises(AssertionError, match=r"Wrong\.number"):
        schema.program(Wrong, 0)


def test_every_message_of_every_version_comes_back_as_it_was() -> None:
    for cls, version in every_version():
        random = Random(f"{cls.__name__} {version}")
        for _ in range(5):
            message = arbitrary(cls, version, random)
            octets = b"".join(bytes(chunk) for chunk in encode(message, version))
            assert decode(cls, version, octets) == message


def test_the_table_and_the_classes_agree_on_versions() -> None:
    for api in API_BY_KEY.values():
        for cls in (api.request(), api.reply()):
            assert (cls.versions.since, cls.versions.flexible) == (api.since, api.flexible), cls
            # InitProducerId v6 is written down but not offered.
            assert cls.versions.until == (6 if api.name == "InitProducerId" else api.until), cls


def test_the_table_loads_no_message() -> None:
    program = "import sys, sparklog.wire.api_keys; print(sum(name.startswith('sparklog.wire.messages') for name in sys.modules))"  # noqa: E501
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        == "0\n"
    )
