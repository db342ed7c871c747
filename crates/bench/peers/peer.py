"""What the drivers of all engines have in common: their arguments and how they report.

A driver runs one query and prints one JSON object: how many rows it returned, the values of the first of them as text
(so that exact decimals stay exact), the seconds that the query took (imports and set-up excluded) and the engine's
version.
"""
import argparse
import datetime
import decimal
import json
import os
import time


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--query", required=True, help="name of the query, for engines without SQL")
    parser.add_argument("--sql", required=True)
    parser.add_argument("--data", required=True, help="folder of the Parquet files")
    parser.add_argument("--tables", required=True, help="names of the tables, separated by commas")
    parser.add_argument("--memory", type=int, default=0, help="limit in bytes; 0: none")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--temp", required=True)
    parser.add_argument("--database", help="the engine's own tables, in place of the files")
    parsed = parser.parse_args()
    parsed.paths = {name: os.path.join(parsed.data, f"{name}.parquet") for name in parsed.tables.split(",")}
    return parsed


def text(value):
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    return "" if value is None else str(value)


MOST_ROWS = 100


def report(version, run):
    """Times `run`, which returns the rows of the result."""
    start = time.perf_counter()
    rows = run()
    seconds = time.perf_counter() - start
    values = [text(value) for row in rows[:MOST_ROWS] for value in row]
    print(json.dumps({"rows": len(rows), "values": values, "seconds": seconds, "version": version}))
