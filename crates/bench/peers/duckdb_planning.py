"""How long DuckDB plans each statement of a file: milliseconds of PREPARE in one session, as JSON. See planning_bench."""
import json
import statistics
import sys
import time

import duckdb

LONGEST_S = 60

with open(sys.argv[1], encoding="utf-8") as file:
    task = json.load(file)
connection = duckdb.connect()
for name, path in task["tables"].items():
    connection.execute(f"CREATE TABLE {name} AS FROM '{path}'")
times = {}
for name, sql in task["statements"].items():
    measured = []
    try:
        for _ in range(task["runs"] + 1):
            start = time.perf_counter()
            connection.execute(f"PREPARE statement AS {sql}")
            measured.append(1e3 * (time.perf_counter() - start))
            if measured[0] > 1e3 * LONGEST_S:
                raise duckdb.Error("too long")
        times[name] = statistics.median(measured[1:])
    except duckdb.Error:
        times[name] = None
print(json.dumps(times))
