"""Tables for a terminal: no word is cut, whatever the width."""

from hypothesis import given
from hypothesis import strategies as st

from sparklog_server.cli.tables import Column, table_of

MEMBER = "consumer-billing-1-9bb8a2f2-2f59-4b1d-8e0f-aabbccddeeff"
GROUPS = [
    Column("group", ["billing", "billing"], is_number=False),
    Column("partition", ["0", "1"], is_number=True),
    Column("lag", ["10", "-"], is_number=True),
    Column("member", [MEMBER, "-"], is_number=False),
    Column("client id", ["consumer-1", "-"], is_number=False),
]
WORDS = st.text("abcdé語 ", min_size=1).filter(lambda text: text.strip() == text)


def text_of(columns: list[Column], width: int) -> str:
    table = table_of(columns, width)
    return "\n".join([*table.heading, *(line for lines in table.rows for line in lines)])


def test_columns_are_aligned_and_numbers_stand_to_the_right() -> None:
    assert text_of(GROUPS[:3], 80) == (
        "group    partition  lag\n───────  ─────────  ───\nbilling          0   10\nbilling          1    -"
    )


def test_columns_without_room_move_below_their_row() -> None:
    assert text_of(GROUPS, 79) == (
        "group    partition  lag\n"
        "───────  ─────────  ───\n"
        "billing          0   10\n"
        f"    member: {MEMBER}\n"
        "    client id: consumer-1\n"
        "billing          1    -"
    )


def test_prose_is_wrapped_at_spaces() -> None:
    columns = [
        Column("setting", ["retention.ms"], is_number=False),
        Column("what it does", ["The age at which a segment is deleted."], is_number=False),
    ]
    assert text_of(columns, 40) == (
        "setting       what it does\n"
        "────────────  ──────────────────────────\n"
        "retention.ms  The age at which a segment\n"
        "              is deleted."
    )


@given(
    st.integers(1, 5).flatmap(
        lambda count: st.lists(st.lists(WORDS, min_size=count, max_size=count), min_size=1, max_size=3)
    ),
    st.integers(1, 120),
)
def test_every_word_is_whole_at_every_width(rows: list[list[str]], width: int) -> None:
    columns = [
        Column(f"c{index}", [row[index] for row in rows], is_number=False) for index in range(len(rows[0]))
    ]
    shown = text_of(columns, width).split()
    assert all(word in shown for row in rows for cell in row for word in cell.split())
