//! `DELETE`, `UPDATE` and transactions say that they cannot be done, and do nothing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use crate::program;

use program::csv;

#[test]
fn rows_stay() {
    let folder = tempfile::tempdir().unwrap();
    let changes =
        ["DELETE FROM t", "DELETE FROM t WHERE a IN (SELECT 1)", "UPDATE t SET a = 0", "TRUNCATE TABLE t"];
    for change in changes {
        let ran = csv(folder.path(), &format!("CREATE TABLE t AS SELECT 1 AS a; {change}"));
        assert!(ran.failed(1).contains("rows cannot be changed or deleted yet"), "{change}");
    }
    assert!(csv(folder.path(), "BEGIN").failed(1).contains("transactions of several statements"));
}
