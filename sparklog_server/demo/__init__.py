"""The demo: a year of flights through a broker to a Python reader and to Spark, while both ends are killed.

It is a user like any other: it starts the broker by the command `sparklog start`, and knows only the public
names of `sparklog`. Read `play` first: it has the acts in their order. The writer (`writer`) and Spark
(`spark`) are processes, since one is killed and the other takes seconds to start; the reader (`reader`) and
the screen (`watch`) are threads of `play`. `page` is the result as a page without other files.

Nothing here but `spark` knows pyspark: without it, the demo runs without Spark.
"""
