//! Compressed pages, and the groups in which they lie on the device.
//!
//! ```text
//!   ┌ header ─────────────────────────────────────────────┬────────┬────────┬───┬────────┐
//!   │ magic │ pages │ crc32c │ lengths of page 0 │ 1 │ …  │ page 0 │ page 1 │ … │ zeros  │   multiple of 4 KiB
//!   └───4───┴───4───┴───4────┴── packed 4, page 4 ─────────┴────────┴────────┴───┴────────┘
//! ```
//!
//! The checksum is that of the header. What the pages contain is covered by their own checksums.

use bytes::Bytes;
use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};
use nandina_device::{AlignedBuffer, BLOCK_BYTES, Device, round_up_to_block};

use crate::error::{Result, SpillError};
use crate::sealed_page::SealedPage;

const MAGIC: [u8; 4] = *b"NPAK";
const HEADER_BYTES: usize = 12;
const ENTRY_BYTES: usize = 8;

/// Pages that stay longer than this share of what they were are not worth unpacking.
const WORTHWHILE: (usize, usize) = (7, 8);

/// A group is read as a whole, and becomes no longer than this: of larger ones a narrow read window holds too few.
/// At this length, what alignment wastes is less than a hundredth.
pub(crate) const MAX_GROUP_BYTES: usize = 256 << 10;

/// A sealed page, compressed.
#[derive(Debug)]
pub(crate) struct PackedPage {
    bytes: Bytes,
    rows: u32,
    page_bytes: u32,
}

impl PackedPage {
    /// `None` if the page does not shrink enough.
    pub(crate) fn try_new(page: &SealedPage, device: &Device) -> Option<Self> {
        let bytes = page.bytes();
        let mut scratch = device.buffer(get_maximum_output_size(bytes.len()));
        let packed_bytes = compress_into(bytes, &mut scratch).ok()?;
        if packed_bytes > bytes.len() / WORTHWHILE.1 * WORTHWHILE.0 {
            return None;
        }
        let mut packed = device.buffer(packed_bytes);
        packed.copy_from_slice(scratch.get(..packed_bytes)?);
        let (rows, page_bytes) = (page.rows() as u32, u32::try_from(bytes.len()).ok()?);
        Some(Self { bytes: packed.freeze(), rows, page_bytes })
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Bytes of the page that it was and will be.
    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes as usize
    }

    /// Bytes that it takes in a group.
    pub(crate) fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that it takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        round_up_to_block(self.bytes.len())
    }

    /// The page that it was.
    pub(crate) fn unpack(&self, device: &Device) -> Result<SealedPage> {
        Ok(SealedPage::new(unpack(&self.bytes, self.page_bytes(), device)?, self.rows))
    }
}

fn unpack(packed: &[u8], page_bytes: usize, device: &Device) -> Result<AlignedBuffer> {
    let mut page = device.buffer(page_bytes);
    match decompress_into(packed, &mut page) {
        Ok(bytes) if bytes == page_bytes => Ok(page),
        Ok(bytes) => Err(damaged(format!("a page of {page_bytes} bytes unpacks to {bytes}"))),
        Err(error) => Err(damaged(error.to_string())),
    }
}

fn damaged(reason: String) -> SpillError {
    SpillError::Damaged { reason }
}

/// Several packed pages as they lie on the device.
#[derive(Debug)]
pub(crate) struct Group {
    bytes: Bytes,
    pages: usize,
    next: usize,
    /// Where the next page begins.
    at: usize,
}

impl Group {
    /// Bytes on the device of a group of so many pages with so many bytes together.
    pub(crate) fn len_bytes(pages: usize, packed_bytes: usize) -> usize {
        round_up_to_block(HEADER_BYTES + pages * ENTRY_BYTES + packed_bytes)
    }

    /// The bytes of a group. Every page is let go as soon as it has been copied.
    pub(crate) fn write(pages: Vec<PackedPage>, device: &Device) -> AlignedBuffer {
        let packed_bytes = pages.iter().map(PackedPage::len_bytes).sum();
        let mut group = device.buffer(Self::len_bytes(pages.len(), packed_bytes));
        let mut header = Vec::with_capacity(HEADER_BYTES + pages.len() * ENTRY_BYTES);
        header.extend(MAGIC);
        header.extend((pages.len() as u32).to_le_bytes());
        header.extend([0; 4]);
        for page in &pages {
            header.extend((page.len_bytes() as u32).to_le_bytes());
            header.extend(page.page_bytes.to_le_bytes());
        }
        let checksum = header_checksum(&header);
        put(&mut header, 8, &checksum.to_le_bytes());
        let mut at = put(&mut group, 0, &header);
        for page in pages {
            at = put(&mut group, at, &page.bytes);
        }
        if let Some(padding) = group.get_mut(at..) {
            padding.fill(0);
        }
        group
    }

    /// A group that has been read. Its header is verified.
    pub(crate) fn open(bytes: Bytes) -> Result<Self> {
        let pages = number_at(&bytes, 4).ok_or_else(|| damaged("it is too short".to_owned()))? as usize;
        let front = pages.checked_mul(ENTRY_BYTES).and_then(|entries| entries.checked_add(HEADER_BYTES));
        let header = front.and_then(|front| bytes.get(..front));
        let header = header.filter(|header| header.starts_with(&MAGIC));
        let header = header.ok_or_else(|| damaged("it does not begin like one".to_owned()))?;
        let (found, computed) = (number_at(header, 8).unwrap_or(0), header_checksum(header));
        if found != computed {
            return Err(damaged(format!("checksum {found:#010x}, computed {computed:#010x}")));
        }
        Ok(Self { at: header.len(), pages, next: 0, bytes })
    }

    /// Unpacks the next page, whose contents are not verified; `None` after the last one.
    pub(crate) fn next_page(&mut self, device: &Device) -> Result<Option<AlignedBuffer>> {
        if self.next == self.pages {
            return Ok(None);
        }
        let entry = HEADER_BYTES + self.next * ENTRY_BYTES;
        let length = |at| number_at(&self.bytes, at).map_or(0, |bytes| bytes as usize);
        let (packed_bytes, page_bytes) = (length(entry), length(entry + 4));
        let end = self.at + packed_bytes;
        let packed = self.bytes.get(self.at..end).ok_or_else(|| damaged("it is cut off".to_owned()))?;
        let page = unpack(packed, page_bytes, device)?;
        (self.at, self.next) = (end, self.next + 1);
        Ok(Some(page))
    }
}

/// Of everything in the header but the checksum itself.
fn header_checksum(header: &[u8]) -> u32 {
    let before = crc32c::crc32c(header.get(..8).unwrap_or_default());
    crc32c::crc32c_append(before, header.get(HEADER_BYTES..).unwrap_or_default())
}

fn number_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|number| u32::from_le_bytes(*number))
}

/// Copies `part` to `at`, where there is room for it; where it ends.
fn put(bytes: &mut [u8], at: usize, part: &[u8]) -> usize {
    let end = at + part.len();
    if let Some(target) = bytes.get_mut(at..end) {
        target.copy_from_slice(part);
    }
    end
}

const _: () = assert!(MAX_GROUP_BYTES.is_multiple_of(BLOCK_BYTES));

#[cfg(test)]
mod tests {
    use nandina_simulation::FaultPlan;
    use proptest::prelude::*;

    use super::*;

    fn device() -> Device {
        nandina_simulation::in_memory(FaultPlan::none()).0
    }

    fn sealed(device: &Device, contents: &[u8]) -> SealedPage {
        let mut buffer = device.buffer(contents.len());
        buffer.copy_from_slice(contents);
        SealedPage::new(buffer, 7)
    }

    /// Bytes of which every `period`-th is random and the others are zeros.
    fn contents(len: usize, period: usize, seed: u64) -> Vec<u8> {
        let mut random = seed | 1;
        let mut next = || {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 56) as u8
        };
        (0..len).map(|at| if at % period == 0 { next() } else { 0 }).collect()
    }

    #[test]
    fn what_does_not_shrink_is_left_alone() {
        let device = device();
        assert!(PackedPage::try_new(&sealed(&device, &contents(64 << 10, 1, 3)), &device).is_none());
        let packed = PackedPage::try_new(&sealed(&device, &contents(64 << 10, 16, 3)), &device).unwrap();
        assert!(packed.len_bytes() < 32 << 10, "{}", packed.len_bytes());
        assert_eq!((packed.rows(), packed.page_bytes()), (7, 64 << 10));
    }

    proptest! {
        #[test]
        fn groups_give_their_pages_back(
            shapes in prop::collection::vec((1..40usize, 8..64usize, any::<u64>()), 1..12),
        ) {
            let device = device();
            let pages: Vec<Vec<u8>> =
                shapes.iter().map(|&(blocks, period, seed)| contents(blocks * 4096, period, seed)).collect();
            let packed: Vec<PackedPage> = pages
                .iter()
                .map(|page| PackedPage::try_new(&sealed(&device, page), &device).unwrap())
                .collect();
            for (packed, page) in packed.iter().zip(&pages) {
                let unpacked = packed.unpack(&device).unwrap();
                prop_assert_eq!(unpacked.bytes(), page);
            }
            let sum = packed.iter().map(PackedPage::len_bytes).sum();
            let group = Group::write(packed, &device);
            prop_assert_eq!(group.len(), Group::len_bytes(pages.len(), sum));
            let mut group = Group::open(group.freeze()).unwrap();
            for page in &pages {
                prop_assert_eq!(&group.next_page(&device).unwrap().unwrap()[..], &page[..]);
            }
            prop_assert!(group.next_page(&device).unwrap().is_none());
        }

        #[test]
        fn damage_is_noticed_or_gives_a_page_of_the_same_length(at: usize, bit in 0..8u32) {
            let device = device();
            let pages: Vec<PackedPage> = (0..3)
                .map(|seed| sealed(&device, &contents(16 << 10, 9, seed)))
                .map(|page| PackedPage::try_new(&page, &device).unwrap())
                .collect();
            let used = HEADER_BYTES
                + pages.len() * ENTRY_BYTES
                + pages.iter().map(PackedPage::len_bytes).sum::<usize>();
            let mut bytes = Group::write(pages, &device);
            let at = at % used;
            bytes[at] ^= 1 << bit;
            let group = Group::open(bytes.freeze());
            if at < HEADER_BYTES + 3 * ENTRY_BYTES {
                let message = group.unwrap_err().to_string();
                prop_assert!(message.contains("damaged"), "{}", message);
            } else {
                let mut group = group.unwrap();
                for _ in 0..3 {
                    match group.next_page(&device) {
                        Ok(page) => prop_assert_eq!(page.map(|page| page.len()), Some(16 << 10)),
                        Err(error) => {
                            prop_assert!(error.to_string().contains("damaged"));
                            break;
                        }
                    }
                }
            }
        }
    }
}
