//! Feeds arbitrary bytes to what Nandina reads from outside: files of other programs, statements, manifests. Used by fuzz
//! targets, and by a test of `nandina` that changes valid inputs, so that ordinary test runs cover the same ground.
//!
//! Whatever comes in, there is an answer or an error, and no error that is a mistake of ours.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use nandina::{Database, Options};
use tokio::runtime::Runtime;

/// Words of errors that only a mistake of ours has.
const MISTAKES: [&str; 4] = ["please report", "panicked", "Internal error", "internal error"];

/// Statements may not write files, nor change what the process does.
const HARMLESS: [&str; 6] = ["select", "with", "values", "explain", "show", "("];

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        report_only_mistakes();
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).enable_all().build().expect("threads can be started")
    })
}

/// Panics that have been seen.
pub static MISTAKES_SEEN: AtomicU64 = AtomicU64::new(0);

/// As the program does: the reader of a damaged file may panic. Any other panic is a mistake, which ends a fuzzer.
fn report_only_mistakes() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if nandina::is_guarded() {
            return;
        }
        MISTAKES_SEEN.fetch_add(1, Ordering::Relaxed);
        report(panic);
    }));
}

fn database() -> &'static Database {
    static DATABASE: OnceLock<Database> = OnceLock::new();
    DATABASE.get_or_init(|| {
        let database = Database::in_memory(options()).expect("an empty database opens");
        runtime().block_on(async {
            let session = database.session().expect("a session begins");
            let setup = "CREATE TABLE t AS SELECT value AS a, value % 3 AS b, 'x' || value AS s, [value] AS l
                         FROM generate_series(1, 100) AS series(value)";
            session.run(setup).await.expect("a table is made");
        });
        database
    })
}

fn options() -> Options {
    Options { memory_limit: Some(64 << 20), threads: Some(2), ..Options::default() }
}

/// An empty folder of this process.
fn folder() -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("nandina-fuzz-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).expect("the temporary folder can be written to");
    folder
}

/// Runs a statement; its error must be one that a user can be shown.
async fn run(database: &Database, sql: &str) {
    let told = async {
        let session = database.session()?;
        session.run("SET statement_timeout = '5s'").await?;
        session.sql(sql).await?.drain().await
    };
    if let Err(error) = told.await {
        let message = error.to_string();
        assert!(!MISTAKES.iter().any(|words| message.contains(words)), "{sql:.2000}: {message}");
    }
}

/// What a file's name ends with.
pub const FORMATS: [&str; 7] = ["parquet", "csv", "json", "arrow", "csv.gz", "json.zst", "tsv"];

/// Reads a file: the first byte selects the format.
pub fn read_file(input: &[u8]) {
    let Some((&selector, bytes)) = input.split_first() else { return };
    let format = FORMATS.get(usize::from(selector) % FORMATS.len()).copied().unwrap_or("csv");
    let folder = folder();
    let path = folder.join(format!("file.{format}"));
    std::fs::write(&path, bytes).expect("the temporary folder can be written to");
    let database = database();
    runtime().block_on(async {
        run(database, &format!("SELECT * FROM '{}'", path.display())).await;
        run(database, &format!("SELECT count(*) FROM '{}'", path.display())).await;
    });
    std::fs::remove_dir_all(&folder).expect("the folder is there");
}

/// Plans and runs a statement that only reads.
pub fn run_statement(text: &str) {
    let start: String = text.trim_start().chars().take(8).collect::<String>().to_lowercase();
    if HARMLESS.iter().any(|word| start.starts_with(word)) {
        runtime().block_on(run(database(), text));
    }
}

/// A database with a table and a view; where it lies.
fn template() -> &'static Path {
    static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let path = folder().join("template");
        let database = Database::open(&path, options()).expect("a database is made");
        runtime().block_on(async {
            let session = database.session().expect("a session begins");
            let setup = "CREATE TABLE t AS SELECT value AS a, 'x' || value AS s, [value] AS l FROM generate_series(1, 100) AS series(value);
                         INSERT INTO t VALUES (7, 'seven', NULL); CREATE VIEW v AS SELECT a FROM t";
            session.run(setup).await.expect("a table is made");
        });
        path
    })
}

/// The part of a manifest that its checksum is of.
pub fn manifest_body() -> Vec<u8> {
    let manifest = std::fs::read(template().join("nandina.manifest")).expect("the template has a manifest");
    let first_line = manifest.iter().position(|&byte| byte == b'\n').expect("it has a first line");
    manifest[first_line + 1..].to_vec()
}

/// Opens a database with the manifest `body`, whose checksum is right.
pub fn open_manifest(body: &[u8]) {
    let folder = folder();
    for entry in std::fs::read_dir(template()).expect("the template is there").flatten() {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && entry.file_name().to_string_lossy().ends_with(".pax") {
            std::fs::hard_link(entry.path(), folder.join(entry.file_name())).expect("a link can be made");
        }
    }
    let mut manifest =
        format!("NANDINA MANIFEST 2 {:08x} {}\n", crc32c::crc32c(body), body.len()).into_bytes();
    manifest.extend_from_slice(body);
    std::fs::write(folder.join("nandina.manifest"), manifest).expect("the folder can be written to");
    match Database::open(&folder, Options { read_only: true, ..options() }) {
        Ok(database) => runtime().block_on(async {
            run(&database, "SHOW TABLES").await;
            run(&database, "SELECT * FROM t").await;
            run(&database, "SELECT * FROM v WHERE a > 50").await;
        }),
        Err(error) => {
            let message = error.to_string();
            assert!(!MISTAKES.iter().any(|words| message.contains(words)), "{message}");
        }
    }
    std::fs::remove_dir_all(&folder).expect("the folder is there");
}
