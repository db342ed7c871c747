//! Files, statements and manifests that were valid, changed in hundreds of ways: an answer or an error, and no mistake of
//! ours.
//!
//! The same entry functions as the fuzz targets, with a fixed seed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

use std::sync::atomic::Ordering;

use nandina::{Database, Options};

use crate::inputs;

struct Random(u64);

impl Random {
    /// xorshift64*
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Flips, removes, repeats or exchanges a few bytes, half of the time near an end, where structures are.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random, words: &[&[u8]]) {
    for _ in 0..=random.below(3) {
        let near = random.below(bytes.len().min(300));
        let at = match random.below(4) {
            0 => near,
            1 => bytes.len().saturating_sub(near + 1),
            _ => random.below(bytes.len()),
        };
        let end = (at + 1 + random.below(12)).min(bytes.len());
        match random.below(5) {
            0 => drop(bytes.drain(at..end)),
            1 => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            2 => {
                let word = words[random.below(words.len())];
                bytes.splice(at..end, word.iter().copied());
            }
            3 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            _ => bytes.truncate(bytes.len() - random.below(bytes.len().min(40))),
        }
    }
}

#[test]
fn files() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let rows = "SELECT value AS i, md5(value::TEXT) AS s, [value, NULL] AS l FROM generate_series(1, 200) AS series(value)";
    let flat = "SELECT value AS i, 'a, \"b\"' || value AS s FROM generate_series(1, 200) AS series(value)";
    let mut random = Random(31);
    for (number, format) in inputs::FORMATS.iter().enumerate() {
        // The others are written by hand: with compression, or tabs.
        let Some(query) = (match *format {
            "parquet" | "json" | "arrow" => Some(rows),
            "csv" => Some(flat),
            _ => None,
        }) else {
            continue;
        };
        let path = folder.path().join(format!("valid.{format}"));
        runtime.block_on(async {
            let session = Database::in_memory(Options::default()).unwrap().session().unwrap();
            session.run(&format!("COPY ({query}) TO '{}'", path.display())).await.unwrap();
        });
        let valid = std::fs::read(&path).unwrap();
        for _ in 0..150 {
            let mut changed = valid.clone();
            mutate(
                &mut changed,
                &mut random,
                &[b"\"", b"\n", b"{", b"]", b"PAR1", b"\0\0\0\0", b"\xFF\xFF\xFF\xFF"],
            );
            changed.insert(0, number as u8);
            inputs::read_file(&changed);
        }
    }
    assert_eq!(inputs::MISTAKES_SEEN.load(Ordering::Relaxed), 0, "each is written above");
}

#[test]
fn statements() {
    let valid = [
        "SELECT a, b, count(*) FROM t WHERE a > 5 AND s LIKE 'x%' GROUP BY a, b HAVING count(*) > 0 ORDER BY 1 LIMIT 3",
        "WITH r AS (SELECT a, sum(b) OVER (PARTITION BY b ORDER BY a ROWS 3 PRECEDING) AS w FROM t) SELECT * FROM r JOIN t USING (a)",
        "SELECT CASE WHEN a IN (SELECT b FROM t) THEN l[1] ELSE -a END, CAST(s AS VARCHAR), interval '1 day' + DATE '2020-01-01' FROM t",
        "SELECT * FROM t x LEFT JOIN t y ON x.a = y.b AND x.s <> y.s UNION ALL SELECT * FROM t, t z EXCEPT SELECT NULL",
        "VALUES (1, 'a'), (2, NULL)",
    ];
    let words: [&[u8]; 10] =
        [b"SELECT ", b"(", b")", b",", b"NULL", b"'", b" 99999999999999999999 ", b"*", b" OVER () ", b"t.a"];
    let mut random = Random(37);
    for statement in valid {
        for _ in 0..80 {
            let mut changed = statement.as_bytes().to_vec();
            mutate(&mut changed, &mut random, &words);
            inputs::run_statement(&String::from_utf8_lossy(&changed));
        }
    }
}

#[test]
fn manifests() {
    let valid = inputs::manifest_body();
    inputs::open_manifest(&valid);
    let words: [&[u8]; 7] = [b"0", b"-1", b"18446744073709551615", b"4294967296", b"null", b"\"\"", b"[]"];
    let mut random = Random(41);
    for _ in 0..400 {
        let mut changed = valid.clone();
        mutate(&mut changed, &mut random, &words);
        inputs::open_manifest(&changed);
    }
}
