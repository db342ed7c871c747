//! Ctrl-C, and being asked to end, at any moment of any statement.

use std::path::Path;
use std::time::{Duration, Instant};

use super::changes::{State, expected, found, names_below};
use super::{Trial, Verdict};
use crate::error::Result;
use crate::program::{Program, Running};
use crate::random::Random;

/// What is promised is a second; the rest is for machines that are busy with something else, too.
const BOUND: Duration = Duration::from_millis(1500);
/// After this the program listens for signals, on a busy machine, too.
const STARTS_IN: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Interrupted;

impl Trial for Interrupted {
    fn name(&self) -> &'static str {
        "interrupted"
    }

    fn about(&self) -> &'static str {
        "SIGINT or SIGTERM at a random time of sorts, joins, aggregations, windows, recursions, long plans, copies and new \
         tables at 16 MB to 1 GB; it ends within 1.5 seconds (a second is promised), leaves no temporary file and no half \
         of a file, and the database as it was"
    }

    fn attempt(&mut self, program: &Program, folder: &Path, random: &mut Random) -> Result<Verdict> {
        let statement = statement(random);
        let limit = random.one_of(["16MB", "64MB", "1GB"]);
        let mut command = program.command(folder);
        command.args(["db", "--format", "csv", "--memory-limit", limit, "-c", &statement]);
        let running = Running::start(&mut command, &folder.join("run"))?;
        let after = Duration::from_millis(random.below(2500) as u64);
        let running = match running.wait_until(after)? {
            Ok(running) => running,
            Err(ran) => {
                return Ok(ran.mistake().map_or(Verdict::Held("done before"), Verdict::Broke));
            }
        };
        let signal = random.one_of([libc::SIGINT, libc::SIGTERM]);
        let sent = Instant::now();
        running.signal(signal)?;
        let ran = running.wait(PATIENCE)?;
        let took = sent.elapsed();
        // Before the program has begun to listen, a signal does what the system does.
        let was_deaf = after < STARTS_IN && ran.signal == Some(signal);
        if let Some(mistake) = ran.mistake().filter(|_| !was_deaf) {
            return Ok(Verdict::Broke(mistake));
        }
        if took > BOUND {
            return Ok(Verdict::Broke(ran.describe(&format!("ended {took:.1?} after signal {signal}"))));
        }
        let half = names_below(folder).into_iter().find(|name| name.contains("unfinished"));
        if let Some(name) = half {
            return Ok(Verdict::Broke(ran.describe(&format!("{name} is left"))));
        }
        if ran.is_ok() || !folder.join("db").exists() {
            return Ok(Verdict::Held("done before"));
        }
        match found(program, folder, &folder.join("db"))? {
            Ok(holds) if holds == expected(&State::new()) => Ok(Verdict::Held("ended")),
            Ok(holds) => Ok(Verdict::Broke(ran.describe(&format!("the database holds {holds}")))),
            Err(message) => Ok(Verdict::Broke(message)),
        }
    }
}

/// Something that takes a while.
fn statement(random: &mut Random) -> String {
    let rows = "(SELECT * FROM generate_series(1, 3000000) AS series(value))";
    let chain = |term: &str, times: usize, between: &str| vec![term; times].join(between);
    match random.below(14) {
        0 => format!("SELECT count(*) FROM (SELECT md5(value::TEXT) AS m FROM {rows} ORDER BY m OFFSET 10)"),
        1 => format!("SELECT count(*) FROM (SELECT md5(value::TEXT) AS m, count(*) FROM {rows} GROUP BY m)"),
        2 => format!("SELECT count(*) FROM {rows} a JOIN {rows} b ON md5(a.value::TEXT) = md5(b.value::TEXT)"),
        3 => format!("SELECT max(n) FROM (SELECT row_number() OVER (PARTITION BY value % 100 ORDER BY md5(value::TEXT)) AS n FROM {rows})"),
        4 => "WITH RECURSIVE t AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM t) SELECT count(*) FROM t".to_owned(),
        5 => "WITH RECURSIVE t AS (SELECT 1 AS a UNION SELECT (a * 7 + 3) % 1000000007 FROM t) SELECT count(*) FROM t".to_owned(),
        6 => format!("SELECT count(*) FROM {rows} a, {rows} b WHERE a.value + 3 < b.value * 2"),
        7 => format!("COPY (SELECT value, md5(value::TEXT) AS m FROM {rows}) TO 'x.parquet'"),
        8 => format!("COPY (SELECT value, md5(value::TEXT) AS m FROM {rows}) TO 'x.csv'"),
        9 => format!("CREATE TABLE big AS SELECT value, md5(value::TEXT) AS m FROM {rows} a UNION ALL SELECT value, 'x' FROM {rows}, generate_series(1, 9) AS r(n)"),
        10 => format!("SELECT {}", chain("1", 900, " + ")),
        11 => chain("SELECT 1 AS a", 1500, " UNION ALL "),
        12 => "SELECT count(*) FROM tpch('lineitem', 1) l JOIN tpch('orders', 1) o ON l_orderkey = o_orderkey WHERE l_comment < o_comment".to_owned(),
        _ => format!("SELECT count(DISTINCT md5(value::TEXT)), count(DISTINCT value), median(value) FROM {rows}"),
    }
}
