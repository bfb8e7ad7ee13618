"""A partition with very many producers: a job renders their snapshot as of the roll, and no request waits for
it.
"""

from sparklog.errors import ErrorCode
from sparklog.record.batch import build_batch
from sparklog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from sparklog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from sparklog_server.log.producers.producer_state import MANY, ProducerState
from tests.broker.world import PRODUCE_BY_NAME
from tests.replica.by_hand import ByHand

PRODUCERS = MANY + 200
SNAPSHOTS = {"log.segment.bytes": str(1 << 20)}
FILLER = bytes(600)


def send(world: ByHand, producer_id: int, sequence: int) -> tuple[int, int]:
    """Produce one record of a producer: (error code, offset)."""
    batch = build_batch(
        [(None, FILLER, (), world.now.wall_ms)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )
    data = [PartitionProduceData(index=0, records=bytes(batch))]
    request = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)]
    )
    answer = world.ask(request, PRODUCE_BY_NAME, ProduceResponse)
    assert isinstance(answer, ProduceResponse)
    part = answer.responses[0].partition_responses[0]
    return part.error_code, part.base_offset


def snapshots(world: ByHand) -> list[str]:
    return [name for name in world.disk.list("/data/t-0") if name.endswith(".snapshot")]


def rolled() -> ByHand:
    """A log that has rolled with many producers, each of which has sent twice, some of them after the
    roll.
    """
    world = ByHand(**SNAPSHOTS)
    world.create("t")
    for sequence in (0, 1):
        for producer_id in range(PRODUCERS):
            assert send(world, producer_id, sequence)[0] == 0
    return world


def test_the_snapshot_is_of_the_roll_though_rendered_later_and_recovery_begins_with_it() -> None:
    world = rolled()
    assert sum(run.is_background for run in world.held) == 1
    assert snapshots(world) == []
    world.run_all()
    world.wait(2_000)
    (name,) = snapshots(world)
    state = ProducerState.parse(world.disk.read(f"/data/t-0/{name}") or b"")
    offset = int(name.removesuffix(".snapshot"))
    assert max(one.batches[-1][3] for one in state.producers.values()) == offset - 1
    world.power_cut(1)
    end = 2 * PRODUCERS
    assert send(world, 7, 1) == (0, PRODUCERS + 7)  # a duplicate
    assert send(world, 7, 3) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert send(world, 7, 2) == (0, end)


def test_a_crash_before_the_snapshot_costs_nothing_but_a_longer_recovery() -> None:
    world = rolled()
    world.power_cut(2)
    assert snapshots(world) == []
    assert send(world, 7, 1) == (0, PRODUCERS + 7)
    assert send(world, 7, 2) == (0, 2 * PRODUCERS)


def test_many_producers_are_described_by_a_job() -> None:
    world = rolled()
    world.run_all()
    world.begin(DescribeProducersRequest([TopicRequest("t", [0])]), 0)
    assert len(world.held) == 1
    assert world.answers == 0
    world.run_all()
    answer = world.answer(0, DescribeProducersResponse)
    assert isinstance(answer, DescribeProducersResponse)
    described = answer.topics[0].partitions[0].active_producers
    assert [(one.producer_id, one.last_sequence) for one in described] == [
        (number, 1) for number in range(PRODUCERS)
    ]


def test_a_request_whose_job_runs_out_of_memory_ends_its_session_and_the_broker_goes_on() -> None:
    world = rolled()
    world.run_all()
    world.begin(DescribeProducersRequest([TopicRequest("t", [0])]), 0)
    (run,) = world.held
    world.held.clear()
    disconnected = world.broker.finished(run.ticket, MemoryError(), world.now)
    assert [type(effect).__name__ for effect in disconnected] == ["Disconnect"]
    assert any(line.startswith("job-out-of-memory") for line in world.trace)
