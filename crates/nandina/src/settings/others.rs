//! Settings as other engines name them.
//!
//! | what it is | what happens |
//! |---|---|
//! | another name of a setting of ours (`max_memory`) | it is that setting |
//! | something that SQL means (`default_null_order`, `search_path`) | it is done |
//! | how another engine works inside (`debug_force_external`, `checkpoint_threshold`) | accepted: no answer depends on it |
//! | something that answers depend on, which is done in one way here | accepted where it asks for that way |

/// The setting of ours that another name means.
pub(super) const ALIASES: [(&str, &str); 10] = [
    ("max_memory", "memory_limit"),
    ("worker_threads", "threads"),
    ("max_temp_directory_size", "temp_quota"),
    ("null_order", "default_null_order"),
    ("current_schema", "schema"),
    // Names of DataFusion's for the same would bypass the memory governor and the temporary space.
    ("datafusion.runtime.memory_limit", "memory_limit"),
    ("datafusion.runtime.temp_directory", "temp_directory"),
    ("datafusion.runtime.max_temp_directory_size", "temp_quota"),
    ("datafusion.execution.target_partitions", "threads"),
    ("datafusion.execution.batch_size", "batch_size"),
];

/// Those that only choose something inside of another engine, which has no counterpart here or is chosen by itself.
const INSIDE: [&str; 51] = [
    "allocator_background_threads",
    "approximate_join_order_threshold",
    "arrow_large_buffer_size",
    "asof_loop_join_threshold",
    "autoload_known_extensions",
    "autoinstall_known_extensions",
    "checkpoint_threshold",
    "debug_asof_iejoin",
    "debug_force_external",
    "debug_force_no_cross_product",
    "debug_verify_blocks",
    "debug_verify_column_bindings",
    "debug_verify_serializer",
    "debug_verify_vector",
    "debug_window_mode",
    "default_transaction_invalidation_policy",
    "delim_join_as_cte",
    "disabled_optimizers",
    "dynamic_or_filter_threshold",
    "enable_caching_operators",
    "enable_http_metadata_cache",
    "enable_object_cache",
    "enable_optimizer",
    "enable_progress_bar",
    "enable_view_dependencies",
    "explain_output",
    "force_compression",
    "force_variant_shredding",
    "geometry_minimum_shredding_size",
    "index_scan_max_count",
    "index_scan_percentage",
    "late_materialization_max_rows",
    "max_vacuum_tasks",
    "merge_join_threshold",
    "nested_loop_join_threshold",
    "ordered_aggregate_threshold",
    "parquet_metadata_cache",
    "parquet_prefetch_column_gap",
    "partitioned_write_flush_threshold",
    "partitioned_write_max_open_files",
    "perfect_ht_threshold",
    "pivot_filter_threshold",
    "prefer_range_joins",
    "profiling_mode",
    "profiling_renderer_settings",
    "read_ahead_depth",
    "storage_compatibility_version",
    "tracked_metrics",
    "variant_minimum_shredding_size",
    "verify_external",
    "wal_autocheckpoint",
];

/// Those that answers depend on, what is done here, and why nothing else is.
const AS_IT_IS: [(&str, &[&str], &str); 12] = [
    ("calendar", &["gregorian"], "dates are those of the Gregorian calendar"),
    ("default_order", &["asc", "ascending"], "an order without a direction is ascending; write DESC"),
    (
        "ieee_floating_point_ops",
        &["true", "1", "on"],
        "a division by zero of floating-point numbers is infinite or NaN",
    ),
    (
        "immediate_transaction_mode",
        &["false", "0", "off"],
        "a transaction sees a database as it is when a statement of it uses that first, not at BEGIN",
    ),
    ("lambda_syntax", &["default", "enable_single_arrow", "disable_single_arrow"], "lambdas are x -> x + 1"),
    ("order_by_non_integer_literal", &["true", "1", "on"], "constants order nothing"),
    (
        "preserve_insertion_order",
        &["false", "0", "off"],
        "rows come in any order unless a query has ORDER BY",
    ),
    (
        "scalar_subquery_error_on_multiple_rows",
        &["true", "1", "on"],
        "a sub-query in the place of a value that gives several rows is an error",
    ),
    ("integer_division", &["true", "1", "on"], "a quotient of integers is an integer"),
    ("timezone", UTC, TIMES_IN_UTC),
    ("time zone", UTC, TIMES_IN_UTC),
    ("datafusion.execution.time_zone", UTC, TIMES_IN_UTC),
];

const UTC: &[&str] =
    &["UTC", "Etc/UTC", "Zulu", "GMT", "Etc/GMT", "Z", "+00:00", "+00", "0", "local", "default"];
const TIMES_IN_UTC: &str = "a TIMESTAMP WITH TIME ZONE is read, computed with and shown in UTC; \
                            t AT TIME ZONE 'Europe/Rome' is the time there";

/// `PRAGMA` with a word and no value that changes nothing here.
const SWITCHES: [&str; 17] = [
    "disable_checkpoint_on_shutdown",
    "enable_checkpoint_on_shutdown",
    "disable_object_cache",
    "enable_object_cache",
    "disable_optimizer",
    "enable_optimizer",
    "disable_profiling",
    "disable_progress_bar",
    "enable_progress_bar",
    "disable_verification",
    "enable_verification",
    "disable_verify_external",
    "verify_external",
    "disable_verify_parallelism",
    "verify_parallelism",
    "disable_verify_serializer",
    "verify_serializer",
];

pub(super) fn is_switch(name: &str) -> bool {
    SWITCHES.contains(&name)
}

/// Whether a setting of another engine can be set to a value, or reset; none if it is not known.
pub(super) fn accepted(name: &str, value: Option<&str>) -> Option<Result<(), String>> {
    if INSIDE.contains(&name) {
        return Some(Ok(()));
    }
    let (_, values, reason) = AS_IT_IS.iter().find(|(known, ..)| *known == name)?;
    let is_so = value.is_none_or(|value| values.iter().any(|so| value.eq_ignore_ascii_case(so)));
    Some(if is_so {
        Ok(())
    } else {
        let values = values.first().copied().unwrap_or_default();
        Err(format!("{name} cannot be anything but {values}: {reason}"))
    })
}

/// DataFusion's name of an order of nulls.
pub(super) fn null_order(value: &str) -> Option<&'static str> {
    Some(match value.to_ascii_lowercase().replace(' ', "_").as_str() {
        "nulls_first" | "first" | "nulls_first_on_asc_first_on_desc" => "nulls_first",
        "nulls_last" | "last" | "nulls_last_on_asc_last_on_desc" => "nulls_last",
        "nulls_first_on_asc_last_on_desc" | "sqlite" | "mysql" => "nulls_min",
        "nulls_last_on_asc_first_on_desc" | "postgres" => "nulls_max",
        _ => return None,
    })
}

/// How an order of nulls is shown.
pub(super) fn shown_null_order(datafusion: &str) -> &'static str {
    match datafusion {
        "nulls_first" => "nulls_first",
        "nulls_last" => "nulls_last",
        "nulls_min" => "nulls_first_on_asc_last_on_desc",
        _ => "nulls_last_on_asc_first_on_desc",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_answers_depend_on_is_not_passed_over() {
        assert_eq!(accepted("debug_force_external", Some("true")), Some(Ok(())));
        assert_eq!(accepted("calendar", Some("Gregorian")), Some(Ok(())));
        assert_eq!(accepted("calendar", None), Some(Ok(())));
        assert!(accepted("calendar", Some("japanese")).is_some_and(|accepted| accepted.is_err()));
        assert_eq!(accepted("calender", Some("gregorian")), None);
        assert_eq!(accepted("timezone", Some("utc")), Some(Ok(())));
        assert!(accepted("timezone", Some("America/New_York")).is_some_and(|accepted| accepted.is_err()));
    }
}
