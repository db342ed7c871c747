"""All TPC-H queries in one session, over and over, on each engine's own tables: Nandina beside DuckDB, as a Markdown page.

    python tpch_sessions.py --tables <folder> --scale 10 --limits 4GB,8GB --nandina target/release/nandina --out docs/benchmarks/sessions.md

Needs the package `duckdb`, and root for the control group that caps memory, page cache included, at twice the limit. `--tables` is
where the tables are, or are made. A session is a process that runs all 22 queries one after the other, once or three times: the
second and third time have half of the difference each.
"""

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
QUERIES = HERE.parents[1] / "nandina" / "tests" / "tpch"
TABLES = "customer lineitem nation orders part partsupp region supplier".split()
THREADS = 2
GIB = 1 << 30


def queries():
    found = [path.read_text().strip().rstrip(";") for path in sorted(QUERIES.glob("q*.sql"))]
    assert len(found) == 22, f"there are 22 queries, {len(found)} of them in {QUERIES}"
    return found


def bytes_of(text):
    for unit, factor in (("GB", GIB), ("MB", 1 << 20)):
        if text.upper().endswith(unit):
            return int(float(text[: -len(unit)]) * factor)
    raise argparse.ArgumentTypeError(f"'{text}' is no amount like 4GB")


def in_duckdb(database, limit, rounds):
    import duckdb

    connection = duckdb.connect(database, read_only=True)
    connection.execute(f"SET threads = {THREADS}")
    connection.execute(f"SET memory_limit = '{limit}B'")
    connection.execute(f"SET temp_directory = '{database}.temp'")
    for query in queries() * rounds:
        connection.execute(query).fetchall()


def make_tables(arguments):
    folder = pathlib.Path(arguments.tables)
    folder.mkdir(parents=True, exist_ok=True)
    parquet, own, duckdb = folder / "parquet", folder / "nandina", folder / "duckdb.db"
    if not parquet.exists():
        command = [arguments.nandina, "tpch", str(parquet), "--scale", str(arguments.scale)]
        subprocess.run(command, check=True)
    if not own.exists():
        made = ";".join(f"CREATE TABLE {table} AS SELECT * FROM '{parquet}/{table}.parquet'" for table in TABLES)
        subprocess.run([arguments.nandina, str(own), "-m", "2GB", "-c", made], check=True, stdout=subprocess.DEVNULL)
    if not duckdb.exists():
        command = [sys.executable, str(HERE / "duckdb_tables.py"), "--database", str(duckdb), "--data", str(parquet)]
        subprocess.run([*command, "--tables", ",".join(TABLES)], check=True)
    return str(own), str(duckdb)


def session(command, limit):
    """What a session took under the cap."""
    subprocess.run(["sync"], check=True)
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    with tempfile.NamedTemporaryFile() as report:
        capped = [sys.executable, str(HERE / "capped.py"), "--memory", str(2 * limit), "--json", report.name, "--"]
        subprocess.run([*capped, *command], check=True, stdout=subprocess.DEVNULL)
        return json.load(open(report.name))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", required=True)
    parser.add_argument("--scale", default="10")
    parser.add_argument("--limits", default="4GB,8GB")
    parser.add_argument("--nandina", default="target/release/nandina")
    parser.add_argument("--out", default="docs/benchmarks/sessions.md")
    parser.add_argument("--as-duckdb", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.as_duckdb:
        database, limit, rounds = arguments.as_duckdb
        return in_duckdb(database, int(limit), int(rounds))
    own, duckdb = make_tables(arguments)
    rows = []
    for limit_text in arguments.limits.split(","):
        limit = bytes_of(limit_text)

        def nandina(rounds, setting=""):
            text = setting + ";".join(queries() * rounds)
            return [arguments.nandina, own, "--threads", str(THREADS), "-m", str(limit), "--format", "csv", "-c", text]

        engines = {
            "Nandina": nandina,
            "Nandina, `table_cache = off`": lambda rounds: nandina(rounds, "SET table_cache = off;"),
            "DuckDB": lambda rounds: [sys.executable, __file__, "--tables", "", "--as-duckdb", duckdb, str(limit), str(rounds)],
        }
        for name, command in engines.items():
            once, thrice = session(command(1), limit), session(command(3), limit)
            wall, read = ([report[of] for report in (once, thrice)] for of in ("wall_s", "own_read"))
            peak = max(once["peak_rss"], thrice["peak_rss"])
            row = (limit_text, name, wall[0], (wall[1] - wall[0]) / 2, read[0], (read[1] - read[0]) / 2, peak)
            rows.append(row)
            print(row, flush=True)
    lines = [
        "# TPC-H in one session, again and again\n",
        "Made by\n",
        "```sh\npython crates/bench/peers/tpch_sessions.py --tables <folder> "
        f"--scale {arguments.scale} --limits {arguments.limits}\n```\n",
        f"on {os.cpu_count()} processors, Linux {platform.release()}; {time.strftime('%Y-%m-%d')}.\n",
        f"All 22 queries one after the other in one process, on tables in each engine's own format at scale {arguments.scale}, with "
        f"{THREADS} threads. A control group that counts the page cache caps memory at twice the limit; the page cache is empty at the "
        "start. *First* is a session that runs all queries once, its start included; *later* is what running them all a second or "
        "third time adds. Each is measured once.\n",
        "| limit | engine | first (s) | later (s) | read first | read later | peak resident |",
        "| ----: | ------ | --------: | --------: | ---------: | ---------: | ------------: |",
    ]
    for limit, name, first, later, read_first, read_later, peak in rows:
        sizes = " | ".join(f"{max(size, 0) / GIB:.2f} GiB" for size in (read_first, read_later, peak))
        lines.append(f"| {limit} | {name} | {first:.1f} | {later:.1f} | {sizes} |")
    pathlib.Path(arguments.out).write_text("\n".join(lines) + "\n")


main()
