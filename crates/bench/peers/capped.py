#!/usr/bin/env python3
"""Run a command under a hard memory cap that counts the page cache, and report what it used.

    capped.py [--memory BYTES] [--timeout SECONDS] [--json FILE] -- COMMAND [ARG ...]

The cap is a control group (version 1 or 2; creating one needs root), so pages of files that the command
reads or writes through the page cache count against it: spilled data cannot hide in memory that another
engine, which uses direct I/O, does without. The group has no swap.

One JSON object goes to FILE, or to standard error: wall, user and system seconds; peak resident set and
peak charged memory; bytes that the command itself made the block layer read and write (/proc/PID/io), and
bytes that all disks moved meanwhile; exit status (negative: the signal that ended it).
"""
import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import time

NO_LIMIT = 1 << 50


def read(path, default=""):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return default


def write(path, value):
    with open(path, "w") as file:
        file.write(str(value))


def write_if_there(path, value):
    if os.path.exists(path):
        try:
            write(path, value)
        except OSError:
            pass


def make_group(limit):
    """A memory control group: (file that takes process ids, file with the peak, folder)."""
    name = f"nandina-bench-{os.getpid()}"
    version_1 = "/sys/fs/cgroup/memory"
    if os.path.isdir(version_1):
        folder = f"{version_1}/{name}"
        os.mkdir(folder)
        write(f"{folder}/memory.limit_in_bytes", limit)
        write_if_there(f"{folder}/memory.memsw.limit_in_bytes", limit)
        return f"{folder}/cgroup.procs", f"{folder}/memory.max_usage_in_bytes", folder
    root = "/sys/fs/cgroup"
    write_if_there(f"{root}/cgroup.subtree_control", "+memory")
    folder = f"{root}/{name}"
    os.mkdir(folder)
    write(f"{folder}/memory.max", limit if limit < NO_LIMIT else "max")
    write_if_there(f"{folder}/memory.swap.max", 0)
    return f"{folder}/cgroup.procs", f"{folder}/memory.peak", folder


def disk_bytes():
    """(read, written) by all whole disks; the kernel counts in sectors of 512 bytes."""
    total_read = total_written = 0
    for line in read("/proc/diskstats").splitlines():
        fields = line.split()
        if os.path.isdir(f"/sys/block/{fields[2]}") and not fields[2].startswith(("loop", "ram", "zram")):
            total_read += int(fields[5]) * 512
            total_written += int(fields[9]) * 512
    return total_read, total_written


def process_io(pid):
    """(read, written) of a process and the threads it had; readable until it is waited for."""
    fields = dict(line.split(": ") for line in read(f"/proc/{pid}/io").splitlines() if ": " in line)
    if "read_bytes" not in fields:
        return None, None
    # Pages that were dropped before they were written (deleted temporary files) never reached the disk.
    return int(fields["read_bytes"]), int(fields["write_bytes"]) - int(fields["cancelled_write_bytes"])


def wait(child, timeout):
    """Waits until the child has ended, without reaping it; kills its process group after the timeout."""
    deadline, timed_out = time.monotonic() + timeout, False
    while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if not timed_out and time.monotonic() > deadline:
            timed_out = True
            os.killpg(child.pid, signal.SIGKILL)
        time.sleep(0.005)
    return timed_out


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--memory", type=int, default=NO_LIMIT)
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--json")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    try:
        processes, peak, folder = make_group(arguments.memory)
    except OSError as error:
        sys.exit(f"cannot make a memory control group ({error}); the cap needs root")

    def enter():
        os.setsid()
        write(processes, os.getpid())

    os.sync()
    disk_before, start = disk_bytes(), time.monotonic()
    child = subprocess.Popen(command, preexec_fn=enter)
    timed_out = wait(child, arguments.timeout)
    wall = time.monotonic() - start
    own_read, own_written = process_io(child.pid)
    status = child.wait()
    os.sync()
    disk_after, use = disk_bytes(), resource.getrusage(resource.RUSAGE_CHILDREN)
    row = {
        "wall_s": round(wall, 3),
        "user_s": round(use.ru_utime, 3),
        "sys_s": round(use.ru_stime, 3),
        "peak_rss": use.ru_maxrss * 1024,
        "peak_charged": int(read(peak, "0") or 0),
        "own_read": own_read,
        "own_written": own_written,
        "disk_read": disk_after[0] - disk_before[0],
        "disk_written": disk_after[1] - disk_before[1],
        "status": status,
        "timed_out": timed_out,
        "cap": arguments.memory,
    }
    os.rmdir(folder)
    if arguments.json:
        write(arguments.json, json.dumps(row) + "\n")
    else:
        print(json.dumps(row), file=sys.stderr)
    sys.exit(0 if status == 0 else 1)


if __name__ == "__main__":
    main()
