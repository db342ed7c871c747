"""The 99 queries of TPC-DS in Nandina at several memory limits: does each finish, with DuckDB's rows?

Needs `pip install duckdb==1.5.5 duckdb-extension-tpcds==1.5.5`, whose extension makes the data and knows the queries.
Each query runs in a process of its own in Nandina, and in one process, without a limit, in DuckDB: its times are there to
find queries that are planned badly, not for a comparison. Prints a page, and writes it and its figures beside each other
if `--out` names a folder."""
import argparse
import csv
import glob
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time

import duckdb
import duckdb_extension_tpcds

TIMEOUT_S = 600
# DuckDB divides decimals as floating-point numbers, Nandina to four digits more than they have.
TOLERANCE = 2e-6


def connection(threads):
    home = os.path.dirname(duckdb_extension_tpcds.__file__)
    extension = glob.glob(f"{home}/extensions/**/*.duckdb_extension", recursive=True)
    db = duckdb.connect()
    db.execute(f"SET threads = {threads}")
    db.execute(f"LOAD '{extension[0]}'")
    return db


def make_data(folder, scale):
    """Writes a Parquet file for each table, unless they are there."""
    if glob.glob(f"{folder}/*.parquet"):
        return
    os.makedirs(folder, exist_ok=True)
    db = connection(os.cpu_count())
    db.execute(f"CALL dsdgen(sf = {scale})")
    for (table,) in db.execute("SELECT table_name FROM duckdb_tables()").fetchall():
        db.execute(f"COPY {table} TO '{folder}/{table}.parquet'")


def value(cell):
    """A cell of either engine as a number, if it is one, or a text."""
    text = "" if cell is None else str(cell)
    try:
        number = float(text)
    except ValueError:
        return text.lower() if text in ("True", "False") else text
    return text if math.isnan(number) else number


def same(ours, theirs):
    """Whether two rows are the same."""
    def equal(x, y):
        numbers = isinstance(x, float) and isinstance(y, float)
        return math.isclose(x, y, rel_tol=TOLERANCE, abs_tol=TOLERANCE) if numbers else x == y

    return len(ours) == len(theirs) and all(map(equal, ours, theirs))


def rank(row):
    return [f"{cell:.4e}" if isinstance(cell, float) else cell for cell in row]


def difference(ours, theirs):
    """What is different between two lists of rows, in whatever order they are; None if nothing is."""
    if len(ours) != len(theirs):
        return f"{len(ours)} rows in place of {len(theirs)}"
    if all(map(same, ours, theirs)):
        return None
    wrong = [pair for pair in zip(sorted(ours, key=rank), sorted(theirs, key=rank)) if not same(*pair)]
    return f"{len(wrong)} rows, e.g. {wrong[0][0]} in place of {wrong[0][1]}" if wrong else None


def run_nandina(program, views, query, limit, threads):
    """Seconds and rows, or seconds and what went wrong."""
    with tempfile.TemporaryDirectory() as scratch:
        paths = {name: os.path.join(scratch, name) for name in ("views.sql", "query.sql", "rows.csv")}
        for name, text in (("views.sql", views), ("query.sql", query)):
            with open(paths[name], "w", encoding="utf-8") as file:
                file.write(text)
        command = [program, "--threads", str(threads), "--format", "csv", "-o", paths["rows.csv"]]
        command += [] if limit == "none" else ["-m", limit]
        command += ["-f", paths["views.sql"], "-f", paths["query.sql"]]
        began = time.monotonic()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return time.monotonic() - began, f"not done in {TIMEOUT_S} s"
        seconds = time.monotonic() - began
        if done.returncode != 0:
            return seconds, done.stderr.strip() or f"ended with {done.returncode}"
        with open(paths["rows.csv"], encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))[1:]
        return seconds, [[value(cell) for cell in row] for row in rows]


def page(arguments, found):
    limits = arguments.limits.split(",")
    failed = [f"Q{query}, {limit}: {problem}" for query, cells in found.items()
              for limit, problem in cells["problems"].items()]
    lines = [
        "# TPC-DS",
        "",
        f"The 99 queries of TPC-DS at scale {arguments.scale} from Parquet files; each cell is one run, in seconds, "
        "from starting the program to having the rows in a file. Rows are compared with DuckDB's, their order "
        "is not; DuckDB's times "
        f"are of one process without a limit ({duckdb.__version__}). Nothing caps the page cache, which has most of "
        "the files, so that reading them costs next to nothing; spilled pages are written and read past it.",
        "",
        "Made by",
        "",
        "```sh",
        f"python crates/bench/peers/tpcds_beside_duckdb.py --nandina target/release/nandina --scale {arguments.scale} "
        f"--limits {arguments.limits} --folder DATA --out docs/benchmarks",
        "```",
        "",
        f"on {os.cpu_count()} processors, {platform.system()} {platform.release()}; {time.strftime('%Y-%m-%d')}",
        "",
        f"Failed or answered otherwise than DuckDB: {len(failed)} of {len(found) * len(limits)}.",
        *[f"- {line}" for line in failed],
        "",
        "| query | " + " | ".join(limits) + " | DuckDB |",
        "|---" * (len(limits) + 2) + "|",
    ]
    total = [0.0] * (len(limits) + 1)
    for query, cells in found.items():
        seconds = [cells["seconds"][limit] for limit in limits] + [cells["duckdb_seconds"]]
        total = [sum(pair) for pair in zip(total, seconds)]
        lines.append(f"| {query} | " + " | ".join(f"{second:.2f}" for second in seconds) + " |")
    lines.append("| all | " + " | ".join(f"{second:.1f}" for second in total) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nandina", required=True, help="the program")
    parser.add_argument("--folder", required=True, help="where the data is, or goes")
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--limits", default="none,128MB,32MB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", help="folder for tpcds.md and tpcds.json")
    arguments = parser.parse_args()
    make_data(arguments.folder, arguments.scale)
    db = connection(arguments.threads)
    views = ""
    for path in sorted(glob.glob(f"{os.path.abspath(arguments.folder)}/*.parquet")):
        table = os.path.basename(path).removesuffix(".parquet")
        db.execute(f"CREATE VIEW {table} AS SELECT * FROM '{path}'")
        views += f"CREATE VIEW {table} AS SELECT * FROM '{path}';\n"
    found = {}
    for number, query in db.execute("SELECT query_nr, query FROM tpcds_queries()").fetchall():
        began = time.monotonic()
        right = [[value(cell) for cell in row] for row in db.execute(query).fetchall()]
        cells = {"duckdb_seconds": time.monotonic() - began, "seconds": {}, "problems": {}}
        for limit in arguments.limits.split(","):
            seconds, rows = run_nandina(arguments.nandina, views, query, limit, arguments.threads)
            cells["seconds"][limit] = seconds
            problem = rows if isinstance(rows, str) else difference(rows, right)
            if problem is not None:
                cells["problems"][limit] = problem
        found[number] = cells
        print(number, cells, file=sys.stderr, flush=True)
    text = page(arguments, found)
    print(text)
    if arguments.out:
        with open(os.path.join(arguments.out, "tpcds.md"), "w", encoding="utf-8") as file:
            file.write(text)
        with open(os.path.join(arguments.out, "tpcds.json"), "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


main()
