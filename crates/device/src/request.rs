//! What can be asked of a file, and what comes back.

use crate::buffer::{AlignedBuffer, WriteBuffer};

/// A transfer between memory and a file.
#[derive(Debug)]
pub enum Request {
    /// Fills the whole buffer from `offset` on.
    Read { offset: u64, buffer: AlignedBuffer },
    /// Writes the buffers one after the other from `offset` on, as one device write.
    Write { offset: u64, buffers: Vec<WriteBuffer> },
}

impl Request {
    /// Bytes that it moves.
    pub fn len_bytes(&self) -> usize {
        match self {
            Request::Read { buffer, .. } => buffer.len(),
            Request::Write { buffers, .. } => buffers.iter().map(|buffer| buffer.len()).sum(),
        }
    }

    pub fn read(offset: u64, buffer: AlignedBuffer) -> Self {
        Request::Read { offset, buffer }
    }

    pub fn write(offset: u64, buffer: impl Into<WriteBuffer>) -> Self {
        Request::Write { offset, buffers: vec![buffer.into()] }
    }
}

/// A finished transfer. It always covers the whole request.
#[derive(Debug)]
pub enum Completion {
    Read { buffer: AlignedBuffer },
    Write { bytes: u64 },
    Sync,
}

impl Completion {
    /// Bytes transferred.
    pub fn bytes(&self) -> u64 {
        match self {
            Completion::Read { buffer } => buffer.len() as u64,
            Completion::Write { bytes } => *bytes,
            Completion::Sync => 0,
        }
    }

    /// The filled buffer of a read, nothing for other requests.
    pub fn into_buffer(self) -> Option<AlignedBuffer> {
        match self {
            Completion::Read { buffer } => Some(buffer),
            Completion::Write { .. } | Completion::Sync => None,
        }
    }
}
