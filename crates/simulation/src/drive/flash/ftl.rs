//! A page-mapped flash translation layer: which sector lies where, and which block to clean next.
//!
//! Flash can be written page by page but only erased block by block. So a sector that is written again goes to a new
//! place, the old one becomes invalid, and blocks with few valid sectors are emptied and erased to have room again.
//!
//! ```text
//!   sector ── map ──► place ── reverse ──► sector          place = (block · pages + page) · sectors + offset
//!
//!   die:  [host frontier] [move frontier] [free: least worn first] [full, in buckets by number of valid sectors]
//!              ▲                ▲                                        │ fewest first
//!           writes              └────────── what is valid ───────────────┘──► erased ──► free
//! ```
//!
//! Cleaning is greedy: the victim is the full block of the die with the fewest valid sectors. Under uniformly random
//! writes and large blocks that costs what cleaning in order of age does (Desnoyers, "Analytic Modeling of SSD Write
//! Performance", SYSTOR 2012; Xiang and Kurkoski, "An Improved Analytic Expression for Write Amplification in NAND
//! Flash", ICNC 2012): with α = physical / logical capacity and W Lambert's function, each sector written causes
//! α / (α + W(−α·e^−α)) to be programmed.
//!
//! Nothing here takes time. The drive asks for one step after the other, and lets each die work for it.
//!
//! Invariants
//! - `map[sector] = place` exactly if `reverse[place] = sector`, and a block's count is the number of its places that
//!   `reverse` fills.
//! - Exactly the full blocks that are not being cleaned are in the bucket of their count.
//! - The last free block of a die is for cleaning only, which therefore always comes to its end: a victim has at least
//!   one invalid sector, and sectors left over from it are moved in one page with those of the next, before which it
//!   is not erased.

#![allow(
    clippy::indexing_slicing,
    reason = "places, blocks and dies are numbers that the tables themselves gave out"
)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::parameters::{FlashParameters, SECTOR_BYTES};

const NOWHERE: u32 = u32::MAX;

/// Free blocks of a die that only cleaning may take.
const RESERVED_BLOCKS: usize = 1;
/// Cleaning starts when fewer blocks of a die are free.
const CLEAN_BELOW: usize = RESERVED_BLOCKS + 2;
/// Spare blocks every die has: two frontiers, the free ones cleaning keeps, one held for sectors left over, and one so
/// that there is something to gain.
const LEAST_SPARE_BLOCKS: u32 = CLEAN_BELOW as u32 + 4;

#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    pub(super) dies: u32,
    pub(super) blocks_per_die: u32,
    pub(super) pages_per_block: u32,
    pub(super) sectors_per_page: u32,
    pub(super) logical_sectors: u32,
}

impl Geometry {
    /// How the drive's capacity divides into dies and blocks.
    pub(super) fn of(parameters: &FlashParameters) -> Self {
        let dies = parameters.channels.max(1) * parameters.dies_per_channel.max(1);
        let pages_per_block = parameters.pages_per_block.max(1);
        let sectors_per_page = (parameters.flash_page_bytes / SECTOR_BYTES).max(1) as u32;
        let block_sectors = u64::from(pages_per_block * sectors_per_page);
        // Places are told apart by 32 bits: some 8 TiB, half of which may be spare.
        let logical_sectors = (parameters.capacity_bytes / SECTOR_BYTES).clamp(1, u64::from(u32::MAX / 2));
        let stripe = block_sectors * u64::from(dies);
        let least_blocks = logical_sectors.div_ceil(stripe) + u64::from(LEAST_SPARE_BLOCKS);
        let wanted_sectors = logical_sectors as f64 * (1.0 + parameters.over_provisioning.clamp(0.0, 0.9));
        let wanted_blocks = (wanted_sectors / stripe as f64).round() as u64;
        Self {
            dies,
            blocks_per_die: wanted_blocks.max(least_blocks) as u32,
            pages_per_block,
            sectors_per_page,
            logical_sectors: logical_sectors as u32,
        }
    }

    fn sectors_per_block(&self) -> u32 {
        self.pages_per_block * self.sectors_per_page
    }

    fn block_of(&self, place: u32) -> u32 {
        place / self.sectors_per_block()
    }

    fn die_of_block(&self, block: u32) -> usize {
        (block / self.blocks_per_die) as usize
    }

    pub(super) fn page_of(&self, place: u32) -> u32 {
        place / self.sectors_per_page
    }

    pub(super) fn die_of_page(&self, page: u32) -> u32 {
        page / (self.pages_per_block * self.blocks_per_die)
    }
}

/// What a die has to do next for cleaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Sense a page and move this many sectors of it to the controller.
    Sense { sectors: u32 },
    /// Program a page of moved sectors.
    Program { page: u32 },
    /// Erase, and say so to [`Ftl::erased`].
    Erase { block: u32 },
}

#[derive(Clone, Copy)]
enum Stream {
    Host,
    Moved,
}

pub(super) struct Ftl {
    geometry: Geometry,
    map: Vec<u32>,
    reverse: Vec<u32>,
    blocks: Vec<Block>,
    dies: Vec<DieSpace>,
    /// Dies that had nothing to gain from cleaning and now have.
    woken: Vec<u32>,
    pub(super) moved_sectors: u64,
    pub(super) erases: u64,
    pub(super) most_erases: u32,
}

#[derive(Clone)]
struct Block {
    valid: u32,
    erases: u32,
    /// Neighbours in the bucket.
    previous: u32,
    next: u32,
    in_bucket: bool,
    erasing: bool,
}

struct DieSpace {
    free: BinaryHeap<Reverse<(u32, u32)>>,
    /// Blocks being filled, by [`Stream`].
    frontiers: [Frontier; 2],
    /// The first full block with that many valid sectors.
    buckets: Vec<u32>,
    /// No bucket below this holds a block.
    fewest: usize,
    victim: Option<Frontier>,
    /// Sectors sensed, and where they lay.
    staged: Vec<(u32, u32)>,
    /// Victims all of whose sectors are moved or staged.
    emptied: Vec<u32>,
    /// Wants to clean, but found only blocks without an invalid sector.
    asleep: bool,
}

/// A block that is gone through from front to back.
#[derive(Clone, Copy)]
struct Frontier {
    block: u32,
    page: u32,
}

const NO_FRONTIER: Frontier = Frontier { block: NOWHERE, page: 0 };

impl Ftl {
    pub(super) fn new(geometry: Geometry) -> Self {
        let blocks = (geometry.dies * geometry.blocks_per_die) as usize;
        let unused =
            Block { valid: 0, erases: 0, previous: NOWHERE, next: NOWHERE, in_bucket: false, erasing: false };
        let mut ftl = Self {
            geometry,
            map: Vec::new(),
            reverse: Vec::new(),
            blocks: vec![unused; blocks],
            dies: Vec::new(),
            woken: Vec::new(),
            moved_sectors: 0,
            erases: 0,
            most_erases: 0,
        };
        ftl.empty();
        ftl
    }

    pub(super) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Forgets every sector. Wear stays.
    fn empty(&mut self) {
        let geometry = self.geometry;
        let places = self.blocks.len() * geometry.sectors_per_block() as usize;
        self.map = vec![NOWHERE; geometry.logical_sectors as usize];
        self.reverse = vec![NOWHERE; places];
        self.woken.clear();
        for block in &mut self.blocks {
            (block.valid, block.in_bucket, block.erasing) = (0, false, false);
        }
        let free = |die: u32| {
            let first = die * geometry.blocks_per_die;
            let of_die = first..first + geometry.blocks_per_die;
            of_die.map(|block| Reverse((self.blocks[block as usize].erases, block))).collect()
        };
        self.dies = (0..geometry.dies)
            .map(|die| DieSpace {
                free: free(die),
                frontiers: [NO_FRONTIER; 2],
                buckets: vec![NOWHERE; geometry.sectors_per_block() as usize + 1],
                fewest: 0,
                victim: None,
                staged: Vec::new(),
                emptied: Vec::new(),
                asleep: false,
            })
            .collect();
    }

    /// As if every sector had just been written once, in order.
    pub(super) fn fill(&mut self) {
        self.empty();
        let (per_page, sectors) = (self.geometry.sectors_per_page, self.geometry.logical_sectors);
        let mut page = Vec::with_capacity(per_page as usize);
        for (number, first) in (0..sectors).step_by(per_page as usize).enumerate() {
            page.clear();
            page.extend(first..(first + per_page).min(sectors));
            self.place(number as u32 % self.geometry.dies, &page);
        }
    }

    pub(super) fn lookup(&self, sector: u32) -> Option<u32> {
        self.map.get(sector as usize).copied().filter(|&place| place != NOWHERE)
    }

    /// Whether a page of the host's has room on the die.
    pub(super) fn has_room(&self, die: u32) -> bool {
        let die = &self.dies[die as usize];
        die.frontiers[Stream::Host as usize].block != NOWHERE || die.free.len() > RESERVED_BLOCKS
    }

    /// Puts sectors, no more than a page holds, into the next page of the die. `None`, and nothing done, if the die
    /// has no room.
    pub(super) fn place(&mut self, die: u32, sectors: &[u32]) -> Option<u32> {
        if !self.has_room(die) {
            return None;
        }
        self.append(die, Stream::Host, sectors.iter().copied())
    }

    fn append(&mut self, die: u32, stream: Stream, sectors: impl Iterator<Item = u32>) -> Option<u32> {
        let space = &mut self.dies[die as usize];
        let frontier = &mut space.frontiers[stream as usize];
        if frontier.block == NOWHERE {
            let Reverse((_, block)) = space.free.pop()?;
            *frontier = Frontier { block, page: 0 };
        }
        let Frontier { block, page } = *frontier;
        frontier.page += 1;
        let full = frontier.page == self.geometry.pages_per_block;
        if full {
            *frontier = NO_FRONTIER;
        }
        let page = block * self.geometry.pages_per_block + page;
        for (place, sector) in (page * self.geometry.sectors_per_page..).zip(sectors) {
            self.unmap(sector);
            self.map[sector as usize] = place;
            self.reverse[place as usize] = sector;
            self.blocks[block as usize].valid += 1;
        }
        if full {
            self.enter_bucket(block);
        }
        Some(page)
    }

    /// The sector is nowhere any more.
    pub(super) fn unmap(&mut self, sector: u32) {
        let place = std::mem::replace(&mut self.map[sector as usize], NOWHERE);
        if place == NOWHERE {
            return;
        }
        self.reverse[place as usize] = NOWHERE;
        let block = self.geometry.block_of(place);
        if self.blocks[block as usize].in_bucket {
            self.leave_bucket(block);
            self.blocks[block as usize].valid -= 1;
            self.enter_bucket(block);
        } else {
            self.blocks[block as usize].valid -= 1;
        }
    }

    fn enter_bucket(&mut self, block: u32) {
        let number = self.geometry.die_of_block(block);
        let valid = self.blocks[block as usize].valid;
        let die = &mut self.dies[number];
        let next = std::mem::replace(&mut die.buckets[valid as usize], block);
        die.fewest = die.fewest.min(valid as usize);
        if die.asleep && valid < self.geometry.sectors_per_block() {
            die.asleep = false;
            self.woken.push(number as u32);
        }
        let entering = &mut self.blocks[block as usize];
        (entering.previous, entering.next, entering.in_bucket) = (NOWHERE, next, true);
        if next != NOWHERE {
            self.blocks[next as usize].previous = block;
        }
    }

    fn leave_bucket(&mut self, block: u32) {
        let leaving = &mut self.blocks[block as usize];
        leaving.in_bucket = false;
        let (previous, next, valid) = (leaving.previous, leaving.next, leaving.valid);
        if next != NOWHERE {
            self.blocks[next as usize].previous = previous;
        }
        if previous != NOWHERE {
            self.blocks[previous as usize].next = next;
        } else {
            let die = self.geometry.die_of_block(block);
            self.dies[die].buckets[valid as usize] = next;
        }
    }

    /// The full block of the die with the fewest valid sectors, taken out of its bucket, if cleaning it gains anything.
    fn take_victim(&mut self, die: u32) -> Option<u32> {
        let die = &mut self.dies[die as usize];
        let all_valid = self.geometry.sectors_per_block() as usize;
        while die.buckets[die.fewest] == NOWHERE && die.fewest < all_valid {
            die.fewest += 1;
        }
        if die.fewest == all_valid {
            return None;
        }
        let block = die.buckets[die.fewest];
        self.leave_bucket(block);
        Some(block)
    }

    /// A die that [`Self::clean`] had nothing to do for and that now has.
    pub(super) fn next_woken(&mut self) -> Option<u32> {
        self.woken.pop()
    }

    /// What the die has to do next for cleaning. The step before must have ended.
    pub(super) fn clean(&mut self, die: u32) -> Option<Step> {
        let per_page = self.geometry.sectors_per_page as usize;
        let number = die as usize;
        loop {
            let emptied = &self.dies[number].emptied;
            if let Some(at) = emptied.iter().position(|&block| self.blocks[block as usize].valid == 0) {
                let block = self.dies[number].emptied.swap_remove(at);
                self.blocks[block as usize].erasing = true;
                return Some(Step::Erase { block });
            }
            if self.dies[number].staged.len() >= per_page
                && let Some(page) = self.move_page(die)
            {
                return Some(Step::Program { page });
            }
            let Some(victim) = self.dies[number].victim else {
                if self.dies[number].free.len() >= CLEAN_BELOW {
                    return None;
                }
                if let Some(block) = self.take_victim(die) {
                    self.dies[number].victim = Some(Frontier { block, page: 0 });
                    continue;
                }
                // Nothing more to fill the page with: the staged sectors go alone, so that their block can be erased.
                if !self.dies[number].emptied.is_empty()
                    && let Some(page) = self.move_page(die)
                {
                    return Some(Step::Program { page });
                }
                self.dies[number].asleep = true;
                return None;
            };
            if victim.page == self.geometry.pages_per_block || self.blocks[victim.block as usize].valid == 0 {
                self.dies[number].victim = None;
                self.dies[number].emptied.push(victim.block);
                continue;
            }
            self.dies[number].victim = Some(Frontier { page: victim.page + 1, ..victim });
            let sectors = self.stage(die, victim);
            if sectors > 0 {
                return Some(Step::Sense { sectors });
            }
        }
    }

    /// Stages the valid sectors of a page of a victim.
    fn stage(&mut self, die: u32, Frontier { block, page }: Frontier) -> u32 {
        let first = (block * self.geometry.pages_per_block + page) * self.geometry.sectors_per_page;
        let staged = &mut self.dies[die as usize].staged;
        let before = staged.len();
        for place in first..first + self.geometry.sectors_per_page {
            let sector = self.reverse[place as usize];
            if sector != NOWHERE {
                staged.push((sector, place));
            }
        }
        (staged.len() - before) as u32
    }

    /// Moves up to a page of staged sectors, less those that have been overwritten since. If the remaining sectors do
    /// not fill a page and a victim may give more, they stay staged. `None` if nothing was moved.
    fn move_page(&mut self, die: u32) -> Option<u32> {
        let per_page = self.geometry.sectors_per_page as usize;
        let number = die as usize;
        let mut staged = std::mem::take(&mut self.dies[number].staged);
        staged.retain(|&(sector, place)| self.map[sector as usize] == place);
        let nothing_follows = self.dies[number].victim.is_none() && !self.any_victim(number);
        let count = staged.len().min(per_page);
        let page = if count == per_page || (count > 0 && nothing_follows) {
            let page = self.append(die, Stream::Moved, staged.iter().take(count).map(|&(sector, _)| sector));
            if page.is_some() {
                staged.drain(..count);
                self.moved_sectors += count as u64;
            }
            page
        } else {
            None
        };
        self.dies[number].staged = staged;
        page
    }

    fn any_victim(&self, die: usize) -> bool {
        let die = &self.dies[die];
        let all_valid = self.geometry.sectors_per_block() as usize;
        die.buckets[die.fewest.min(all_valid)..all_valid].iter().any(|&block| block != NOWHERE)
    }

    pub(super) fn erased(&mut self, block: u32) {
        let erased = &mut self.blocks[block as usize];
        erased.erases += 1;
        // The drive may have been filled since: then the block is in use or free already.
        if !std::mem::take(&mut erased.erasing) {
            return;
        }
        self.erases += 1;
        self.most_erases = self.most_erases.max(erased.erases);
        let erases = erased.erases;
        let die = self.geometry.die_of_block(block);
        self.dies[die].free.push(Reverse((erases, block)));
    }
}

#[cfg(test)]
impl Ftl {
    /// Checks what the invariants promise of the tables.
    pub(super) fn check(&self) {
        let mut valid = vec![0; self.blocks.len()];
        for (place, &sector) in self.reverse.iter().enumerate() {
            if sector != NOWHERE {
                assert_eq!(self.map[sector as usize], place as u32, "the place of sector {sector}");
                valid[self.geometry.block_of(place as u32) as usize] += 1;
            }
        }
        for (sector, &place) in self.map.iter().enumerate() {
            if place != NOWHERE {
                assert_eq!(self.reverse[place as usize], sector as u32, "the sector at place {place}");
            }
        }
        for (number, block) in self.blocks.iter().enumerate() {
            assert_eq!(block.valid, valid[number], "valid sectors of block {number}");
        }
        for (number, die) in self.dies.iter().enumerate() {
            for (count, &first) in die.buckets.iter().enumerate() {
                let mut block = first;
                while block != NOWHERE {
                    let of_bucket = &self.blocks[block as usize];
                    assert!(of_bucket.in_bucket && of_bucket.valid == count as u32 && count >= die.fewest);
                    assert_eq!(self.geometry.die_of_block(block), number);
                    block = of_bucket.next;
                }
            }
            for &Reverse((_, block)) in &die.free {
                let free = &self.blocks[block as usize];
                assert!(free.valid == 0 && !free.in_bucket && !free.erasing, "free block {block}");
            }
        }
    }

    pub(super) fn mapped_sectors(&self) -> usize {
        self.map.iter().filter(|&&place| place != NOWHERE).count()
    }
}
