//! The filter that a build side sends to the probe side's scan drops no row that the join needs.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use datafusion::prelude::ParquetReadOptions;
use tempfile::TempDir;

use crate::harness::files::write;
use crate::harness::rows::{assert_same_rows, integers, row_count};
use crate::harness::{Engine, KIB, count_nodes, metric, plain, planned, run};

/// Compares a query over the files of `folder`, whose scans check every row against the filter.
async fn check(folder: &Path, sql: &str, limit: Option<usize>) -> (Vec<RecordBatch>, usize) {
    let engine = Engine::new(limit, 2);
    let plain = plain();
    for context in [&plain, &engine.context] {
        for file in ["l", "r"] {
            let path = folder.join(format!("{file}.parquet"));
            let options = ParquetReadOptions::default();
            context.register_parquet(file, path.to_string_lossy(), options).await.expect("a file");
        }
    }
    // What is right does not depend on DataFusion's own dynamic filters.
    plain.sql("SET datafusion.optimizer.enable_dynamic_filter_pushdown = false").await.expect("an option");
    let right = plain.sql(sql).await.expect(sql).collect().await.expect(sql);
    let plan = planned(&engine.context, sql).await.expect(sql);
    assert_eq!(count_nodes(&plan, "HybridHashJoinExec"), 1, "{sql}");
    let ours = engine.collect(&plan).await.expect(sql);
    assert_same_rows(&ours, &right, &format!("{sql} under {limit:?}"));
    let text = datafusion::physical_plan::displayable(plan.as_ref()).indent(false).to_string();
    // Joins that keep the rows of the probe side send none.
    assert!(sql.contains("RIGHT") || sql.contains("FULL") || text.contains("DynamicFilter"), "{text}");
    (right, metric(&plan, "spilled_partitions"))
}

fn integers_array(values: impl IntoIterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(Int64Array::from_iter(values))
}

#[test]
fn a_null_in_the_list_of_not_in_is_seen() {
    run(async {
        let folder = TempDir::new().expect("a folder");
        let outer = integers_array((1..=50).map(Some));
        // Keys far outside the build side's bounds, and one null.
        let list = integers_array((0..2_000).map(|row| (row != 1_700).then_some(1_000 + row)));
        write(folder.path(), "l", vec![("lk", outer, false)]).await;
        write(folder.path(), "r", vec![("rk", list, true)]).await;
        let sql = "SELECT lk FROM l WHERE lk NOT IN (SELECT rk FROM r)";
        let (right, _) = check(folder.path(), sql, None).await;
        assert_eq!(row_count(&right), 0, "a null makes every NOT IN unknown");
    });
}

#[test]
fn zeros_of_both_signs_are_one_key() {
    run(async {
        let folder = TempDir::new().expect("a folder");
        let small: ArrayRef = Arc::new(Float64Array::from(vec![0.0]));
        let large: ArrayRef = Arc::new(Float64Array::from_iter_values(
            (0..1_000).map(|row| if row % 2 == 0 { -0.0 } else { 7.0 }),
        ));
        write(folder.path(), "l", vec![("lk", small, true)]).await;
        write(folder.path(), "r", vec![("rk", large, true)]).await;
        let sql = "SELECT count(*) FROM l JOIN r ON lk = rk";
        let (right, _) = check(folder.path(), sql, None).await;
        assert_eq!(integers(&right, 0), [Some(500)]);
    });
}

#[test]
fn nulls_that_equal_nulls_pass() {
    run(async {
        let folder = TempDir::new().expect("a folder");
        let build = integers_array([Some(1), None, Some(3)]);
        let probe = integers_array((0..2_000).map(|row| (row % 100 != 0).then_some(row)));
        write(folder.path(), "l", vec![("lk", build, true)]).await;
        write(folder.path(), "r", vec![("rk", probe, true)]).await;
        let sql = "SELECT count(*) FROM l JOIN r ON lk IS NOT DISTINCT FROM rk";
        let (right, _) = check(folder.path(), sql, None).await;
        assert_eq!(integers(&right, 0), [Some(22)]);
    });
}

#[test]
fn nulls_that_equal_nulls_pass_where_keys_are_spilled() {
    run(async {
        let folder = TempDir::new().expect("a folder");
        let texts: ArrayRef =
            Arc::new(StringArray::from_iter_values((0..4_000).map(|row| format!("{row:0120}"))));
        let build = integers_array((0..4_000).map(|row| (row % 1_000 != 0).then_some(row * 2)));
        let probe = integers_array((0..9_000).map(|row| (row % 3_000 != 0).then_some(row)));
        write(folder.path(), "l", vec![("lk", build, true), ("lt", texts, true)]).await;
        write(folder.path(), "r", vec![("rk", probe, true)]).await;
        // The first two send filters, and know their keys by a bitmap; the others by a filter over what they spilled.
        for kind in ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"] {
            for condition in ["lk IS NOT DISTINCT FROM rk", "lk = rk"] {
                let sql = format!("SELECT lk, rk, lt FROM l {kind} r ON {condition}");
                let (_, spilled) = check(folder.path(), &sql, Some(512 * KIB)).await;
                assert!(spilled > 0, "{sql}");
            }
        }
    });
}

#[test]
fn a_filter_covers_spilled_build_rows() {
    run(async {
        let folder = TempDir::new().expect("a folder");
        let rows = 4_000;
        let texts = |rows: i64| -> ArrayRef {
            Arc::new(StringArray::from_iter_values((0..rows).map(|row| format!("{row:0120}"))))
        };
        // The build side's bounds exclude most of the probe side; its own rows are spread over all partitions.
        let build = integers_array((0..rows).map(|row| Some(10_000 + row * 37 % rows)));
        let probe = integers_array((0..10 * rows).map(|row| Some(row / 2)));
        write(folder.path(), "l", vec![("lk", build, true), ("lt", texts(rows), true)]).await;
        write(folder.path(), "r", vec![("rk", probe, true), ("rt", texts(10 * rows), true)]).await;
        for sql in [
            "SELECT * FROM l JOIN r ON lk = rk",
            "SELECT * FROM l LEFT JOIN r ON lk = rk",
            "SELECT * FROM l WHERE EXISTS (SELECT 1 FROM r WHERE rk = lk AND rt > lt)",
        ] {
            let (right, _) = check(folder.path(), sql, None).await;
            assert!(row_count(&right) > 1_000, "{sql}");
            let (_, spilled) = check(folder.path(), sql, Some(512 * KIB)).await;
            assert!(spilled > 0, "{sql}");
        }
    });
}

#[test]
fn few_and_no_build_rows() {
    run(async {
        let folder = TempDir::new().expect("a folder");
        let build = integers_array((0..300).map(Some));
        let probe = integers_array((0..3_000).map(|row| Some(row % 500)));
        write(folder.path(), "l", vec![("lk", build, true)]).await;
        write(folder.path(), "r", vec![("rk", probe, true)]).await;
        for (most, expected) in [(-1, 0), (0, 6), (1, 12), (127, 768), (128, 774), (200, 1_206)] {
            let sql = format!(
                "SELECT count(*) FROM (SELECT lk FROM l WHERE lk <= {most} AND lk % 1 = 0) JOIN r ON lk = rk"
            );
            let (right, _) = check(folder.path(), &sql, None).await;
            assert_eq!(integers(&right, 0), [Some(expected)], "{sql}");
        }
    });
}
