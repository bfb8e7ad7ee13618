"""What DescribeConfigs tells of where a broker listens and who it is: what is in force, and where it comes
from.
"""

from sparklog_server.config.describe import ConfigRow, ConfigSynonym, Source, describe_broker
from sparklog_server.config.layers import Layers
from sparklog_server.config.settings import BrokerSettings


def told(**given: str) -> dict[str, ConfigRow]:
    """The rows by key of a broker whose port 0 was bound as 4711."""
    settings = BrokerSettings.of(
        {name.replace("_", "."): value for name, value in given.items()}
    ).with_bound_ports({"PLAINTEXT": 4711})
    return {row.name: row for row in describe_broker(Layers.of(settings))}


def test_listeners_are_told_with_the_ports_that_were_bound_also_among_the_synonyms() -> None:
    rows = told(listeners="PLAINTEXT://127.0.0.1:0", advertised_listeners="PLAINTEXT://localhost:0")
    bound = ConfigSynonym("listeners", "PLAINTEXT://127.0.0.1:4711", Source.STATIC_BROKER)
    assert (rows["listeners"].value, rows["listeners"].synonyms[0]) == (bound.value, bound)
    advertised = ConfigSynonym("advertised.listeners", "PLAINTEXT://localhost:4711", Source.STATIC_BROKER)
    assert (rows["advertised.listeners"].value, rows["advertised.listeners"].synonyms) == (
        advertised.value,
        (advertised,),
    )
    assert rows["advertised.listeners"].is_read_only


def test_advertised_listeners_that_nobody_set_have_no_value() -> None:
    row = told(listeners="PLAINTEXT://127.0.0.1:0")["advertised.listeners"]
    assert (row.value, row.source, row.synonyms) == (None, Source.DEFAULT, ())


def test_the_older_name_of_the_node_id_follows_it() -> None:
    row = told(node_id="7")["broker.id"]
    default = ConfigSynonym("broker.id", "-1", Source.DEFAULT)
    assert (row.value, row.source) == ("7", Source.STATIC_BROKER)
    assert row.synonyms == (ConfigSynonym("broker.id", "7", Source.STATIC_BROKER), default)
    assert told()["broker.id"].synonyms == (default,)
