//! Blocks: what the log writes to the device.
//!
//! ```text
//!   0         8      16        24      28     32     36         40                      4096
//!   | log id  | LSN  | durable | chain | used | left | checksum | payload …  | nothing … |
//! ```
//!
//! Every block tells its own place and the log that it belongs to, so that what a reused file had in it before is not
//! taken for more of the log. `chain` is the checksum of the block before: of two logs that went on from the same
//! place, one before a crash and one after it, the blocks do not mix.

/// Bytes of a block: the smallest that every device writes without reading.
pub const BLOCK_BYTES: usize = 4096;
const HEADER_BYTES: usize = 40;
const CHECKSUM_AT: usize = 36;
/// Bytes of records in a block.
pub const PAYLOAD_BYTES: usize = BLOCK_BYTES - HEADER_BYTES;

/// What a block says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Which log it is part of.
    pub log_id: u64,
    /// Where it begins.
    pub lsn: u64,
    /// All before this was on the device when the block was made.
    pub durable: u64,
    /// The checksum of the block before.
    pub chain: u32,
    /// Blocks of its group that follow.
    pub left: u32,
}

/// A block that is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block<'a> {
    pub header: Header,
    pub payload: &'a [u8],
    pub checksum: u32,
}

/// The address of a byte of the payload of blocks, the first of which begins at `base`.
pub fn address(base: u64, byte: usize) -> u64 {
    base + ((byte / PAYLOAD_BYTES) * BLOCK_BYTES + HEADER_BYTES + byte % PAYLOAD_BYTES) as u64
}

/// The byte of the payload of a block that an address in it stands for; the first one, if that is of the block itself.
pub fn payload_byte(lsn: u64) -> usize {
    ((lsn % BLOCK_BYTES as u64) as usize).saturating_sub(HEADER_BYTES)
}

/// Makes a block of a header and up to [`PAYLOAD_BYTES`]; its checksum.
pub fn write(block: &mut [u8; BLOCK_BYTES], header: &Header, payload: &[u8]) -> u32 {
    let Header { log_id, lsn, durable, chain, left } = *header;
    let (head, body) = block.split_at_mut(HEADER_BYTES);
    let fields = [log_id.to_le_bytes(), lsn.to_le_bytes(), durable.to_le_bytes()].into_iter().flatten();
    let used = payload.len() as u32;
    let small = [chain.to_le_bytes(), used.to_le_bytes(), left.to_le_bytes()].into_iter().flatten();
    head.iter_mut().zip(fields.chain(small)).for_each(|(to, from)| *to = from);
    let (used, rest) = body.split_at_mut(payload.len());
    used.copy_from_slice(payload);
    rest.fill(0);
    let checksum = checksum_of(head, payload);
    head.iter_mut().skip(CHECKSUM_AT).zip(checksum.to_le_bytes()).for_each(|(to, from)| *to = from);
    checksum
}

/// Reads a block; `None` if these bytes are none, or have not all been written.
pub fn read(bytes: &[u8]) -> Option<Block<'_>> {
    let (head, body) = bytes.split_at_checked(HEADER_BYTES)?;
    let long = |at: usize| Some(u64::from_le_bytes(*head.get(at..)?.first_chunk()?));
    let short = |at: usize| Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?));
    let (log_id, lsn, durable) = (long(0)?, long(8)?, long(16)?);
    let (chain, used, left, checksum) = (short(24)?, short(28)?, short(32)?, short(CHECKSUM_AT)?);
    let payload = body.get(..used as usize)?;
    let header = Header { log_id, lsn, durable, chain, left };
    (checksum_of(head, payload) == checksum).then_some(Block { header, payload, checksum })
}

fn checksum_of(head: &[u8], payload: &[u8]) -> u32 {
    let fields = head.get(..CHECKSUM_AT).unwrap_or(head);
    crc32c::crc32c_append(crc32c::crc32c(fields), payload)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn blocks_are_read_as_written_and_not_if_a_bit_differs(
            fields in any::<(u64, u64, u64, u32, u32)>(),
            payload in prop::collection::vec(any::<u8>(), 0..PAYLOAD_BYTES),
            bit in any::<prop::sample::Index>(),
        ) {
            let (log_id, lsn, durable, chain, left) = fields;
            let header = Header { log_id, lsn, durable, chain, left };
            let mut block = [7; BLOCK_BYTES];
            let checksum = write(&mut block, &header, &payload);
            prop_assert_eq!(read(&block), Some(Block { header, payload: &payload, checksum }));
            let bit = bit.index((HEADER_BYTES + payload.len()) * 8);
            block[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(read(&block), None);
        }

        #[test]
        fn anything_may_stand_where_a_block_is_expected(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(read(&bytes), None);
        }
    }

    #[test]
    fn zeros_are_no_block() {
        assert_eq!(read(&[0; BLOCK_BYTES]), None);
    }

    #[test]
    fn addresses_skip_headers() {
        assert_eq!(address(8192, 0), 8232);
        assert_eq!(address(8192, PAYLOAD_BYTES - 1), 12287);
        assert_eq!(address(8192, PAYLOAD_BYTES), 12328);
        assert_eq!((payload_byte(8232), payload_byte(8192), payload_byte(12287)), (0, 0, PAYLOAD_BYTES - 1));
    }
}
