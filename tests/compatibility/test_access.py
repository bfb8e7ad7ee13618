"""Access as a real Kafka decides it: the same rules and requests get the same errors and filtering."""

from pathlib import Path

import pytest

from sparklog.local_broker import embedded
from tests.compatibility.access_matrix import SETTINGS, is_refused, outcomes, rights
from tests.compatibility.kafka_broker import RealKafka

pytestmark = pytest.mark.compat

FEW = ["nothing", "half"]


def of_ours(tmp_path: Path, cells: list[str]) -> dict[tuple[str, str], list[str]]:
    settings = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
    with embedded(data_dir=tmp_path / "ours", **settings) as broker:
        return outcomes(broker.bootstrap_servers, cells)


def of_kafka(tmp_path: Path, cells: list[str]) -> dict[tuple[str, str], list[str]]:
    kafka = RealKafka(tmp_path, SETTINGS)
    with kafka.running():
        return outcomes(kafka.bootstrap_servers, cells)


def differences(kafka: dict[tuple[str, str], list[str]], ours: dict[tuple[str, str], list[str]]) -> list[str]:
    return [
        f"{' / '.join(cell)}: Kafka {told}, here {ours[cell]}"
        for cell, told in kafka.items()
        if told != ours[cell]
    ]


def test_a_client_without_rights_and_one_with_half_of_them_get_kafkas_answers(tmp_path: Path) -> None:
    kafka, ours = of_kafka(tmp_path, FEW), of_ours(tmp_path, FEW)
    assert differences(kafka, ours) == []
    refused = {name for (cell, name), told in ours.items() if cell == "nothing" and is_refused(told)}
    assert len(refused) > 40


@pytest.mark.long
def test_every_right_and_every_request_get_kafkas_answers(tmp_path: Path) -> None:
    cells = list(rights())
    assert differences(of_kafka(tmp_path, cells), of_ours(tmp_path, cells)) == []
