//! `DELETE` and `UPDATE` of tables to which rows are only added, and ends of transactions that have not begun, say that they cannot be
//! done, and do nothing.

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
        assert!(ran.failed(1).contains("rows of 't' cannot be changed or deleted"), "{change}");
    }
    assert!(csv(folder.path(), "COMMIT").failed(1).contains("there is no transaction"));
}
