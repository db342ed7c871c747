//! A run: one set of tables after the other, some hundreds of statements on each.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::engines::{Engines, Outcome};
use super::generate::Generator;
use super::shrink::{Round, shrink};
use super::step::Step;
use crate::error::{BenchError, Result};
use crate::random::Random;
use crate::table::Table;

/// What is run, and for how long.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Of the first tables; others have the next ones.
    pub seed: u64,
    pub statements: usize,
    pub duration: Option<Duration>,
    pub sessions: usize,
    pub memory_limit: Option<u64>,
    /// Steps of the same tables.
    pub steps_of_tables: usize,
    /// How long a script is made shorter.
    pub shrinking: Duration,
    /// Scratch space.
    pub work: PathBuf,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Summary {
    /// How many statements of each kind succeeded, and failed in both.
    counts: BTreeMap<String, [usize; 2]>,
    pub difference: Option<Difference>,
}

/// The first difference.
#[derive(Debug)]
pub struct Difference {
    pub kind: &'static str,
    /// The seed of its tables.
    pub seed: u64,
    /// The step of these tables.
    pub number: usize,
    pub description: String,
    pub script: Vec<Step>,
}

impl Summary {
    pub fn statements(&self) -> usize {
        self.counts.values().flatten().sum()
    }

    /// Statements that changed something, or were to.
    pub fn changes(&self) -> usize {
        let changes = ["INSERT", "UPDATE", "DELETE"].iter().filter_map(|name| self.counts.get(*name));
        changes.map(|[succeeded, _]| succeeded).sum()
    }

    fn add(&mut self, step: &Step, outcome: &Outcome) {
        let counts = self.counts.entry(step.name().to_owned()).or_default();
        let [succeeded, failed] = counts;
        match outcome {
            Outcome::Error(_) => *failed += 1,
            _ => *succeeded += 1,
        }
    }

    /// For people.
    pub fn render(&self) -> String {
        let mut table = Table::new(1, ["statement", "succeeded", "failed in both"]);
        for (name, [succeeded, failed]) in &self.counts {
            table.row([name.clone(), succeeded.to_string(), failed.to_string()]);
        }
        let mut text = table.to_text();
        if let Some(difference) = &self.difference {
            text += &difference.render();
        }
        text
    }
}

impl Difference {
    fn render(&self) -> String {
        let Difference { kind, seed, number, description, script } = self;
        let script: Vec<String> = script.iter().map(Step::to_string).collect();
        format!("\nseed {seed}, step {number}: {kind}\n{description}\n\n{}\n", script.join("\n"))
    }
}

/// Runs until something differs, or enough is done.
pub async fn run(plan: &Plan) -> Result<Summary> {
    let started = Instant::now();
    let mut summary = Summary::default();
    for seed in plan.seed.. {
        let is_over = plan.duration.is_some_and(|duration| started.elapsed() > duration);
        if is_over || summary.statements() >= plan.statements || summary.difference.is_some() {
            break;
        }
        run_tables(plan, seed, &mut summary).await?;
    }
    Ok(summary)
}

async fn run_tables(plan: &Plan, seed: u64, summary: &mut Summary) -> Result<()> {
    let folder = plan.work.join(format!("seed-{seed}"));
    std::fs::remove_dir_all(&folder).ok();
    let mut engines = Engines::open(&folder, plan.sessions, plan.memory_limit)?;
    // Numbers of neighbours have nothing in common.
    let mut generator = Generator::new(Random::new(seed).number(), plan.sessions.max(1));
    let mut steps = Vec::new();
    let count = plan.steps_of_tables.min(plan.statements.saturating_sub(summary.statements()));
    for number in 0..count {
        let step = generator.step();
        let said = engines.run(&step).await;
        let said = said.map_err(|error| BenchError::Setup(format!("seed {seed}, step {number}: {error}")))?;
        summary.add(&step, &said.sqlite);
        generator.tell(&said.ours);
        steps.push(step.clone());
        let Some(kind) = said.difference(&step) else { continue };
        drop(engines);
        let round = Round {
            sessions: plan.sessions,
            memory_limit: plan.memory_limit,
            work: &folder,
            time: plan.shrinking,
        };
        let script = shrink(&round, steps, kind).await?;
        summary.difference = Some(Difference { kind, seed, number, description: said.describe(), script });
        return Ok(());
    }
    drop(engines);
    std::fs::remove_dir_all(&folder).ok();
    Ok(())
}
