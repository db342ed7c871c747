//! Pages as they are written: packed or not.

use nandina_device::Device;

use super::packed::PackedPage;
use crate::error::Result;
use crate::sealed_page::SealedPage;

/// A page being written to the device.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Plain(SealedPage),
    Packed(PackedPage),
}

impl Outgoing {
    pub(crate) fn rows(&self) -> usize {
        match self {
            Self::Plain(page) => page.rows(),
            Self::Packed(page) => page.rows(),
        }
    }

    /// Bytes of the page before it was packed.
    pub(crate) fn page_bytes(&self) -> usize {
        match self {
            Self::Plain(page) => page.len_bytes(),
            Self::Packed(page) => page.page_bytes(),
        }
    }

    /// Bytes that it takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::Plain(page) => page.len_bytes(),
            Self::Packed(page) => page.memory_bytes(),
        }
    }

    /// The page as it was sealed.
    pub(crate) fn into_sealed(self, device: &Device) -> Result<SealedPage> {
        match self {
            Self::Plain(page) => Ok(page),
            Self::Packed(page) => page.unpack(device),
        }
    }
}
