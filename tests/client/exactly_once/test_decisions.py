"""The record of a sink's decision and the ids that belong to it: written records are read, and nothing else
is taken for it.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.client.exactly_once.decisions import (
    CONDEMNED_MAX,
    PARTITION_COUNT,
    VALUE_BYTES_MAX,
    About,
    Decision,
    DecisionTooLarge,
    DecisionUnreadable,
    coordinator_id,
    decode_condemned,
    decode_decision,
    encode_condemned,
    encode_decision,
    is_coordinator,
    is_readable,
    is_sink_name,
    key_of,
    names,
    parse_key,
    partition_of,
    prefix_of,
    sink_name,
    sink_of,
    task_id,
)
from sparklog.client.producer.transaction_states import ProducerIdentity
from sparklog.model import ProducerEpoch, ProducerId

IDENTITIES = st.text(st.characters(codec="utf-8"), max_size=60)
UNIQUES = st.text("0123456789abcdef", min_size=32, max_size=32)
TASKS = st.tuples(st.integers(0, 10_000), UNIQUES, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))


def identity_of(sink: str, batch: int, task: tuple[int, str, int, int]) -> ProducerIdentity:
    partition, unique, producer_id, epoch = task
    return ProducerIdentity(
        task_id(sink, batch, partition, unique), ProducerId(producer_id), ProducerEpoch(epoch)
    )


@st.composite
def decisions(draw: st.DrawFn) -> Decision:
    identity, batch = draw(IDENTITIES), draw(st.integers(0, 2**63 - 1))
    tasks = draw(st.lists(TASKS, max_size=5))
    ends = draw(
        st.dictionaries(
            IDENTITIES, st.dictionaries(st.integers(0, 99), st.integers(0, 2**63 - 1), max_size=3), max_size=3
        )
    )
    transactions = tuple(identity_of(sink_name(identity), batch, task) for task in tasks)
    runs, record_count = draw(st.lists(UNIQUES, max_size=3)), draw(st.integers(-1, 2**63 - 1))
    return Decision(
        identity,
        draw(IDENTITIES),
        batch,
        draw(UNIQUES),
        transactions,
        ends,
        draw(st.booleans()),
        tuple(runs),
        record_count,
    )


@given(decisions())
def test_a_decision_is_read_as_it_was_written(decision: Decision) -> None:
    value = encode_decision(decision)
    assert decode_decision(decision.sink, value) == decision
    assert is_readable(value)


@given(decisions())
def test_what_is_condemned_is_read_as_it_was_written(decision: Decision) -> None:
    value = encode_condemned(decision.sink, decision.transactions)
    assert decode_condemned(decision.sink, value) == decision.transactions


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b'{"version":1}',
        b'{"version":2,"transactions":[]}',
        b'{"version":1,"transactions":[["a",1]]}',
    ],
)
def test_what_cannot_be_read_of_the_condemned_is_refused(value: bytes) -> None:
    with pytest.raises(DecisionUnreadable, match=r"condemned of sink .* in __sparklog_commits"):
        decode_condemned(sink_name("s"), value)


def test_as_many_as_one_record_condemns_fit_into_it() -> None:
    one = identity_of(sink_name("s"), 2**63 - 1, (10**6, "f" * 32, 2**63 - 1, 2**15 - 1))
    assert len(encode_condemned(sink_name("s"), [one] * CONDEMNED_MAX)) <= VALUE_BYTES_MAX


@given(decisions(), TASKS)
def test_a_glance_at_the_bytes_tells_what_reading_them_tells(
    decision: Decision, other: tuple[int, str, int, int]
) -> None:
    value = encode_decision(decision)
    stranger = identity_of(decision.sink, decision.batch, other)
    assert names(value, stranger) is (stranger in decision.transactions)
    for one in decision.transactions:
        assert names(value, one)
        assert names(value, one._replace(producer_epoch=ProducerEpoch(one.producer_epoch + 1))) is False
        assert names(value, one._replace(transactional_id=one.transactional_id[:-1])) is False


def test_a_text_that_looks_like_a_transaction_is_none() -> None:
    sink = sink_name('["0.0.aa",7,0]')
    value = encode_decision(Decision('["0.0.aa",7,0]', '["0.0.aa",7,0]', 0, "u", ()))
    assert not names(value, ProducerIdentity(task_id(sink, 0, 0, "aa"), ProducerId(7), ProducerEpoch(0)))


@given(st.binary(max_size=200))
def test_bytes_that_are_no_decision_are_refused(value: bytes) -> None:
    with pytest.raises(DecisionUnreadable):
        decode_decision(sink_name("s"), value)


def test_a_decision_of_a_later_version_or_of_another_sink_is_refused() -> None:
    value = encode_decision(Decision("s", "q", 0, "u", ()))
    with pytest.raises(DecisionUnreadable, match="update sparklog"):
        decode_decision(sink_name("s"), value.replace(b'"version":1', b'"version":2'))
    assert not is_readable(value.replace(b'"version":1', b'"version":2'))
    with pytest.raises(DecisionUnreadable, match="of another sink"):
        decode_decision(sink_name("other"), value)


def test_ten_thousand_tasks_fit_and_too_many_are_refused_with_a_remedy() -> None:
    sink = sink_name("s")
    tasks = [identity_of(sink, 10**9, (number, "f" * 32, 10**9 + number, 0)) for number in range(10_000)]
    assert len(encode_decision(Decision("s", "q", 10**9, "u", tuple(tasks)))) < 1_000_000
    with pytest.raises(DecisionTooLarge, match="coalesce"):
        encode_decision(Decision("s", "q", 10**9, "u", tuple(tasks) * 10))


@given(IDENTITIES, st.integers(0, 2**63 - 1), st.integers(0, 10_000), UNIQUES)
def test_an_id_tells_its_sink(identity: str, batch: int, partition: int, unique: str) -> None:
    sink = sink_name(identity)
    assert is_sink_name(sink)
    assert "." not in sink
    made = task_id(sink, batch, partition, unique)
    assert made.startswith(prefix_of(sink))
    assert (sink_of(made), is_coordinator(made)) == (sink, False)
    assert (sink_of(coordinator_id(sink)), is_coordinator(coordinator_id(sink))) == (sink, True)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "sl",
        "sl.",
        "sl.a",
        "sl.a.coord",
        "x." + "a" * 22 + ".1",
        "sl." + "ä" * 22 + ".1",
        "sl." + "a" * 23 + ".1",
    ],
)
def test_other_ids_are_of_no_sink(name: str) -> None:
    assert sink_of(name) is None


@given(st.none() | st.binary(max_size=60))
def test_a_key_is_of_a_sink_only_if_a_sink_wrote_it(key: bytes | None) -> None:
    told = parse_key(key)
    if told is not None:
        assert key == key_of(*told)


@given(IDENTITIES, st.sampled_from(About))
def test_a_key_tells_its_sink_and_what_it_is_about(identity: str, about: About) -> None:
    assert parse_key(key_of(sink_name(identity), about)) == (sink_name(identity), about)


@given(IDENTITIES, st.integers(0, 100))
def test_partitions_that_are_added_move_no_sink(identity: str, added: int) -> None:
    sink = sink_name(identity)
    assert partition_of(sink, PARTITION_COUNT + added) == partition_of(sink, PARTITION_COUNT)
    assert partition_of(sink, 1) == 0
