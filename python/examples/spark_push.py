"""Publishes a query of Spark, built by the tasks of its cluster.

pip install './python[spark]'
spark-submit python/examples/spark_push.py STORE, or python instead of spark-submit, on this machine
"""

import sys

from pyspark.sql import SparkSession

import forebay.spark


def main(store: str) -> None:
    spark = SparkSession.builder.appName("prices").getOrCreate()
    prices = spark.range(100_000).selectExpr(
        "format_string('%06d', id) as article", "round(10 + sin(id), 2) as price"
    )
    result = forebay.spark.push(
        prices, "prices", key="{article}", order="ordered", partitions=4, store=store
    )
    print(result)
    with forebay.open(store) as opened:
        print(opened["prices"]["000017"])


if __name__ == "__main__":
    main(sys.argv[1])
