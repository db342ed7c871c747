//! The power fails during statements, on a device in memory that loses what was not synced. What was acknowledged is there afterwards,
//! and the transaction that was waited for as a whole or not at all.

use std::path::Path;

use nandina::{Database, OpenDevice, Options, Session};
use nandina_device::Device;
use nandina_simulation::{CrashOutcome, FaultPlan, Simulation};
use tokio::runtime::{Builder, Runtime};

use crate::rows_change::rows;

/// Transactions, one after the other: tables with and without keys, in the heap and in segments.
const TRANSACTIONS: [&[&str]; 16] = [
    &[
        "CREATE TABLE accounts (k BIGINT PRIMARY KEY, name VARCHAR UNIQUE, amount BIGINT, CHECK (amount >= 0))",
    ],
    &["INSERT INTO accounts VALUES (1, 'one', 10), (2, 'two', 20), (3, NULL, 30)"],
    &["CREATE TABLE plain AS SELECT range AS k, 'row ' || range AS s FROM range(200)"],
    &["UPDATE accounts SET name = 'zwei', amount = amount + 5 WHERE k = 2"],
    &[
        "BEGIN",
        "INSERT INTO accounts VALUES (4, 'four', 40), (5, 'five', 50)",
        "DELETE FROM accounts WHERE k = 1",
        "UPDATE plain SET s = 'changed' WHERE k < 10",
        "INSERT INTO plain VALUES (1000, 'new')",
        "COMMIT",
    ],
    &["BEGIN", "DELETE FROM accounts", "DELETE FROM plain WHERE k > 100", "ROLLBACK"],
    &["CREATE INDEX by_amount ON accounts (amount, k)"],
    &[
        "INSERT INTO accounts VALUES (2, NULL, 100), (6, 'one', 60) ON CONFLICT (k) DO UPDATE SET amount = accounts.amount + excluded.amount",
    ],
    &["VACUUM plain"],
    &["CREATE UNIQUE INDEX by_k ON plain (k)"],
    &["DELETE FROM plain WHERE k % 2 = 0"],
    &["CHECKPOINT"],
    &["DROP INDEX by_amount"],
    &["CREATE TABLE copied AS SELECT * FROM accounts"],
    &["DROP TABLE plain"],
    &["DELETE FROM accounts WHERE k = 3"],
];

/// Events at which the power fails, of all that there are. `EVERY_EVENT=1` tries all of them.
const TRIES: u64 = 32;

/// A database on a device in memory. Its temporary files are on another one, whose power does not fail.
struct Place<'f> {
    folder: &'f Path,
    device: Device,
    simulation: Simulation,
    temporary: Device,
}

impl<'f> Place<'f> {
    fn new(folder: &'f Path) -> Self {
        let (device, simulation) = nandina_simulation::in_memory(FaultPlan::none());
        let (temporary, _) = nandina_simulation::in_memory(FaultPlan::none());
        Self { folder, device, simulation, temporary }
    }

    /// The folder is there for its name alone.
    fn open(&self) -> nandina::Result<Database> {
        let (device, temporary) = (self.device.clone(), self.temporary.clone());
        let open_device = OpenDevice::with(move |directory, _| match directory.ends_with("temp") {
            true => Ok(temporary.clone()),
            false => Ok(device.clone()),
        });
        let options = Options {
            memory_limit: Some(64 << 20),
            threads: Some(1),
            auto_calibrate: false,
            background_vacuum: false,
            open_device,
            ..Options::default()
        };
        Database::open(self.folder, options)
    }

    /// Runs all transactions, or as many as there is power for: how many were acknowledged, and why there are no more.
    fn work(&self) -> (usize, nandina::Result<()>) {
        let mut acknowledged = 0;
        let result = runtime().block_on(async {
            let session = self.open()?.session()?;
            for statements in TRANSACTIONS {
                run(&session, statements).await?;
                acknowledged += 1;
            }
            Ok::<(), nandina::Error>(())
        });
        (acknowledged, result)
    }
}

/// One for each run, which ends whatever the run has left.
fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn run(session: &Session, statements: &[&str]) -> nandina::Result<()> {
    for statement in statements {
        session.run(statement).await?;
    }
    Ok(())
}

/// All rows of all tables, and whether there is the index of one of them. What an index finds is what there is without it.
async fn state(session: &Session) -> Vec<String> {
    let tables = "SELECT table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE'";
    let mut state = Vec::new();
    for table in rows(session, tables).await {
        if table == "accounts" {
            state.push(format!("by_amount: {}", has_index(session).await));
            for key in 1..=6 {
                same(session, &table, &format!("k = {key}"), &format!("k + 0 = {key}")).await;
            }
            for name in ["one", "two", "zwei"] {
                same(session, &table, &format!("name = '{name}'"), &format!("name || '' = '{name}'")).await;
            }
            same(session, &table, "amount = 125", "amount + 0 = 125").await;
        }
        if table == "plain" {
            for key in [1, 6, 7, 150, 1000] {
                same(session, &table, &format!("k = {key}"), &format!("k + 0 = {key}")).await;
            }
        }
        let of_table = rows(session, &format!("SELECT * FROM {table}")).await;
        state.extend(of_table.iter().map(|row| format!("{table}: {row}")));
    }
    state
}

async fn same(session: &Session, table: &str, one: &str, other: &str) {
    let all = format!("SELECT * FROM {table} WHERE");
    let (found, there) = (format!("{all} {one}"), format!("{all} {other}"));
    assert_eq!(rows(session, &found).await, rows(session, &there).await, "{one}");
}

async fn has_index(session: &Session) -> bool {
    match session.run("CREATE INDEX by_amount ON accounts (amount, k)").await {
        Ok(()) => {
            session.run("DROP INDEX by_amount").await.unwrap();
            false
        }
        Err(error) => {
            assert!(error.to_string().contains("there is an index"), "{error}");
            true
        }
    }
}

/// The states before the first transaction and behind each of them.
fn states(folder: &Path) -> Vec<Vec<String>> {
    let place = Place::new(folder);
    runtime().block_on(async {
        let session = place.open().unwrap().session().unwrap();
        let mut states = vec![state(&session).await];
        for statements in TRANSACTIONS {
            run(&session, statements).await.unwrap();
            states.push(state(&session).await);
        }
        states
    })
}

#[test]
fn what_was_acknowledged_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let states = states(folder.path());
    assert_eq!(
        states[TRANSACTIONS.len()],
        [
            "by_amount: false",
            "accounts: 2,zwei,125",
            "accounts: 4,four,40",
            "accounts: 5,five,50",
            "accounts: 6,one,60",
            "copied: 2,zwei,125",
            "copied: 3,,30",
            "copied: 4,four,40",
            "copied: 5,five,50",
            "copied: 6,one,60",
        ]
    );
    let place = Place::new(folder.path());
    let (acknowledged, result) = place.work();
    result.unwrap();
    assert_eq!(acknowledged, TRANSACTIONS.len());
    let events = place.simulation.events();
    assert!(events > 100, "{events} events");
    let stride = if std::env::var_os("EVERY_EVENT").is_some() { 1 } else { events.div_ceil(TRIES) };
    for (number, event) in (0..events).step_by(stride as usize).enumerate() {
        let outcome = match number % 3 {
            0 => CrashOutcome::LoseUnsynced,
            1 => CrashOutcome::Random { seed: event },
            _ => CrashOutcome::KeepAll,
        };
        power_fails(folder.path(), &states, event, outcome);
    }
}

fn power_fails(folder: &Path, states: &[Vec<String>], event: u64, outcome: CrashOutcome) {
    let place = Place::new(folder);
    place.simulation.set_plan(FaultPlan::none().power_loss_at(event));
    let (acknowledged, result) = place.work();
    place.simulation.crash(outcome);
    let context = format!("event {event}, {outcome:?}, {acknowledged} acknowledged, {result:?}");
    runtime().block_on(async {
        let database = place.open().unwrap_or_else(|error| panic!("{context}: {error}"));
        let session = database.session().unwrap();
        let found = state(&session).await;
        let next = states.get(acknowledged + 1);
        assert!(found == states[acknowledged] || Some(&found) == next, "{context}: {found:#?}");
        // And it works on.
        let more = [
            "CREATE TABLE afterwards (k BIGINT PRIMARY KEY)",
            "INSERT INTO afterwards VALUES (7)",
            "DROP TABLE afterwards",
        ];
        run(&session, &more).await.unwrap_or_else(|error| panic!("{context}: {error}"));
    });
    let unfinished = |name: &String| name.ends_with(".new");
    assert!(!place.device.list().unwrap().iter().any(unfinished), "{context}");
}
