"""All TPC-H queries in memory, Nandina beside DataFusion: seconds of a warm run of each, as a Markdown table.

    python tpch_beside_datafusion.py --data <folder of nandina tpch> --nandina target/release/nandina [--repeat 3]

Needs the package `datafusion`. Both run in one process that has run the query before, with two threads and all files
in the page cache. DataFusion's time is that of `collect`; Nandina's is the difference between a process that runs the
query `repeat + 1` times and one that runs it once, divided by `repeat`, the smaller of two such differences, so that
neither starting nor the first touch of memory counts for either.
"""

import argparse
import math
import pathlib
import statistics
import subprocess
import time

import datafusion

TABLES = "customer lineitem nation orders part partsupp region supplier".split()
QUERIES = pathlib.Path(__file__).resolve().parents[2] / "plan" / "tests" / "tpch"
THREADS = 2


def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def nandina(program, data, query, times):
    views = "".join(f"CREATE VIEW {table} AS SELECT * FROM '{data}/{table}.parquet';" for table in TABLES)
    command = [program, "--threads", str(THREADS), "-m", "8GB", "--format", "csv", "-c", views + (query + ";") * times]
    return seconds(lambda: subprocess.run(command, check=True, capture_output=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--nandina", default="target/release/nandina")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    session = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(THREADS))
    for table in TABLES:
        session.register_parquet(table, f"{arguments.data}/{table}.parquet")
    ratios, totals = [], [0.0, 0.0]
    print(f"| query | DataFusion {datafusion.__version__} (s) | Nandina (s) | Nandina ÷ DataFusion |")
    print("| ----- | ---: | ---: | ---: |")
    for path in sorted(QUERIES.glob("q*.sql")):
        query = path.read_text().strip().rstrip(";")
        session.sql(query).collect()
        theirs = statistics.median(seconds(lambda: session.sql(query).collect()) for _ in range(arguments.repeat))
        program, data, repeat = arguments.nandina, arguments.data, arguments.repeat
        ours = min(
            (nandina(program, data, query, 1 + repeat) - nandina(program, data, query, 1)) / repeat for _ in range(2)
        )
        ratios.append(ours / theirs)
        totals = [totals[0] + theirs, totals[1] + ours]
        print(f"| {path.stem.upper()} | {theirs:.3f} | {ours:.3f} | {ours / theirs:.2f} |", flush=True)
    print(f"| sum | {totals[0]:.2f} | {totals[1]:.2f} | {totals[1] / totals[0]:.2f} |")
    mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))
    print(f"| geometric mean | | | {mean:.2f} |")


main()
