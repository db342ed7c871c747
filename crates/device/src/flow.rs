//! Whom a request belongs to, and how urgent it is: what the governor shares a device by.

use std::sync::atomic::{AtomicU64, Ordering};

/// Requests that share a device fairly with others: those of one query. See [`crate::governor`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FlowId(u64);

impl FlowId {
    /// A unique one. The default is that of requests without an account.
    pub fn unique() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// How urgent requests are, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub enum Priority {
    /// A thread or task waits for this very request: point reads, commits.
    Point,
    /// Part of a longer piece of work.
    #[default]
    Scan,
    /// Nothing waits for it.
    Background,
}

/// What an operation holds while it is at the device.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct IoSlot {
    pub(crate) cost: u64,
    pub(crate) flow: FlowId,
    pub(crate) priority: Priority,
}
