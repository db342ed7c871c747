//! `import` and `COPY` bring files into tables of a database, as one change each.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use crate::program;

use program::{csv_in, folder_with_files, run};

#[test]
fn import_makes_a_table_that_can_be_queried() {
    let folder = folder_with_files();
    let report = run(folder.path(), ["import", "shop", "goods", "goods.csv"]).ok();
    assert!(report.starts_with("3 rows in table 'goods', "), "{report}");
    assert_eq!(
        csv_in(folder.path(), "shop", "SELECT * FROM goods ORDER BY id").ok(),
        "id,name,price\n1,anvil,12.5\n2,rope,\n3,lamp,3.25\n"
    );
    assert_eq!(csv_in(folder.path(), "shop", "SHOW TABLES").ok(), "table,columns,rows\ngoods,3,3\n");
}

#[test]
fn a_table_that_exists_is_kept_unless_asked() {
    let folder = folder_with_files();
    run(folder.path(), ["import", "shop", "goods", "goods.csv"]).ok();
    let message = run(folder.path(), ["import", "shop", "goods", "goods.parquet"]).failed(1);
    assert!(message.contains("there is a table 'goods' already"), "{message}");
    run(folder.path(), ["import", "shop", "goods", "goods.parquet", "--append"]).ok();
    assert_eq!(csv_in(folder.path(), "shop", "SELECT count(*) AS n FROM goods").ok(), "n\n6\n");
    run(folder.path(), ["import", "shop", "goods", "goods.parquet", "--replace"]).ok();
    assert_eq!(csv_in(folder.path(), "shop", "SELECT count(*) AS n FROM goods").ok(), "n\n3\n");
}

#[test]
fn a_failed_import_leaves_nothing() {
    let folder = folder_with_files();
    let mut bad = String::from("id,name\n");
    for id in 0..30_000 {
        bad.push_str(&format!("{id},x\n"));
    }
    // Beyond the rows from which types are inferred.
    bad.push_str("not a number,x\n");
    std::fs::write(folder.path().join("bad.csv"), bad).unwrap();
    run(folder.path(), ["import", "shop", "bad", "bad.csv"]).failed(1);
    assert_eq!(csv_in(folder.path(), "shop", "SHOW TABLES").ok(), "table,columns,rows\n");
    let files = program::names_below(&folder.path().join("shop"));
    assert!(!files.iter().any(|name| name.contains("segment")), "{files:?}");
}

#[test]
fn copy_fills_and_empties_tables() {
    let folder = folder_with_files();
    let sql = "CREATE TABLE g (id BIGINT, name TEXT, price DOUBLE);
               COPY g FROM 'goods.csv'; COPY g (name, id) FROM 'pairs.csv' (HEADER false, DELIMITER '|');
               COPY g TO 'out.parquet'";
    std::fs::write(folder.path().join("pairs.csv"), "saw|4\nnail|5\n").unwrap();
    csv_in(folder.path(), "shop", sql).ok();
    let sql = "SELECT count(*) AS n, sum(id) AS s, count(price) AS p FROM";
    assert_eq!(csv_in(folder.path(), "shop", &format!("{sql} g")).ok(), "n,s,p\n5,15,2\n");
    assert_eq!(csv_in(folder.path(), "shop", &format!("{sql} 'out.parquet'")).ok(), "n,s,p\n5,15,2\n");
    let message = csv_in(folder.path(), "shop", "COPY g (id, nme) FROM 'pairs.csv' (HEADER false)").failed(1);
    assert!(
        message.starts_with("error: there is no column 'g.nme'; did you mean 'name'?\nLINE 1: "),
        "{message}"
    );
}
