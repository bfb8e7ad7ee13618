"""Spark authenticates by SASL with the options that Spark users write, and shows no secret in a plan."""

import io
from contextlib import redirect_stdout

import pytest
from pyspark.sql import SparkSession

from sparklog.local_broker import embedded

pytestmark = pytest.mark.spark

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_a_write_and_a_read_by_plain(spark: SparkSession) -> None:
    users = f'{PLAIN} required username="n" password="n" user_n="n" user_alice="hunter2";'
    with embedded(
        listener_security_protocol_map="PLAINTEXT:SASL_PLAINTEXT",
        sasl_enabled_mechanisms="PLAIN",
        sasl_mechanism_inter_broker_protocol="PLAIN",
        listener_name_plaintext_plain_sasl_jaas_config=users,
    ) as broker:
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{PLAIN} required username="alice" password="hunter2";',
        }
        rows = spark.createDataFrame([("a",), ("b",)], "value string")
        rows.write.format("sparklog").options(**options, topic="t").mode("append").save()
        frame = spark.read.format("sparklog").options(**options, subscribe="t").load()
        shown = io.StringIO()
        with redirect_stdout(shown):
            frame.explain(extended=True)
        assert "hunter2" not in shown.getvalue()
        assert sorted(bytes(row.value) for row in frame.select("value").collect()) == [b"a", b"b"]
        wrong = options | {
            "kafka.sasl.jaas.config": f'{PLAIN} required username="alice" password="swordfish";'
        }
        with pytest.raises(Exception, match="Invalid username or password") as failed:
            spark.read.format("sparklog").options(**wrong, subscribe="t").load().collect()
        assert "swordfish" not in str(failed.value)
