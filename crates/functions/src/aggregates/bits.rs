//! `bit_and`, `bit_or` and `bit_xor` of strings of bits, which have one length in a group.

use std::mem::size_of;

use arrow::array::{ArrayRef, AsArray as _};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::EmitTo;

use super::{States, state_of};
use crate::casts::bits::lists;

/// How two bits are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    And,
    Or,
    Xor,
}

impl Operation {
    fn of(self, a: bool, b: bool) -> bool {
        match self {
            Operation::And => a & b,
            Operation::Or => a | b,
            Operation::Xor => a ^ b,
        }
    }
}

#[derive(Debug)]
pub(super) struct Bits {
    operation: Operation,
    /// The bits of each group so far; none before the first value.
    groups: Vec<Option<Vec<bool>>>,
}

impl Bits {
    pub(super) fn new(operation: Operation) -> Self {
        Bits { operation, groups: Vec::new() }
    }
}

impl States for Bits {
    fn empty(&self) -> Box<dyn States> {
        Box::new(Bits::new(self.operation))
    }

    fn grow(&mut self, groups: usize) {
        self.groups.resize(groups.max(self.groups.len()), None);
    }

    fn update(&mut self, values: &[ArrayRef], groups: &mut dyn Iterator<Item = Option<usize>>) -> Result<()> {
        let Some(strings) = values.first() else { return exec_err!("strings of bits are missing") };
        let operation = self.operation;
        for (bits, group) in strings.as_list::<i32>().iter().zip(groups) {
            let (Some(bits), Some(group)) = (bits, group) else { continue };
            let bits = bits.as_boolean().values().iter();
            match state_of(&mut self.groups, group)? {
                state @ None => *state = Some(bits.collect()),
                Some(state) if state.len() == bits.len() => {
                    state.iter_mut().zip(bits).for_each(|(bit, other)| *bit = operation.of(*bit, other));
                }
                Some(state) => {
                    return exec_err!(
                        "strings of {} and {} bits cannot be combined",
                        state.len(),
                        bits.len()
                    );
                }
            }
        }
        Ok(())
    }

    fn merge(&mut self, states: &[ArrayRef], groups: &mut dyn Iterator<Item = Option<usize>>) -> Result<()> {
        self.update(states, groups)
    }

    fn split(&mut self, emit: EmitTo) -> Box<dyn States> {
        Box::new(Bits { operation: self.operation, groups: emit.take_needed(&mut self.groups) })
    }

    fn states(&self) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.results()?])
    }

    fn results(&self) -> Result<ArrayRef> {
        lists(self.groups.iter().map(|bits| bits.as_ref().map(|bits| bits.iter().copied())))
    }

    fn size(&self) -> usize {
        let bits = self.groups.iter().flatten().map(Vec::capacity).sum::<usize>();
        self.groups.capacity() * size_of::<Option<Vec<bool>>>() + bits
    }
}
