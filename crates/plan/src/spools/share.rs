//! Leaves one of the copies of a plan that is read several times.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::{Result, internal_err};
use datafusion::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::{ExecutionPlan, displayable, replace_children_if_necessary};
use nandina_exec::spool::{SpoolExec, SpoolReadExec};

use super::volatile;

/// Lets the first of equal spools compute, and the others read from it. One that stands alone goes.
///
/// Spools are equal if their numbers are and all rules have made the same of them, which they do unless a rule looks
/// past a spool at the nodes above it.
#[derive(Debug)]
pub struct ShareSpools;

impl PhysicalOptimizerRule for ShareSpools {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut readers = HashMap::new();
        count_readers(&plan, &mut readers);
        if readers.is_empty() {
            return Ok(plan);
        }
        Sharing { readers, spools: HashMap::new() }.share(plan)
    }

    fn name(&self) -> &str {
        "share_spools"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The number of a spool, and what has become of its input unless it has to be computed once.
type Key = (usize, String);

fn key(spool: &SpoolExec) -> Key {
    if spool.number() >= volatile::FIRST_NUMBER {
        return (spool.number(), String::new());
    }
    (spool.number(), displayable(spool.input().as_ref()).indent(true).to_string())
}

/// Counts equal spools. Spools inside those that will be dropped do not count.
fn count_readers(plan: &Arc<dyn ExecutionPlan>, readers: &mut HashMap<Key, usize>) {
    if let Some(spool) = plan.downcast_ref::<SpoolExec>() {
        let count = readers.entry(key(spool)).or_default();
        *count += 1;
        if *count > 1 {
            return;
        }
    }
    plan.children().into_iter().for_each(|child| count_readers(child, readers));
}

/// Replaces the operators of a plan whose spools are shared, from the inputs up. Readers follow the spool that computes
/// for them: what replaced a spool alone would leave them with the old one, and its input would run twice. What `replace`
/// makes of a spool stands above it, if it is another operator.
pub(crate) fn replace_operators(
    plan: Arc<dyn ExecutionPlan>,
    replace: &mut impl FnMut(Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    Replacing { replace, spools: Vec::new() }.replace(plan)
}

struct Replacing<'a, F> {
    replace: &'a mut F,
    /// Spools as they were, and as they are.
    spools: Vec<(Arc<dyn ExecutionPlan>, Arc<SpoolExec>)>,
}

impl<F: FnMut(Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>> Replacing<'_, F> {
    fn replace(&mut self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(reader) = plan.downcast_ref::<SpoolReadExec>() {
            let is_read = |(old, _): &&(Arc<dyn ExecutionPlan>, _)| {
                old.downcast_ref::<SpoolExec>().is_some_and(|old| std::ptr::eq(old, reader.spool().as_ref()))
            };
            let Some((_, spool)) = self.spools.iter().find(is_read) else {
                return internal_err!("a reader stands before spool {}", reader.spool().number());
            };
            return (self.replace)(Arc::new(SpoolReadExec::new(Arc::clone(spool), reader.reader())));
        }
        if let Some(old) = plan.downcast_ref::<SpoolExec>() {
            let input = self.replace(Arc::clone(old.input()))?;
            let spool = Arc::new(SpoolExec::with_readers(old.number(), input, old.readers())?);
            self.spools.push((plan, Arc::clone(&spool)));
            return (self.replace)(spool);
        }
        let children = plan.children().into_iter().map(|child| self.replace(Arc::clone(child)));
        let children = children.collect::<Result<Vec<_>>>()?;
        (self.replace)(replace_children_if_necessary(plan, children)?)
    }
}

struct Sharing {
    readers: HashMap<Key, usize>,
    /// Spools that compute, and the readers that each has so far.
    spools: HashMap<Key, (Arc<SpoolExec>, usize)>,
}

impl Sharing {
    fn share(&mut self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(spool) = plan.downcast_ref::<SpoolExec>() else {
            let children = plan.children().into_iter().map(|child| self.share(Arc::clone(child)));
            let children = children.collect::<Result<Vec<_>>>()?;
            return replace_children_if_necessary(plan, children);
        };
        let key = key(spool);
        if let Some((computing, readers)) = self.spools.get_mut(&key) {
            *readers += 1;
            return Ok(Arc::new(SpoolReadExec::new(Arc::clone(computing), *readers - 1)));
        }
        let input = self.share(Arc::clone(spool.input()))?;
        match self.readers.get(&key) {
            Some(&readers) if readers > 1 => {
                let computing = Arc::new(SpoolExec::with_readers(spool.number(), input, readers)?);
                self.spools.insert(key, (Arc::clone(&computing), 1));
                Ok(computing)
            }
            _ => Ok(input),
        }
    }
}
