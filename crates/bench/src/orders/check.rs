//! Runs every order everywhere, and compares.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nandina::{Database, Options, Session};

use super::suites::Suite;
use crate::error::{BenchError, Result};
use crate::fuzz::cells::difference;
use crate::fuzz::engines::{Answer, ask};

/// Where a query runs: tables of one kind under one limit.
struct Place {
    name: String,
    session: Arc<Session>,
    is_limited: bool,
}

/// What came of a suite.
#[derive(Debug, Default)]
pub struct Report {
    pub runs: usize,
    /// Which query in which order where: how it differs, and the query as it was run.
    pub wrong: Vec<(String, String, String)>,
    /// Too little memory.
    pub refused_at_limit: Vec<(String, String)>,
}

/// Runs all queries of a suite, and tells about each on the way.
pub async fn check(suite: &Suite, limit: &str, timeout: Duration, folder: &Path) -> Result<Report> {
    let places = places(suite, limit, folder).await?;
    let mut report = Report::default();
    for query in &suite.queries {
        let wrong_before = report.wrong.len();
        let mut expected: Option<Answer> = None;
        for place in &places {
            for (order, sql) in &query.texts {
                let answer = ask(&place.session, sql, timeout).await;
                report.runs += 1;
                let at = format!("{}: {}, {order}, {}", suite.name, query.name, place.name);
                match (&answer, &expected) {
                    (Answer::Rows(_), None) => expected = Some(answer),
                    (Answer::Rows(rows), Some(Answer::Rows(right))) => {
                        if let Some(detail) = difference(rows, right, false) {
                            report.wrong.push((at, detail, sql.clone()));
                        }
                    }
                    (Answer::Error(message), _) if place.is_limited => {
                        report.refused_at_limit.push((at, message.clone()));
                    }
                    _ => report.wrong.push((at, answer.shown(), sql.clone())),
                }
            }
        }
        for (at, detail, _) in report.wrong.iter().skip(wrong_before) {
            println!("{at}: {detail}");
        }
    }
    Ok(report)
}

async fn places(suite: &Suite, limit: &str, folder: &Path) -> Result<Vec<Place>> {
    let mut places = Vec::new();
    for kind in ["native", "parquet"] {
        let own = folder.join(format!("{}-{kind}", suite.name));
        std::fs::create_dir_all(&own).map_err(BenchError::file(&own))?;
        let options = Options { memory_limit: Some(2 << 30), auto_calibrate: false, ..Options::default() };
        let database = Database::open(own.join("database"), options).map_err(said)?;
        let maker = database.session().map_err(said)?;
        let mut views = Vec::new();
        for (name, make) in &suite.tables {
            maker.run(make).await.map_err(said)?;
            if kind == "parquet" {
                let path = own.join(format!("{name}.parquet"));
                let path = path.display();
                maker.run(&format!("COPY {name} TO '{path}'; DROP TABLE {name}")).await.map_err(said)?;
                views.push(format!("CREATE VIEW {name} AS SELECT * FROM '{path}'"));
            }
        }
        for setting in ["none", limit] {
            let session = database.session().map_err(said)?;
            session.run("SET threads = 2").await.map_err(said)?;
            if setting != "none" {
                session.run(&format!("SET memory_limit = '{setting}'")).await.map_err(said)?;
            }
            for view in &views {
                // A view belongs to the database or to its session.
                session.run(view).await.ok();
            }
            let name = format!("{kind}, limit {setting}");
            places.push(Place { name, session: Arc::new(session), is_limited: setting != "none" });
        }
    }
    Ok(places)
}

fn said(error: nandina::Error) -> BenchError {
    BenchError::Setup(error.to_string())
}
