"""Runs one query in DataFusion; with --sort-merge-join, by the join whose sorts can spill."""
import sys

import datafusion

import peer

sort_merge_join = "--sort-merge-join" in sys.argv
if sort_merge_join:
    sys.argv.remove("--sort-merge-join")
arguments = peer.arguments()
config = datafusion.SessionConfig().with_target_partitions(arguments.threads)
if sort_merge_join:
    config = config.set("datafusion.optimizer.prefer_hash_join", "false")
runtime = datafusion.RuntimeEnvBuilder().with_disk_manager_specified(arguments.temp)
if arguments.memory:
    runtime = runtime.with_fair_spill_pool(arguments.memory)
context = datafusion.SessionContext(config, runtime)
for name, path in arguments.paths.items():
    context.register_parquet(name, path)


def run():
    batches = context.sql(arguments.sql).collect()
    return [row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns))]


peer.report(datafusion.__version__, run)
