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

frames = {name: pl.scan_parquet(path) for name, path in arguments.paths.items()}
lineitem, orders = frames.get("lineitem"), frames.get("orders")
g, x = frames.get("g"), frames.get("x")
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


def groups(keys, *aggregates):
    return lineitem.group_by(keys).agg(*aggregates)


def by_order_and_supplier():
    lines = pl.len().alias("lines")
    grouped = groups(["l_orderkey", "l_suppkey"], c("l_extendedprice").sum(), lines, c("l_comment").min())
    comment = c("l_comment")
    return grouped.select(
        pl.len(), c("l_extendedprice").sum(), c("lines").sum(), comment.min(), comment.max().alias("greatest")
    )


def by_order():
    quantity = c("l_quantity")
    return groups("l_orderkey", quantity.sum()).select(pl.len(), quantity.sum(), quantity.max().alias("greatest"))


def by_part():
    grouped = groups("l_partkey", c("l_extendedprice").sum(), c("l_shipdate").min(), c("l_comment").max())
    return grouped.select(pl.len(), c("l_extendedprice").sum(), c("l_shipdate").min(), c("l_comment").max())


def distinct_counts():
    columns = ["l_partkey", "l_suppkey", "l_orderkey"]
    grouped = groups(["l_shipmode", "l_returnflag"], *(c(name).n_unique() for name in columns))
    return grouped.select(pl.len(), *(c(name).sum() for name in columns))


def distinct_rows():
    rows = lineitem.select("l_partkey", "l_suppkey", "l_shipdate", "l_shipinstruct").unique()
    return rows.select(pl.len(), c("l_partkey").sum(), c("l_shipinstruct").max())


def rolled_up():
    lines, quantity = pl.len().alias("lines"), c("l_quantity").sum()
    sets = [
        groups(["l_suppkey", "l_shipdate"], quantity, lines).select("l_quantity", "lines"),
        groups("l_suppkey", quantity, lines).select("l_quantity", "lines"),
        lineitem.select(quantity, lines),
    ]
    return pl.concat(sets).select(pl.len(), c("l_quantity").sum(), c("lines").sum())


def four_groups():
    charge = (c("l_extendedprice") * (1 - c("l_discount"))).sum().alias("charge")
    sums = [c("l_quantity").sum(), c("l_extendedprice").sum(), charge, pl.len().alias("lines")]
    grouped = groups(["l_returnflag", "l_linestatus"], *sums)
    return grouped.select(
        pl.len(), c("l_quantity").sum(), c("l_extendedprice").sum(), c("charge").sum(), c("lines").sum()
    )


def question(keys, *aggregates):
    """Groups of `g`, and the sums of what is asked of them."""
    grouped = g.group_by(keys).agg(*aggregates)
    names = [name for name in grouped.collect_schema() if name not in keys]
    return grouped.select(pl.len(), *(c(name).sum() for name in names))


def two_largest():
    largest = g.group_by("id6").agg(c("v3").top_k(2)).explode("v3")
    return largest.select(pl.len(), c("v3").sum())


def beside(name, key, how="inner"):
    joined = x.join(frames[name], on=key, how=how, suffix="_right")
    return joined.select(pl.len(), c("v1").sum(), c("v2").sum())


def beside_big():
    joined = x.join(frames["big"], on="id3", how="inner", suffix="_right")
    return joined.select(pl.len(), c("v1").sum(), c("v2").sum(), c("id4").max(), c("id6_right").max())


def mean_of(name):
    return c(name).mean()


def sum_of(name):
    return c(name).sum()


QUERIES = {
    "J1": narrow,
    "J2": wide,
    "J3": skewed,
    "J4a": semi_orders,
    "J4b": semi_lineitem,
    "A1": by_order_and_supplier,
    "A2": by_order,
    "A3": by_part,
    "A4": lambda: lineitem.select(c("l_comment").n_unique()),
    "A5": distinct_counts,
    "A6": distinct_rows,
    "A7": rolled_up,
    "A8": four_groups,
    "G1": lambda: question(["id1"], sum_of("v1")),
    "G2": lambda: question(["id1", "id2"], sum_of("v1")),
    "G3": lambda: question(["id3"], sum_of("v1"), mean_of("v3")),
    "G4": lambda: question(["id4"], mean_of("v1"), mean_of("v2"), mean_of("v3")),
    "G5": lambda: question(["id6"], sum_of("v1"), sum_of("v2"), sum_of("v3")),
    "G6": lambda: question(["id4", "id5"], c("v3").median().alias("middle"), c("v3").std().alias("deviation")),
    "G7": lambda: question(["id3"], (c("v1").max() - c("v2").min()).alias("span")),
    "G8": two_largest,
    "G9": lambda: question(["id2", "id4"], (pl.corr("v1", "v2") ** 2).alias("r2")),
    "G10": lambda: question([f"id{n}" for n in range(1, 7)], sum_of("v3"), pl.len().alias("lines")),
    "H1": lambda: beside("small", "id1"),
    "H2": lambda: beside("medium", "id2"),
    "H3": lambda: beside("medium", "id2", "left"),
    "H4": lambda: beside("medium", "id5"),
    "H5": beside_big,
}
# Queries that are not written down here are TPC-H's, and asked in SQL.
frame = QUERIES[arguments.query]() if arguments.query in QUERIES else pl.SQLContext(frames).execute(arguments.sql)
peer.report(pl.__version__, lambda: frame.collect(engine="streaming").rows())
