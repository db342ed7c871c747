"""Runs one query in Polars' streaming engine, with its out-of-core budget where there is a limit."""
import os

import peer

arguments = peer.arguments()
os.environ["POLARS_MAX_THREADS"] = str(arguments.threads)
os.environ["POLARS_TEMP_DIR"] = arguments.temp
if arguments.memory:
    os.environ["POLARS_OOC_MEMORY_BUDGET_MB"] = str(arguments.memory >> 20)
    os.environ["POLARS_OOC_SPILL_DIR"] = arguments.temp

import polars as pl  # noqa: E402  (reads its environment when it is imported)

lineitem = pl.scan_parquet(arguments.paths["lineitem"])
orders = pl.scan_parquet(arguments.paths["orders"])
c = pl.col


def both(left, right, how="inner", key="l_orderkey"):
    return left.join(right, left_on=key, right_on="o_orderkey", how=how, coalesce=False)


def narrow():
    return both(lineitem, orders).select(
        pl.len(),
        c("l_extendedprice").sum(),
        c("o_totalprice").sum(),
        c("l_comment").min().alias("l_least"),
        c("l_comment").max().alias("l_greatest"),
        c("o_comment").min().alias("o_least"),
        c("o_comment").max().alias("o_greatest"),
    )


def wide():
    joined = both(lineitem, orders)
    schema = {**lineitem.collect_schema(), **orders.collect_schema()}
    return joined.select(
        pl.len(), *(c(name).sum() if kind.is_numeric() else c(name).max() for name, kind in schema.items())
    )


def skewed():
    key = pl.when(c("l_orderkey") % 2 == 0).then(1).otherwise(c("l_orderkey")).alias("skewed_key")
    left = lineitem.select(key, "l_extendedprice", "l_comment")
    right = orders.filter(c("o_orderpriority") != "1-URGENT").select("o_orderkey", "o_totalprice", "o_comment")
    return both(left, right, "left", "skewed_key").select(
        pl.len(),
        c("o_orderkey").count(),
        c("l_extendedprice").sum(),
        c("o_totalprice").sum(),
        c("l_comment").min().alias("l_least"),
        c("l_comment").max().alias("l_greatest"),
        c("o_comment").min().alias("o_least"),
        c("o_comment").max().alias("o_greatest"),
    )


def semi_orders():
    late = lineitem.filter(c("l_commitdate") < c("l_receiptdate")).select("l_orderkey")
    found = orders.join(late, left_on="o_orderkey", right_on="l_orderkey", how="semi")
    return found.select(
        pl.len(),
        c("o_totalprice").sum(),
        c("o_comment").min().alias("o_least"),
        c("o_comment").max().alias("o_greatest"),
    )


def semi_lineitem():
    dear = orders.filter(c("o_totalprice") > 100000).select("o_orderkey")
    found = lineitem.join(dear, left_on="l_orderkey", right_on="o_orderkey", how="semi")
    return found.select(
        pl.len(),
        c("l_extendedprice").sum(),
        c("l_comment").min().alias("l_least"),
        c("l_comment").max().alias("l_greatest"),
    )


QUERIES = {
    "J1": narrow,
    "J2": wide,
    "J3": skewed,
    "J4a": semi_orders,
    "J4b": semi_lineitem,
}
frame = QUERIES[arguments.query]()
peer.report(pl.__version__, lambda: frame.collect(engine="streaming").row(0))
