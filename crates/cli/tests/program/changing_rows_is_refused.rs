//! `DELETE` and `UPDATE` of what is no table, and ends of transactions that have not begun, say that they cannot be done, and do
//! nothing.

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
        ["DELETE FROM v", "DELETE FROM v WHERE a IN (SELECT 1)", "UPDATE v SET a = 0", "TRUNCATE TABLE v"];
    for change in changes {
        let ran = csv(folder.path(), &format!("CREATE VIEW v AS SELECT 1 AS a; {change}"));
        assert!(ran.failed(1).contains("rows of 'v' cannot be changed or deleted"), "{change}");
    }
    assert!(csv(folder.path(), "COMMIT").failed(1).contains("there is no transaction"));
}
