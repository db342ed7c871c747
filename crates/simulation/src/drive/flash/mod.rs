//! A flash drive, SATA or PCIe, in virtual time: where do its latencies come from, and where its limits?
//!
//! ```text
//!            queue_depth            …_command_nanos                            channels × dies_per_channel
//!   submit ─► waiting ─► admitted ─► controllers ─► write: link ─► buffer ─┐
//!                                         │                  │             ├─► translation ─► dies, channels
//!                                         │            ended ◄ (room)      │     ▲    │
//!                                         └───────► read ──────────────────┘     └────┘ cleaning
//!                                                    ended ◄── link ◄──── sensed, across the channel
//! ```
//!
//! Every box is a station that serves in the order of arrival and holds what it works on until the next one takes it;
//! a discrete-event simulation moves commands along. So bandwidth (link, channels, programming), rates of commands
//! (controllers), gains from depth (dies that sense side by side) and slow writes on a full drive (cleaning occupies
//! the dies) come out of the parts, rather than being put in. See [`FlashParameters`] for the parts and
//! `ftl` for the translation.
//!
//! Invariants
//! - A command ends exactly once. No more than `queue_depth` are in the drive at once; the others wait outside, in
//!   the order of their submission.
//! - A sector is programmed before it leaves the write buffer. Writes wait for room in the buffer, never for anything
//!   that waits for them.
//! - Reads of sectors that were never written or have been trimmed touch no flash: the map answers.

#![allow(clippy::indexing_slicing, reason = "slots and links are numbered by the drive itself")]

mod array;
mod events;
mod ftl;
mod page_cache;
mod parameters;
#[cfg(test)]
mod tests;
mod write_buffer;

use std::collections::VecDeque;

use self::array::{FlashArray, Operation, transfer_nanos};
use self::events::{Event, Events};
use self::ftl::{Ftl, Geometry, Step};
use self::page_cache::{Lookup, PageCache};
pub use self::parameters::FlashParameters;
use self::parameters::SECTOR_BYTES;
use self::write_buffer::WriteBuffer;
use super::{Command, CommandKind, Drive, DriveFigures, Ended, Nanos};

/// Writes cross the link in pieces no larger than this, so that a large one can begin with little room in the buffer.
const WRITE_PIECE_BYTES: u64 = 16 << 10;
/// A page that is not full is programmed when nothing has been written for so long.
const WRITES_PAUSED_NANOS: Nanos = 1_000_000;

/// A model of a flash drive. See the [module documentation](self).
pub struct FlashDrive {
    parameters: FlashParameters,
    capacity_sectors: u32,
    events: Events,
    /// Commands outside the drive.
    waiting: VecDeque<Command>,
    /// Commands inside it, and the free slots.
    slots: Vec<Slot>,
    free_slots: Vec<u32>,
    admitted: usize,
    /// Nothing is admitted while a trim is at work that cannot be queued.
    trimming: bool,
    idle_controllers: u32,
    taken: VecDeque<u32>,
    /// Writes that need room in the buffer: slot and sectors still to be let in.
    incoming: VecDeque<(u32, u64)>,
    /// To the host and from it, or one for both.
    links: [Link; 2],
    buffer: WriteBuffer,
    array: FlashArray,
    ftl: Ftl,
    /// The die after the one that last took a page of the host's.
    next_die: u32,
    cache: PageCache,
    last_write_at: Nanos,
    pause_scheduled: bool,
    ended: VecDeque<Ended>,
    figures: DriveFigures,
    programmed_pages: u64,
}

/// A command in the drive.
struct Slot {
    command: Command,
    first: u32,
    end: u32,
    /// Bytes that have not crossed the link.
    on_this_side: u64,
    /// Bytes read that have not arrived at the controller. Counted only where reads are gathered.
    to_collect: u64,
    /// Sectors written that have arrived, and that have been programmed. The latter only where writes end in flash.
    arrived: u32,
    to_program: u32,
}

#[derive(Default)]
struct Link {
    carries: Option<(u32, u64)>,
    queue: VecDeque<(u32, u64)>,
}

impl FlashDrive {
    /// A drive that was never written to. `seed` decides how sense times vary.
    pub fn new(parameters: FlashParameters, seed: u64) -> Self {
        let geometry = Geometry::of(&parameters);
        let page_bytes = u64::from(geometry.sectors_per_page) * SECTOR_BYTES;
        // Less than this could neither hold a page nor take the next piece of a write while it does.
        let least_buffer = 2 * page_bytes + WRITE_PIECE_BYTES;
        let buffer = (parameters.write_buffer_bytes > 0)
            .then(|| parameters.write_buffer_bytes.max(least_buffer) / SECTOR_BYTES);
        Self {
            capacity_sectors: geometry.logical_sectors,
            events: Events::new(),
            waiting: VecDeque::new(),
            slots: Vec::new(),
            free_slots: Vec::new(),
            admitted: 0,
            trimming: false,
            idle_controllers: parameters.controllers.max(1),
            taken: VecDeque::new(),
            incoming: VecDeque::new(),
            links: Default::default(),
            buffer: WriteBuffer::new(buffer),
            array: FlashArray::new(&parameters, geometry.sectors_per_page, seed),
            ftl: Ftl::new(geometry),
            next_die: 0,
            cache: PageCache::new(parameters.page_cache_pages),
            last_write_at: 0,
            pause_scheduled: false,
            ended: VecDeque::new(),
            figures: DriveFigures::default(),
            programmed_pages: 0,
            parameters,
        }
    }

    pub fn parameters(&self) -> &FlashParameters {
        &self.parameters
    }

    /// Physical over exported capacity, less 1, in whole blocks of every die.
    pub fn over_provisioning(&self) -> f64 {
        let Geometry { dies, blocks_per_die, pages_per_block, sectors_per_page, logical_sectors } =
            *self.ftl.geometry();
        let physical = [dies, blocks_per_die, pages_per_block, sectors_per_page].map(f64::from);
        physical.iter().product::<f64>() / f64::from(logical_sectors) - 1.0
    }

    /// Commands that are inside the drive, no more than its queue depth.
    pub fn queued_commands(&self) -> usize {
        self.admitted
    }

    fn admit(&mut self) {
        while let Some(&command) = self.waiting.front() {
            let alone = command.kind == CommandKind::Trim && !self.parameters.trim_is_queued;
            let full = self.admitted >= self.parameters.queue_depth.max(1);
            if full || self.trimming || (alone && self.admitted > 0) {
                return;
            }
            self.waiting.pop_front();
            self.trimming = alone;
            self.admitted += 1;
            let slot = self.occupy_slot(command);
            self.taken.push_back(slot);
            self.take_commands();
        }
    }

    fn occupy_slot(&mut self, command: Command) -> u32 {
        let sector = |address: u64| (address / SECTOR_BYTES).min(self.capacity_sectors.into()) as u32;
        let first = sector(command.address);
        let end = sector(command.address.saturating_add(command.bytes));
        let bytes = u64::from(end - first) * SECTOR_BYTES;
        let slot = Slot {
            command,
            first,
            end,
            on_this_side: bytes,
            to_collect: bytes,
            arrived: 0,
            to_program: end - first,
        };
        if let Some(free) = self.free_slots.pop() {
            self.slots[free as usize] = slot;
            free
        } else {
            self.slots.push(slot);
            self.slots.len() as u32 - 1
        }
    }

    fn take_commands(&mut self) {
        while self.idle_controllers > 0
            && let Some(slot) = self.taken.pop_front()
        {
            self.idle_controllers -= 1;
            let at = &self.slots[slot as usize];
            let nanos = match at.command.kind {
                CommandKind::Trim => {
                    let range =
                        u128::from(self.parameters.trim_nanos_per_gibibyte) * u128::from(at.on_this_side);
                    let nanos = self.parameters.trim_command_nanos + (range >> 30) as Nanos;
                    self.figures.trim_nanos += nanos;
                    nanos
                }
                CommandKind::Read => self.parameters.read_command_nanos,
                CommandKind::Write | CommandKind::Flush => self.parameters.write_command_nanos,
            };
            self.events.schedule(nanos, Event::CommandTaken(slot));
        }
    }

    fn command_taken(&mut self, slot: u32) {
        self.idle_controllers += 1;
        self.take_commands();
        let Slot { command, first, end, on_this_side: bytes, .. } = self.slots[slot as usize];
        self.figures.count(command.kind, bytes);
        match command.kind {
            CommandKind::Read => self.read(slot, first, end),
            CommandKind::Write => {
                if bytes == 0 {
                    self.end_after(slot, self.parameters.write_latency_nanos);
                } else {
                    self.incoming.push_back((slot, u64::from(end - first)));
                    self.let_in();
                }
            }
            CommandKind::Flush => {
                if self.parameters.power_loss_protection || self.buffer.is_empty() {
                    self.end_after(slot, self.parameters.write_latency_nanos);
                } else {
                    self.buffer.flush(slot);
                    self.end_flushes();
                    self.drain();
                }
            }
            CommandKind::Trim => {
                for sector in first..end {
                    self.buffer.trim(sector);
                    self.ftl.unmap(sector);
                }
                self.clean_woken();
                self.end_after(slot, self.parameters.write_latency_nanos);
            }
        }
    }

    fn end_after(&mut self, slot: u32, nanos: Nanos) {
        self.events.schedule(nanos, Event::CommandEnded(slot));
    }

    fn command_ended(&mut self, slot: u32) {
        let command = self.slots[slot as usize].command;
        self.ended.push_back(Ended { at: self.events.now(), tag: command.tag });
        self.free_slots.push(slot);
        self.admitted -= 1;
        // Nothing else is in the drive while such a trim is.
        self.trimming = false;
        self.admit();
    }

    // Reads.

    fn read(&mut self, slot: u32, first: u32, end: u32) {
        if first == end {
            self.end_after(slot, self.parameters.read_latency_nanos);
            return;
        }
        let whole_pages = self.cache.continues_run(first, end);
        let mut ready_bytes = 0;
        let mut sector = first;
        while sector < end {
            let Some(page) = self.page_in_flash(sector) else {
                ready_bytes += SECTOR_BYTES;
                sector += 1;
                continue;
            };
            let from = sector;
            sector += 1;
            while sector < end && self.page_in_flash(sector) == Some(page) {
                sector += 1;
            }
            let (sectors, wanted_bytes) = (sector - from, u64::from(sector - from) * SECTOR_BYTES);
            let cached = if self.cache.is_used() { self.cache.look_up(page) } else { Lookup::Missing };
            match cached {
                Lookup::Here => ready_bytes += wanted_bytes,
                Lookup::Coming => self.cache.join(page, slot, wanted_bytes),
                Lookup::Missing => self.sense(page, Some(slot), sectors, wanted_bytes, whole_pages),
            }
        }
        if ready_bytes > 0 {
            self.collected(slot, ready_bytes);
        }
        if whole_pages {
            self.read_ahead(end);
        }
    }

    /// The page that has to be sensed for the sector.
    fn page_in_flash(&self, sector: u32) -> Option<u32> {
        let place = self.ftl.lookup(sector)?;
        (!self.buffer.holds(sector)).then(|| self.ftl.geometry().page_of(place))
    }

    fn sense(&mut self, page: u32, slot: Option<u32>, sectors: u32, wanted_bytes: u64, keep: bool) {
        let geometry = self.ftl.geometry();
        let sectors = if keep { geometry.sectors_per_page } else { sectors };
        if keep {
            self.cache.expect(page);
        }
        let operation = Operation::Read { page, slot, sectors, wanted_bytes, keep };
        self.array.push(geometry.die_of_page(page), operation, &mut self.events);
    }

    fn read_ahead(&mut self, from: u32) {
        let ahead = (self.parameters.read_ahead_bytes / SECTOR_BYTES) as u32;
        let mut last = None;
        for sector in from..from.saturating_add(ahead).min(self.capacity_sectors) {
            let page = self.page_in_flash(sector);
            if page != last
                && let Some(page) = page
                && !self.cache.contains(page)
            {
                self.sense(page, None, 0, 0, true);
            }
            last = page;
        }
    }

    /// Bytes of a read have arrived at the controller.
    fn collected(&mut self, slot: u32, bytes: u64) {
        if self.parameters.gathers_reads {
            let at = &mut self.slots[slot as usize];
            at.to_collect -= bytes;
            if at.to_collect == 0 {
                let bytes = at.on_this_side;
                self.send(slot, bytes);
            }
        } else {
            self.send(slot, bytes);
        }
    }

    // The link.

    fn send(&mut self, slot: u32, bytes: u64) {
        let from_host = self.slots[slot as usize].command.kind == CommandKind::Write;
        let link = u32::from(from_host && !self.parameters.half_duplex);
        self.links[link as usize].queue.push_back((slot, bytes));
        self.carry_next(link);
    }

    fn carry_next(&mut self, link: u32) {
        let at = &mut self.links[link as usize];
        if at.carries.is_some() {
            return;
        }
        let Some((slot, bytes)) = at.queue.pop_front() else { return };
        at.carries = Some((slot, bytes));
        let rate = match self.slots[slot as usize].command.kind {
            CommandKind::Write => self.parameters.host_write_bytes_per_second,
            _ => self.parameters.host_read_bytes_per_second,
        };
        self.events.schedule(transfer_nanos(bytes, rate), Event::LinkFree(link));
    }

    fn link_free(&mut self, link: u32) {
        let Some((slot, bytes)) = self.links[link as usize].carries.take() else { return };
        self.carry_next(link);
        let at = &mut self.slots[slot as usize];
        at.on_this_side -= bytes;
        let all_across = at.on_this_side == 0;
        if at.command.kind != CommandKind::Write {
            if all_across {
                self.end_after(slot, self.parameters.read_latency_nanos);
            }
            return;
        }
        let from = at.first + at.arrived;
        let sectors = (bytes / SECTOR_BYTES) as u32;
        at.arrived += sectors;
        for sector in from..from + sectors {
            self.buffer.arrive(sector, slot);
        }
        if self.buffer.ends_in_flash() {
            self.buffer.hurry();
        } else if all_across {
            self.end_after(slot, self.parameters.write_latency_nanos);
        }
        self.drain();
        self.let_in();
        self.last_write_at = self.events.now();
        self.watch_for_pause();
    }

    // Writes.

    /// Lets writes cross the link that the buffer has room for.
    fn let_in(&mut self) {
        while let Some((slot, left)) = self.incoming.front_mut() {
            let sectors = (*left).min(WRITE_PIECE_BYTES / SECTOR_BYTES);
            let was_empty = self.buffer.is_empty();
            if !self.buffer.reserve(sectors) {
                return;
            }
            if was_empty {
                self.array.writes_resume(self.events.now());
            }
            *left -= sectors;
            let (slot, done) = (*slot, *left == 0);
            if done {
                self.incoming.pop_front();
            }
            self.send(slot, sectors * SECTOR_BYTES);
        }
    }

    /// Has pages of the buffer programmed, as long as they fill, and dies take them.
    fn drain(&mut self) {
        let per_page = self.ftl.geometry().sectors_per_page as usize;
        let mut dropped = Vec::new();
        let mut sectors = Vec::new();
        while self.buffer.waiting() >= per_page || self.buffer.is_urgent() {
            let Some(die) = self.die_with_room() else { break };
            let mut entries = Vec::with_capacity(per_page);
            self.buffer.take(per_page, &mut entries, &mut dropped);
            if entries.is_empty() {
                continue;
            }
            sectors.clear();
            sectors.extend(entries.iter().map(|entry| entry.sector));
            if let Some(page) = self.ftl.place(die, &sectors) {
                self.programmed_pages += 1;
                self.cache.forget(page);
            }
            self.next_die = (die + 1) % self.array.dies();
            self.array.push(die, Operation::Program { entries }, &mut self.events);
            self.clean(die);
            self.clean_woken();
        }
        if !dropped.is_empty() {
            dropped.iter().for_each(|entry| self.sector_done(entry.slot));
            self.room_was_made();
        }
    }

    /// The next die in turn that a page can go to.
    fn die_with_room(&self) -> Option<u32> {
        let dies = self.array.dies();
        let from_next = (self.next_die..dies).chain(0..self.next_die);
        from_next.into_iter().find(|&die| self.array.takes_host_page(die) && self.ftl.has_room(die))
    }

    /// A sector that a write brought is in flash, or not needed any more.
    fn sector_done(&mut self, slot: u32) {
        if self.buffer.ends_in_flash() {
            let at = &mut self.slots[slot as usize];
            at.to_program -= 1;
            if at.to_program == 0 {
                self.end_after(slot, self.parameters.write_latency_nanos);
            }
        }
    }

    fn room_was_made(&mut self) {
        if self.buffer.is_empty() {
            self.array.writes_pause(self.events.now());
        }
        self.end_flushes();
        self.let_in();
    }

    fn end_flushes(&mut self) {
        while let Some(slot) = self.buffer.next_flushed() {
            self.end_after(slot, self.parameters.write_latency_nanos);
        }
    }

    fn watch_for_pause(&mut self) {
        // Trimmed sectors take room until then, too.
        if self.buffer.has_entries() && !self.pause_scheduled {
            self.pause_scheduled = true;
            let since = self.events.now() - self.last_write_at;
            self.events.schedule(WRITES_PAUSED_NANOS.saturating_sub(since), Event::WritesPaused);
        }
    }

    fn writes_paused(&mut self) {
        self.pause_scheduled = false;
        if self.events.now() - self.last_write_at >= WRITES_PAUSED_NANOS {
            self.buffer.hurry();
            self.drain();
        } else {
            self.watch_for_pause();
        }
    }

    // Flash.

    fn operation_ended(&mut self, die: u32, operation: Operation) {
        match operation {
            Operation::Read { page, slot, wanted_bytes, keep, .. } => {
                if let Some(slot) = slot {
                    self.collected(slot, wanted_bytes);
                }
                if keep {
                    let mut joined = Vec::new();
                    self.cache.arrive(page, &mut joined);
                    joined.into_iter().for_each(|(slot, bytes)| self.collected(slot, bytes));
                }
            }
            Operation::Program { entries } => {
                for entry in entries {
                    self.buffer.programmed(entry);
                    self.sector_done(entry.slot);
                }
                self.room_was_made();
                self.drain();
            }
            Operation::Collect { .. } | Operation::Move => self.clean(die),
            Operation::Erase { block } => {
                self.ftl.erased(block);
                self.clean(die);
                self.drain();
            }
        }
    }

    /// Gives the die its next step of cleaning, if it has one to do.
    fn clean(&mut self, die: u32) {
        if self.array.is_cleaning(die) {
            return;
        }
        let operation = match self.ftl.clean(die) {
            Some(Step::Sense { sectors }) => Operation::Collect { sectors },
            Some(Step::Program { page }) => {
                self.programmed_pages += 1;
                self.cache.forget(page);
                Operation::Move
            }
            Some(Step::Erase { block }) => Operation::Erase { block },
            None => return,
        };
        self.array.push(die, operation, &mut self.events);
    }

    fn clean_woken(&mut self) {
        while let Some(die) = self.ftl.next_woken() {
            self.clean(die);
        }
    }

    fn run(&mut self, until: Nanos) {
        while let Some(event) = self.events.next(until) {
            match event {
                Event::CommandTaken(slot) => self.command_taken(slot),
                Event::LinkFree(link) => self.link_free(link),
                Event::ChannelFree(channel) => {
                    if let Some((die, operation)) = self.array.channel_free(channel, &mut self.events) {
                        self.operation_ended(die, operation);
                    }
                }
                Event::DieReady(die) => {
                    if let Some((die, operation)) = self.array.die_ready(die, &mut self.events) {
                        self.operation_ended(die, operation);
                    }
                }
                Event::CommandEnded(slot) => self.command_ended(slot),
                Event::WritesPaused => self.writes_paused(),
            }
        }
        self.events.pass(until);
    }
}

impl Drive for FlashDrive {
    fn capacity_bytes(&self) -> u64 {
        u64::from(self.capacity_sectors) * SECTOR_BYTES
    }

    fn submit(&mut self, now: Nanos, command: Command) {
        self.run(now);
        self.waiting.push_back(command);
        self.admit();
    }

    fn next_event(&self) -> Option<Nanos> {
        self.ended.front().map(|ended| ended.at).or_else(|| self.events.next_at())
    }

    fn advance(&mut self, until: Nanos, ended: &mut Vec<Ended>) {
        self.run(until);
        ended.extend(self.ended.drain(..));
    }

    fn fill(&mut self) {
        self.ftl.fill();
    }

    fn figures(&self) -> DriveFigures {
        let page_bytes = u64::from(self.ftl.geometry().sectors_per_page) * SECTOR_BYTES;
        DriveFigures {
            flash_bytes_written: self.programmed_pages * page_bytes,
            moved_bytes: self.ftl.moved_sectors * SECTOR_BYTES,
            erases: self.ftl.erases,
            most_erases_of_a_block: self.ftl.most_erases.into(),
            ..self.figures.clone()
        }
    }
}
