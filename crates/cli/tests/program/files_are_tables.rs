//! Files are queried by their name, without declaring anything.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use crate::program;

use program::{csv, folder_with_files, run};

const ROWS: &str = "id,name,price\n1,anvil,12.5\n2,rope,\n3,lamp,3.25\n";

#[test]
fn every_format_reads_the_same() {
    let folder = folder_with_files();
    for file in ["goods.csv", "goods.parquet", "goods.json", "goods.arrow"] {
        let sql = format!("SELECT id, name, price FROM '{file}' ORDER BY id");
        assert_eq!(csv(folder.path(), &sql).ok(), ROWS, "{file}");
    }
}

#[test]
fn patterns_and_folders_stand_for_many_files() {
    let folder = folder_with_files();
    std::fs::create_dir_all(folder.path().join("parts")).unwrap();
    std::fs::write(folder.path().join("parts/a.csv"), "x\n1\n2\n").unwrap();
    std::fs::write(folder.path().join("parts/b.csv"), "x\n30\n").unwrap();
    for name in ["parts/*.csv", "parts/", "./parts/?.csv", "parts/[ab].csv"] {
        let sql = format!("SELECT count(*) AS n, sum(x) AS s FROM '{name}'");
        assert_eq!(csv(folder.path(), &sql).ok(), "n,s\n3,33\n", "{name}");
    }
}

#[test]
fn paths_may_be_absolute_or_start_at_home() {
    let folder = folder_with_files();
    let absolute = folder.path().join("goods.parquet").display().to_string();
    assert_eq!(csv(folder.path(), &format!("SELECT count(*) AS n FROM '{absolute}'")).ok(), "n\n3\n");
    let mut command = program::command(folder.path());
    command.env("HOME", folder.path()).args([
        "--format",
        "csv",
        "-c",
        "SELECT max(id) AS m FROM '~/goods.csv'",
    ]);
    assert_eq!(program::ran(command.output().unwrap()).ok(), "m\n3\n");
}

#[test]
fn formats_join_and_stems_are_names() {
    let folder = folder_with_files();
    std::fs::write(folder.path().join("sold.csv"), "goods_id;amount\n1;5\n3;7\n3;1\n").unwrap();
    let sql =
        "SELECT goods.name, sum(sold.amount) AS sold FROM 'goods.parquet' JOIN 'sold.csv' ON id = goods_id
               GROUP BY goods.name ORDER BY 1";
    assert_eq!(csv(folder.path(), sql).ok(), "name,sold\nanvil,5\nlamp,8\n");
}

#[test]
fn compressed_text_is_unpacked() {
    let folder = folder_with_files();
    let sql = "COPY (SELECT * FROM 'goods.csv') TO 'goods.csv.gz' STORED AS CSV OPTIONS ('format.compression' 'gzip')";
    run(folder.path(), ["-c", sql]).ok();
    assert_eq!(csv(folder.path(), "SELECT count(*) AS n FROM 'goods.csv.gz'").ok(), "n\n3\n");
}

#[test]
fn json_may_be_an_array() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.json"), "[{\"a\": 1}, {\"a\": 2, \"b\": \"x\"}]").unwrap();
    assert_eq!(csv(folder.path(), "SELECT a, b FROM 'a.json' ORDER BY a").ok(), "a,b\n1,\n2,x\n");
}
