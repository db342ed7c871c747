//! One way to run a file: under a memory limit, with tables in memory or on disk.

use std::path::Path;
use std::time::{Duration, Instant};

use nandina::{Database, Options};
use sqllogictest::{
    MakeConnection, Record, Runner, default_normalizer, default_validator, strict_column_validator,
};
use tempfile::TempDir;

use crate::cells::ColumnKind;
use crate::connection::{Account, Connection, LONGEST_END};

/// How a file is run.
pub struct Setting {
    pub name: &'static str,
    memory_limit: Option<u64>,
    /// Another number of workers is another plan, which must not change a result either.
    threads: usize,
    /// In memory tables count against the limit; on disk they may be larger than it.
    tables_on_disk: bool,
}

type Failure = Box<dyn std::error::Error>;

impl Setting {
    pub const ALL: &[Setting] = &[
        Setting { name: "unlimited", memory_limit: None, threads: 4, tables_on_disk: false },
        Setting { name: "8MiB", memory_limit: Some(8 << 20), threads: 2, tables_on_disk: true },
        Setting { name: "1MiB", memory_limit: Some(1 << 20), threads: 1, tables_on_disk: true },
    ];

    /// Runs a file and compares; the error lists every record that differs. Afterwards nothing may be left of it in
    /// memory or in the folder for temporary files.
    pub fn run(&self, file: &Path) -> Result<(), Failure> {
        self.in_new_database(async |database, account, folder| {
            let mut runner = self.runner(database, account, folder);
            runner.with_column_validator(strict_column_validator);
            let mut failures = String::new();
            let records = sqllogictest::parse_file(file)?;
            let must_spill = self.must_spill(file, &records);
            for record in records {
                if let Record::Halt { loc } = &record {
                    return Err(format!("{loc}: nothing after 'halt' would be run").into());
                }
                if let Err(failure) = runner.run_async(record).await {
                    failures.push_str(&format!("\n{failure}"));
                }
            }
            if failures.is_empty() && must_spill && account.spilled_bytes() == 0 {
                failures.push_str("\nnothing was spilled: the tables are too small for this folder");
            }
            if failures.is_empty() { Ok(()) } else { Err(failures.into()) }
        })
    }

    /// Writes what is answered into the file.
    pub fn complete(&self, file: &Path) -> Result<(), Failure> {
        self.in_new_database(async |database, account, folder| {
            let mut runner = self.runner(database, account, folder);
            let (values, columns) = (default_validator, strict_column_validator);
            runner.update_test_file(file, " ", values, default_normalizer, columns).await
        })
    }

    /// Whether a file is there for spilling, and none of it is skipped.
    fn must_spill(&self, file: &Path, records: &[Record<ColumnKind>]) -> bool {
        let is_whole = !records.iter().any(|record| matches!(record, Record::Condition(_)));
        let folder = file.parent().and_then(Path::file_name);
        self.memory_limit.is_some() && is_whole && folder.is_some_and(|folder| folder == "beyond_memory")
    }

    /// Files are written to and read from `${FOLDER}`, where substitution is on.
    fn runner(
        &self,
        database: &Database,
        account: &Account,
        folder: &Path,
    ) -> Runner<Connection, impl MakeConnection<Conn = Connection>> {
        let (database, account) = (database.clone(), account.clone());
        let mut runner = Runner::new(move || std::future::ready(Connection::open(&database, &account)));
        if std::env::var_os("UNSKIP").is_none() {
            runner.add_label(self.name);
            if self.memory_limit.is_some() {
                runner.add_label("limited");
            }
        }
        runner.set_var("FOLDER".to_owned(), folder.display().to_string());
        runner
    }

    fn in_new_database(
        &self,
        work: impl AsyncFnOnce(&Database, &Account, &Path) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let [home, temp, files] = [TempDir::new()?, TempDir::new()?, TempDir::new()?];
        let options = Options {
            memory_limit: self.memory_limit,
            threads: Some(self.threads),
            temp_directory: Some(temp.path().to_path_buf()),
            auto_calibrate: false,
            ..Options::default()
        };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            let database = match self.tables_on_disk {
                true => Database::open(home.path().join("database"), options)?,
                false => Database::in_memory(options)?,
            };
            let account = Account::default();
            work(&database, &account, files.path()).await?;
            drop(database);
            nothing_is_left(&account, temp.path()).await
        })
    }
}

/// Queries that end early, at a LIMIT or an error, cancel their workers and do not wait for them; a while is enough.
async fn nothing_is_left(account: &Account, temp: &Path) -> Result<(), Failure> {
    let start = Instant::now();
    loop {
        let reserved_bytes = account.reserved_bytes();
        let names: Vec<_> =
            std::fs::read_dir(temp)?.map(|entry| entry.map(|entry| entry.file_name())).collect();
        if reserved_bytes == 0 && names.is_empty() {
            return Ok(());
        }
        if start.elapsed() > LONGEST_END {
            return Err(format!(
                "{reserved_bytes} bytes are still reserved, and left in the temporary folder: {names:?}"
            )
            .into());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
