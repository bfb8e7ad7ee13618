"""Spark with TLS and SASL, by the options of Spark's connector: no secret is shown in a plan or an error."""

import io
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sparklog.local_broker import embedded
from tests.certificates import authority

pytestmark = pytest.mark.spark

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_a_write_and_a_read_by_plain_over_tls(spark: SparkSession, tmp_path: Path) -> None:
    node = authority().issue("CN=node").write_pem(tmp_path / "node.pem")
    trusted = authority().write(tmp_path / "ca.pem")
    users = f'{PLAIN} required username="n" password="n" user_n="n" user_alice="hunter2";'
    with embedded(
        listener_security_protocol_map="PLAINTEXT:SASL_SSL",
        ssl_keystore_location=str(node),
        sasl_enabled_mechanisms="PLAIN",
        sasl_mechanism_inter_broker_protocol="PLAIN",
        listener_name_plaintext_plain_sasl_jaas_config=users,
    ) as broker:
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.location": str(trusted),
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
