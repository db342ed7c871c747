//! The program `sql_corpus` puts every record of a file into its class, and fails if an answer is wrong.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use std::process::{Command, Output};

const RIGHT: &str = "\
hash-threshold 8

foreach n 1 2
statement ok
CREATE TABLE t{n} AS SELECT * FROM (VALUES ({n}, 'a'), (2, NULL)) AS v(i, s)

endloop

query IT rowsort
SELECT i, s FROM t1
----
1\ta
2\tNULL

query I valuesort
SELECT i FROM t1
----
2 values hashing to 6ddb4095eb719e2a9f0a3f95677d24e0

statement error
SELECT nothing FROM t1

restart

onlyif sqlite
query I
SELECT no syntax

query I con1
SELECT count(*) FROM t2
----
2
";

const NOT_RIGHT: &str = "\
statement ok
CREATE TABLE t(a INTEGER REFERENCES other(a), b INTEGER)

statement ok
INSERT INTO t VALUES (1, 2)

query I
SELECT b FROM t
----
3

require spatial

query I
SELECT 1
----
2
";

const WRONG: &str = "\
query I
SELECT 40 + 2
----
43

statement error
SELECT 1
----
no
";

fn run(files: &[(&str, &str)]) -> (Output, serde_json::Value) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let json = folder.path().join("out.json");
    let output = Command::new(env!("CARGO_BIN_EXE_sql_corpus"))
        .args(["--limits", "none,4MB", "--json"])
        .arg(&json)
        .arg(folder.path())
        .output()
        .unwrap();
    (output, serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap())
}

#[test]
fn what_is_right_agrees_at_every_limit() {
    let (output, found) = run(&[("right.test", RIGHT)]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    for limit in 0..2 {
        assert_eq!(found["runs"][limit]["counts"], serde_json::json!({"agrees": 6, "skipped": 1}));
    }
}

#[test]
fn recorded_answers_count_for_less_after_a_refusal() {
    let (output, found) = run(&[("refused.test", NOT_RIGHT)]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    // The table is made without its key; nobody can tell about the answer; what needs an extension is left out.
    let counts = serde_json::json!({"refused": 1, "agrees": 1, "undecided": 1, "skipped": 1});
    assert_eq!(found["runs"][0]["counts"], counts);
}

#[test]
fn wrong_answers_are_a_failure() {
    let (output, found) = run(&[("wrong.test", WRONG)]);
    assert!(!output.status.success());
    assert_eq!(found["runs"][0]["counts"], serde_json::json!({"wrong": 1, "answered": 1}));
    assert_eq!(found["runs"][0]["outcomes"][0]["got"], "42");
    assert_eq!(found["runs"][0]["outcomes"][0]["line"], 1);
}
