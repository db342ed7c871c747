//! A flash drive: controllers, links, a write buffer, channels, dies, and a translation layer that cleans up.
//!
//! ```text
//!            waiting      controllers       link to the host            channels     dies
//!   submit ─► in order ─► first come,  ┌──────────────◄──────────────────◄────────── sense
//!             of arrival  first served ┤                 └ page cache                  ▲
//!             │        ▲               └► waits for ─► link ─► write ─►──►─────────► program, erase
//!             └ at most│                  room                 buffer                  ▲   │
//!               queue_depth                 ▲                                          │   ▼
//!               from here                   └───────────────── room ◄──────────────── cleaning
//! ```
//!
//! The parts and what limits them are those of Agrawal et al., "Design Tradeoffs for SSD Performance" (USENIX ATC
//! 2008). [`ftl`] knows where sectors lie and what is to be cleaned, [`dies`] how long flash takes, [`buffer`] what the
//! host wrote and flash has not, [`cache`] what has been sensed for runs of reads; here is the way of a command through
//! them.
//!
//! Invariants
//! - Controllers, links, channels and dies serve in the order of arrival. Latencies occupy nothing.
//! - A die has at most one page of the host's and one step of cleaning to do at a time, so that the two take turns. It
//!   gets the next page when the last one has been programmed; dies wait for pages in a queue.
//! - A page of the host's is programmed when it is full, when a flush waits for it, when nothing has been written for
//!   [`WRITE_PAUSE_NANOS`], or when writes wait for room that nothing else would give.
//! - A trim that is not queued is alone inside.
//!
//! Left out: errors and wear that ends in them, suspending a program for a read, what the mapping costs when it does
//! not fit into memory, moving one-bit pages to their final place, cleaning while nothing else is to be done.

#![allow(clippy::indexing_slicing, reason = "slots, links and dies are named only by what was given their number here")]

mod buffer;
mod cache;
mod dies;
mod events;
mod ftl;
mod parameters;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ops::Range;

use self::buffer::{Entry, WriteBuffer};
use self::cache::{Found, PageCache, Part};
use self::dies::{Dies, Operation, Reader, transfer_nanos};
use self::events::{Event, Events};
use self::ftl::{Ftl, Geometry, LEAST_SPARE_BLOCKS, NOWHERE, Step};
pub use self::parameters::FlashParameters;
use self::parameters::SECTOR_BYTES;
use super::{Command, CommandKind, Drive, DriveFigures, Ended, Nanos};

/// A partly filled page is programmed when nothing has been written for so long.
const WRITE_PAUSE_NANOS: Nanos = 1_000_000;
/// Writes cross the link in pieces of at most so many sectors, each of which needs room in the buffer.
const PIECE_SECTORS: u32 = 16;
/// How far down the queue of dies one is looked for that has nothing else to do.
const DIES_LOOKED_AT: usize = 8;

const TO_HOST: u32 = 0;

/// A model of a flash drive. See the [module documentation](self).
pub struct FlashDrive {
    parameters: FlashParameters,
    events: Events,
    ftl: Ftl,
    dies: Dies,
    /// What each die has to do, beyond what [`Dies`] knows.
    tasks: Vec<DieTasks>,
    /// Dies that wait for a page of the host's.
    ready: VecDeque<u32>,
    /// One if both directions share it.
    links: Vec<Link>,
    /// When each controller has dealt with the commands it has been given.
    controllers: Vec<Nanos>,
    /// Not yet known to the drive.
    waiting: VecDeque<Accepted>,
    /// Commands the drive knows of, by number of slot.
    slots: Vec<Slot>,
    free_slots: Vec<u32>,
    /// Commands known and not ended.
    inside: usize,
    /// A trim that nothing may overtake is among them.
    exclusive: bool,
    /// Writes that have not wholly been given to the link, in order.
    incoming: VecDeque<u32>,
    buffer: WriteBuffer,
    /// Flushes that wait, in order, and the epochs they wait for.
    flushes: VecDeque<(u64, u32)>,
    cache: PageCache,
    burst: Burst,
    pages_being_programmed: u32,
    last_arrival_at: Nanos,
    pause_watched: bool,
    /// All that is buffered goes to flash, in full pages or not.
    emptying: bool,
    programmed_sectors: u64,
    figures: DriveFigures,
    ended: Vec<Ended>,
    /// Lists that keep their memory.
    pages: Vec<u32>,
    parts: Vec<Part>,
    sectors: Vec<u32>,
}

/// A command with the sectors it names, and what had been written before.
#[derive(Debug, Clone, Copy)]
struct Accepted {
    command: Command,
    first: u32,
    end: u32,
    epoch: u64,
}

struct Slot {
    accepted: Accepted,
    /// The first sector that has not been given to the link.
    next: u32,
    /// Parts of a read that have not been collected or have not crossed the link; sectors of a write that have not
    /// arrived, or not been programmed if that is what it waits for.
    left: u32,
}

#[derive(Default)]
struct DieTasks {
    /// What is being programmed for the host.
    batch: Vec<Entry>,
    cleaning: bool,
    /// Would take a page if it had room.
    crowded: bool,
}

#[derive(Default)]
struct Link {
    free_at: Nanos,
    crossing: VecDeque<Piece>,
}

/// Part of a command's data.
#[derive(Debug, Clone, Copy)]
struct Piece {
    slot: u32,
    first: u32,
    sectors: u32,
}

/// How much may still be programmed fast.
struct Burst {
    bytes: u64,
    /// Since when nothing is to be written.
    idle_since: Option<Nanos>,
}

impl FlashDrive {
    /// `seed` decides how sense times vary.
    pub fn new(parameters: FlashParameters, seed: u64) -> Self {
        let geometry = geometry(&parameters);
        let logical_sectors = geometry.logical_sectors;
        let mut buffer_sectors = (parameters.write_buffer_bytes / SECTOR_BYTES).min(u64::from(u32::MAX)) as u32;
        if parameters.write_buffer_bytes > 0 {
            buffer_sectors = buffer_sectors.max(geometry.sectors_per_page);
        }
        let read_ahead_sectors = (parameters.read_ahead_bytes / SECTOR_BYTES).min(u64::from(u32::MAX)) as u32;
        let links = if parameters.half_duplex { 1 } else { 2 };
        Self {
            events: Events::new(),
            ftl: Ftl::new(geometry),
            dies: Dies::new(&parameters, geometry.dies, seed),
            tasks: (0..geometry.dies).map(|_| DieTasks::default()).collect(),
            ready: (0..geometry.dies).collect(),
            links: (0..links).map(|_| Link::default()).collect(),
            controllers: vec![0; parameters.controllers.max(1) as usize],
            waiting: VecDeque::new(),
            slots: Vec::new(),
            free_slots: Vec::new(),
            inside: 0,
            exclusive: false,
            incoming: VecDeque::new(),
            buffer: WriteBuffer::new(buffer_sectors, logical_sectors),
            flushes: VecDeque::new(),
            cache: PageCache::new(parameters.page_cache_pages, read_ahead_sectors),
            burst: Burst { bytes: parameters.burst_bytes, idle_since: None },
            pages_being_programmed: 0,
            last_arrival_at: 0,
            pause_watched: false,
            emptying: false,
            programmed_sectors: 0,
            figures: DriveFigures::default(),
            ended: Vec::new(),
            pages: Vec::new(),
            parts: Vec::new(),
            sectors: Vec::new(),
            parameters,
        }
    }

    pub fn parameters(&self) -> &FlashParameters {
        &self.parameters
    }

    /// Physical over exported capacity, less 1, after rounding to whole blocks and seeing to it that every die has
    /// enough of them.
    pub fn over_provisioning(&self) -> f64 {
        let Geometry { dies, blocks_per_die, pages_per_block, sectors_per_page, logical_sectors } = *self.ftl.geometry();
        let sectors_per_die = u64::from(blocks_per_die) * u64::from(pages_per_block) * u64::from(sectors_per_page);
        (u64::from(dies) * sectors_per_die) as f64 / f64::from(logical_sectors) - 1.0
    }

    fn run(&mut self, until: Nanos) {
        while let Some(event) = self.events.next(until) {
            match event {
                Event::CommandTaken(slot) => self.taken(slot),
                Event::LinkFree(link) => self.crossed(link),
                Event::ChannelFree(channel) => {
                    if let Some((die, operation)) = self.dies.channel_free(channel, &mut self.events) {
                        self.finished(die, operation);
                    }
                }
                Event::DieReady(die) => {
                    if let Some(operation) = self.dies.die_ready(die, &mut self.events) {
                        self.finished(die, operation);
                    }
                }
                Event::CommandEnded(slot) => self.command_ended(slot),
                Event::WritesPaused => self.writes_paused(),
            }
        }
        self.events.pass(until);
    }

    /// Lets waiting commands in, as far as the queue has room.
    fn admit(&mut self) {
        while self.inside < self.parameters.queue_depth.max(1) && !self.exclusive {
            let Some(accepted) = self.waiting.front() else { break };
            let alone = accepted.command.kind == CommandKind::Trim && !self.parameters.trim_is_queued;
            if alone && self.inside > 0 {
                break;
            }
            let Some(accepted) = self.waiting.pop_front() else { break };
            self.exclusive = alone;
            self.inside += 1;
            let mut nanos = self.parameters.command_nanos;
            if accepted.command.kind == CommandKind::Trim {
                let trim_nanos = self.trim_nanos(accepted.command.bytes);
                self.figures.trim_nanos += trim_nanos;
                nanos += trim_nanos;
            }
            let slot = self.occupy_slot(Slot { accepted, next: accepted.first, left: 0 });
            let now = self.events.now();
            if let Some(controller) = self.controllers.iter_mut().min() {
                *controller = now.max(*controller) + nanos;
                self.events.schedule(*controller - now, Event::CommandTaken(slot));
            }
        }
    }

    fn trim_nanos(&self, bytes: u64) -> Nanos {
        let for_range = u128::from(self.parameters.trim_nanos_per_gibibyte) * u128::from(bytes) >> 30;
        self.parameters.trim_command_nanos + for_range as Nanos
    }

    fn occupy_slot(&mut self, slot: Slot) -> u32 {
        if let Some(number) = self.free_slots.pop() {
            self.slots[number as usize] = slot;
            return number;
        }
        self.slots.push(slot);
        self.slots.len() as u32 - 1
    }

    fn taken(&mut self, slot: u32) {
        let Accepted { command, first, end, epoch } = self.slots[slot as usize].accepted;
        match command.kind {
            CommandKind::Read if first < end => self.read(slot, first..end),
            CommandKind::Read => self.end_after(self.parameters.read_latency_nanos, slot),
            CommandKind::Write => {
                self.slots[slot as usize].left = end - first;
                self.incoming.push_back(slot);
                self.let_writes_in();
            }
            CommandKind::Flush if self.parameters.power_loss_protection => self.end_modification(slot),
            CommandKind::Flush => {
                self.flushes.push_back((epoch, slot));
                self.end_flushes();
                self.drain();
            }
            CommandKind::Trim => {
                self.trim(first..end);
                self.end_modification(slot);
            }
        }
    }

    fn end_modification(&mut self, slot: u32) {
        self.end_after(self.parameters.write_latency_nanos, slot);
    }

    fn end_after(&mut self, nanos: Nanos, slot: u32) {
        self.events.schedule(nanos, Event::CommandEnded(slot));
    }

    fn command_ended(&mut self, slot: u32) {
        let command = self.slots[slot as usize].accepted.command;
        self.ended.push(Ended { at: self.events.now(), tag: command.tag });
        self.free_slots.push(slot);
        self.inside -= 1;
        if command.kind == CommandKind::Trim {
            self.exclusive = false;
        }
        self.admit();
    }
}

/// Reading.
impl FlashDrive {
    fn read(&mut self, slot: u32, sectors: Range<u32>) {
        let geometry = *self.ftl.geometry();
        let ahead = self.cache.follow(sectors.start, sectors.end, geometry.logical_sectors);
        let mut pages = std::mem::take(&mut self.pages);
        pages.clear();
        let mut at_once = 0;
        for sector in sectors {
            match self.ftl.lookup(sector) {
                Some(place) if !self.buffer.holds(sector) => pages.push(geometry.page_of(place)),
                _ => at_once += 1,
            }
        }
        pages.sort_unstable();
        // One more than there are parts, so that it does not end on the way.
        self.slots[slot as usize].left = 1;
        if at_once > 0 {
            self.slots[slot as usize].left += 1;
            self.collected(Part { slot, sectors: at_once });
        }
        for same in pages.chunk_by(|one, other| one == other) {
            if let Some(&page) = same.first() {
                self.slots[slot as usize].left += 1;
                self.read_page(page, Part { slot, sectors: same.len() as u32 }, ahead.is_some());
            }
        }
        self.pages = pages;
        self.part_done(slot);
        if let Some(ahead) = ahead {
            self.read_ahead(ahead);
        }
    }

    fn read_page(&mut self, page: u32, part: Part, run: bool) {
        let Geometry { sectors_per_page, .. } = *self.ftl.geometry();
        match self.cache.find(page, part) {
            Found::Here => self.collected(part),
            Found::Soon => {}
            Found::Absent => {
                if run && part.sectors < sectors_per_page && self.cache.expect(page, Some(part)) {
                    self.sense(page, Reader::Cache(page), sectors_per_page);
                } else {
                    self.sense(page, Reader::Command(part.slot), part.sectors);
                }
            }
        }
    }

    fn read_ahead(&mut self, sectors: Range<u32>) {
        let Geometry { sectors_per_page, .. } = *self.ftl.geometry();
        let mut last = NOWHERE;
        for sector in sectors {
            let Some(place) = self.ftl.lookup(sector) else { continue };
            let page = self.ftl.geometry().page_of(place);
            if page == last || self.buffer.holds(sector) || self.cache.contains(page) {
                continue;
            }
            last = page;
            if self.cache.expect(page, None) {
                self.sense(page, Reader::Cache(page), sectors_per_page);
            }
        }
    }

    fn sense(&mut self, page: u32, reader: Reader, sectors: u32) {
        let die = self.ftl.geometry().die_of_page(page);
        self.dies.push(die, Operation::Read { reader, sectors }, &mut self.events);
    }

    fn sensed(&mut self, reader: Reader, sectors: u32) {
        match reader {
            Reader::Command(slot) => self.collected(Part { slot, sectors }),
            Reader::Cache(page) => {
                let mut parts = std::mem::take(&mut self.parts);
                self.cache.sensed(page, &mut parts);
                for part in parts.drain(..) {
                    self.collected(part);
                }
                self.parts = parts;
            }
        }
    }

    /// Part of a read is with the controller.
    fn collected(&mut self, Part { slot, sectors }: Part) {
        if self.parameters.gathers_reads {
            self.part_done(slot);
        } else {
            self.to_host(Piece { slot, first: 0, sectors });
        }
    }

    fn to_host(&mut self, piece: Piece) {
        self.cross(TO_HOST, piece, self.parameters.host_read_bytes_per_second);
    }

    /// Part of a read has been collected or, if it is not gathered, has crossed the link.
    fn part_done(&mut self, slot: u32) {
        let done = &mut self.slots[slot as usize];
        done.left -= 1;
        if done.left > 0 {
            return;
        }
        let sectors = done.accepted.end - done.next;
        if self.parameters.gathers_reads && sectors > 0 {
            done.next = done.accepted.end;
            done.left = 1;
            self.to_host(Piece { slot, first: 0, sectors });
        } else {
            self.end_after(self.parameters.read_latency_nanos, slot);
        }
    }
}

/// The links.
impl FlashDrive {
    fn cross(&mut self, link: u32, piece: Piece, bytes_per_second: u64) {
        let now = self.events.now();
        let nanos = transfer_nanos(u64::from(piece.sectors) * SECTOR_BYTES, bytes_per_second);
        let crossed = &mut self.links[link as usize];
        crossed.free_at = crossed.free_at.max(now) + nanos;
        crossed.crossing.push_back(piece);
        self.events.schedule(crossed.free_at - now, Event::LinkFree(link));
    }

    fn crossed(&mut self, link: u32) {
        let Some(piece) = self.links[link as usize].crossing.pop_front() else { return };
        if self.slots[piece.slot as usize].accepted.command.kind == CommandKind::Read {
            self.part_done(piece.slot);
        } else {
            self.arrived(piece);
        }
    }
}
