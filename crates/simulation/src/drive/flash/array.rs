//! Dies and the channels they hang on.
//!
//! ```text
//!   channel ═╦═ die: [operation] ◄─ queue       read:     sense, then cross the channel
//!            ╠═ die: [operation] ◄─ queue       program:  cross the channel, then program
//!            ╚═ die: [operation] ◄─ queue       erase
//! ```
//!
//! Invariants
//! - A die does one operation at a time, and is occupied until its data has crossed the channel. Operations begin in
//!   the order in which they came.
//! - A channel carries one transfer at a time, in the order in which dies asked for it.
//! - Nothing is reserved ahead: a die asks for the channel when it has sensed.

#![allow(clippy::indexing_slicing, reason = "dies and channels are numbered by the array itself")]

use std::collections::VecDeque;

use super::events::{Event, Events};
use super::parameters::{FlashParameters, SECTOR_BYTES};
use super::write_buffer::Entry;
use crate::drive::Nanos;

/// Host pages that queue at one die. More wait in the buffer, where any die that gets ready can take them.
const HOST_PROGRAMS_PER_DIE: u32 = 2;

#[derive(Debug)]
pub(super) enum Operation {
    /// Sense a page for the command in `slot`, or ahead of any, and send some of it to the controller.
    Read {
        page: u32,
        slot: Option<u32>,
        sectors: u32,
        wanted_bytes: u64,
        keep: bool,
    },
    /// Program a page of sectors from the buffer.
    Program {
        entries: Vec<Entry>,
    },
    /// Sense a page and send its valid sectors to the controller, to be moved.
    Collect {
        sectors: u32,
    },
    /// Program a page of moved sectors.
    Move,
    Erase {
        block: u32,
    },
}

struct Die {
    current: Option<Operation>,
    queue: VecDeque<Operation>,
    host_programs: u32,
    /// Whether it has an operation for cleaning.
    cleaning: bool,
}

#[derive(Default)]
struct Channel {
    carries: Option<u32>,
    queue: VecDeque<u32>,
}

pub(super) struct FlashArray {
    dies: Vec<Die>,
    channels: Vec<Channel>,
    page_bytes: u64,
    channel_bytes_per_second: u64,
    read_nanos: Nanos,
    program_nanos: Nanos,
    erase_nanos: Nanos,
    jitter: f64,
    random: u64,
    burst: Burst,
}

/// Flash that is programmed in one-bit mode, and so faster, while there is some left.
struct Burst {
    program_nanos: Nanos,
    bytes: u64,
    bytes_left: u64,
    recovery_bytes_per_second: u64,
    idle_since: Nanos,
}

/// Time that bytes take at a rate.
pub(super) fn transfer_nanos(bytes: u64, bytes_per_second: u64) -> Nanos {
    (u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second.max(1))) as Nanos
}

impl FlashArray {
    pub(super) fn new(parameters: &FlashParameters, sectors_per_page: u32, seed: u64) -> Self {
        let channels = parameters.channels.max(1);
        let dies = channels * parameters.dies_per_channel.max(1);
        let die = || Die { current: None, queue: VecDeque::new(), host_programs: 0, cleaning: false };
        Self {
            dies: (0..dies).map(|_| die()).collect(),
            channels: (0..channels).map(|_| Channel::default()).collect(),
            page_bytes: u64::from(sectors_per_page) * SECTOR_BYTES,
            channel_bytes_per_second: parameters.channel_bytes_per_second,
            read_nanos: parameters.read_nanos,
            program_nanos: parameters.program_nanos,
            erase_nanos: parameters.erase_nanos,
            jitter: parameters.jitter.clamp(0.0, 1.0),
            random: seed,
            burst: Burst {
                program_nanos: parameters.burst_program_nanos,
                bytes: parameters.burst_bytes,
                bytes_left: parameters.burst_bytes,
                recovery_bytes_per_second: parameters.burst_recovery_bytes_per_second,
                idle_since: 0,
            },
        }
    }

    pub(super) fn dies(&self) -> u32 {
        self.dies.len() as u32
    }

    /// Whether the die has few enough pages of the host's before it to be given another.
    pub(super) fn takes_host_page(&self, die: u32) -> bool {
        self.dies[die as usize].host_programs < HOST_PROGRAMS_PER_DIE
    }

    pub(super) fn is_cleaning(&self, die: u32) -> bool {
        self.dies[die as usize].cleaning
    }

    /// The host stops writing for a while.
    pub(super) fn writes_pause(&mut self, now: Nanos) {
        self.burst.idle_since = now;
    }

    /// The host goes on writing.
    pub(super) fn writes_resume(&mut self, now: Nanos) {
        let burst = &mut self.burst;
        let idle = u128::from(now - burst.idle_since);
        let recovered = idle * u128::from(burst.recovery_bytes_per_second) / 1_000_000_000;
        burst.bytes_left = burst.bytes.min(burst.bytes_left.saturating_add(recovered as u64));
    }

    /// Queues an operation at a die.
    pub(super) fn push(&mut self, die: u32, operation: Operation, events: &mut Events) {
        let at = &mut self.dies[die as usize];
        match operation {
            Operation::Program { .. } => at.host_programs += 1,
            Operation::Collect { .. } | Operation::Move | Operation::Erase { .. } => at.cleaning = true,
            Operation::Read { .. } => {}
        }
        at.queue.push_back(operation);
        if at.current.is_none() {
            self.begin_next(die, events);
        }
    }

    fn begin_next(&mut self, die: u32, events: &mut Events) {
        let at = &mut self.dies[die as usize];
        let Some(operation) = at.queue.pop_front() else { return };
        let program = matches!(operation, Operation::Program { .. } | Operation::Move);
        let erase = matches!(operation, Operation::Erase { .. });
        at.current = Some(operation);
        if program {
            self.ask_channel(die, events);
        } else {
            let nanos = if erase { self.erase_nanos } else { self.sense_nanos() };
            events.schedule(nanos, Event::DieReady(die));
        }
    }

    fn sense_nanos(&mut self) -> Nanos {
        // SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^= bits >> 31;
        let unit = (bits >> 11) as f64 / (1_u64 << 53) as f64;
        (self.read_nanos as f64 * (1.0 + self.jitter * (2.0 * unit - 1.0))) as Nanos
    }

    fn ask_channel(&mut self, die: u32, events: &mut Events) {
        // Neighbouring dies hang on different channels: data striped over dies are striped over channels.
        let channel = die % self.channels.len() as u32;
        self.channels[channel as usize].queue.push_back(die);
        self.carry_next(channel, events);
    }

    fn carry_next(&mut self, channel: u32, events: &mut Events) {
        let at = &mut self.channels[channel as usize];
        if at.carries.is_some() {
            return;
        }
        let Some(die) = at.queue.pop_front() else { return };
        at.carries = Some(die);
        let bytes = match &self.dies[die as usize].current {
            Some(Operation::Read { sectors, .. } | Operation::Collect { sectors }) => {
                u64::from(*sectors) * SECTOR_BYTES
            }
            _ => self.page_bytes,
        };
        events.schedule(transfer_nanos(bytes, self.channel_bytes_per_second), Event::ChannelFree(channel));
    }

    /// The transfer on the channel has ended: the operation that ends with it, and its die.
    pub(super) fn channel_free(&mut self, channel: u32, events: &mut Events) -> Option<(u32, Operation)> {
        let die = self.channels[channel as usize].carries.take()?;
        self.carry_next(channel, events);
        let page_bytes = self.page_bytes;
        match &self.dies[die as usize].current {
            Some(Operation::Program { .. }) => {
                let burst = &mut self.burst;
                let fast = burst.bytes_left >= page_bytes;
                burst.bytes_left -= if fast { page_bytes } else { 0 };
                let nanos = if fast { burst.program_nanos } else { self.program_nanos };
                events.schedule(nanos, Event::DieReady(die));
                None
            }
            Some(Operation::Move) => {
                events.schedule(self.program_nanos, Event::DieReady(die));
                None
            }
            _ => self.end(die, events),
        }
    }

    /// The die has sensed, programmed or erased: an operation that has ended with that.
    pub(super) fn die_ready(&mut self, die: u32, events: &mut Events) -> Option<(u32, Operation)> {
        match &self.dies[die as usize].current {
            Some(Operation::Read { .. } | Operation::Collect { .. }) => {
                self.ask_channel(die, events);
                None
            }
            _ => self.end(die, events),
        }
    }

    fn end(&mut self, die: u32, events: &mut Events) -> Option<(u32, Operation)> {
        let at = &mut self.dies[die as usize];
        let ended = at.current.take()?;
        match ended {
            Operation::Program { .. } => at.host_programs -= 1,
            Operation::Collect { .. } | Operation::Move | Operation::Erase { .. } => at.cleaning = false,
            Operation::Read { .. } => {}
        }
        self.begin_next(die, events);
        Some((die, ended))
    }
}
