"""Commits of one row each in SQLite: a write-ahead log that is synced by every commit, and so many threads."""
import argparse
import json
import os
import sqlite3
import threading
import time

parser = argparse.ArgumentParser()
parser.add_argument("--folder", required=True)
parser.add_argument("--threads", type=int, required=True)
parser.add_argument("--seconds", type=float, required=True)
parser.add_argument("--bytes", type=int, required=True, help="of a row")
arguments = parser.parse_args()
path = os.path.join(arguments.folder, "commits.sqlite")
for suffix in ["", "-wal", "-shm"]:
    if os.path.exists(path + suffix):
        os.remove(path + suffix)


def connect():
    connection = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


connect().execute("CREATE TABLE t (k INTEGER PRIMARY KEY, v BLOB)")
commits = [0] * arguments.threads
start = threading.Barrier(arguments.threads + 1)


def work(thread):
    connection = connect()
    row = bytes(arguments.bytes)
    start.wait()
    end = time.perf_counter() + arguments.seconds
    while time.perf_counter() < end:
        connection.execute("INSERT INTO t (v) VALUES (?)", (row,))
        commits[thread] += 1


threads = [threading.Thread(target=work, args=(thread,)) for thread in range(arguments.threads)]
for thread in threads:
    thread.start()
start.wait()
begun = time.perf_counter()
for thread in threads:
    thread.join()
print(json.dumps({"commits": sum(commits), "seconds": time.perf_counter() - begun, "version": sqlite3.sqlite_version}))
