//! One request as backends execute it: from the caller's description to the bytes moved.
//!
//! ```text
//!  Request ──check──► Operation ──start──► backend ──result──► advance ─┬─ Done ──► batch
//!                                             ▲                         │
//!                                             └──── rest of the range ──┘ Again
//! ```
//!
//! Invariants
//! - An operation owns its buffers and its file from submission until its result is delivered, whatever its
//!   batch does: memory the kernel may touch is never freed early.
//! - Offsets, lengths and addresses are multiples of [`BLOCK_BYTES`]; this is checked before anything is started.
//! - A short transfer is continued from where it stopped; a read that meets the end of the file is an error.

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::buffer::{AlignedBuffer, BLOCK_BYTES, WriteBuffer};
use crate::completions::Completions;
use crate::counters::{IoAccount, Traffic};
use crate::error::{Error, Result};
use crate::flow::IoSlot;
use crate::medium::OpenFile;
use crate::request::{Completion, Request};

/// Most parts that one system call takes (`IOV_MAX`); a write of more parts continues with the rest.
const MAX_PARTS: usize = 1024;

/// Most bytes asked of the kernel at once; it never moves more than 2 GiB − 4 KiB in one call.
const MAX_TRANSFER_BYTES: usize = 1 << 30;

/// How often a request that the kernel interrupted or refused for the moment is started again.
const MAX_RETRIES: u32 = 1000;

/// The direction, and the buffers.
pub enum Transfer {
    Read(AlignedBuffer),
    Write(Vec<WriteBuffer>),
    Sync,
}

/// The address ranges that are still to be transferred.
pub(crate) struct Parts(pub(crate) Vec<libc::iovec>);

// SAFETY: the ranges belong to the buffers of the same operation and move between threads with them.
unsafe impl Send for Parts {}

/// See the [module documentation](self).
pub struct Operation {
    pub(crate) transfer: Transfer,
    pub(crate) file: Arc<OpenFile>,
    /// Where the request starts; `offset + done_bytes` is where it stands.
    offset: u64,
    total_bytes: u64,
    done_bytes: u64,
    pub(crate) parts: Parts,
    retries: u32,
    pub(crate) ticket: Ticket,
}

/// What the device knows an operation by.
pub(crate) struct Ticket {
    pub(crate) batch: Arc<Completions>,
    pub(crate) index: usize,
    pub(crate) account: Option<Arc<IoAccount>>,
    pub(crate) started: Option<Instant>,
    /// What it holds while it is at the device.
    pub(crate) slot: IoSlot,
    /// Keeps the device open.
    pub(crate) _device: Arc<dyn Any + Send + Sync>,
}

impl Ticket {
    pub(crate) fn new(
        batch: Arc<Completions>,
        index: usize,
        account: Option<Arc<IoAccount>>,
        device: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { batch, index, account, started: None, slot: IoSlot::default(), _device: device }
    }
}

/// What to do after the backend reported a result.
pub enum Progress {
    Again(Box<Operation>),
    Done(Box<Operation>, Result<()>),
}

impl Operation {
    pub(crate) fn new(request: Request, file: Arc<OpenFile>, ticket: Ticket) -> Result<Box<Self>> {
        let (transfer, offset, total_bytes) = match request {
            Request::Read { offset, buffer } => {
                let bytes = buffer.len() as u64;
                (Transfer::Read(buffer), offset, bytes)
            }
            Request::Write { offset, buffers } => {
                let bytes = buffers.iter().map(|buffer| buffer.len() as u64).sum();
                (Transfer::Write(buffers), offset, bytes)
            }
        };
        let mut operation = Self::of(transfer, file, offset, total_bytes, ticket);
        operation.check_alignment()?;
        operation.lay_out_parts();
        Ok(Box::new(operation))
    }

    pub(crate) fn sync(file: Arc<OpenFile>, ticket: Ticket) -> Box<Self> {
        Box::new(Self::of(Transfer::Sync, file, 0, 0, ticket))
    }

    fn of(transfer: Transfer, file: Arc<OpenFile>, offset: u64, total_bytes: u64, ticket: Ticket) -> Self {
        let parts = Parts(Vec::new());
        Self { transfer, file, offset, total_bytes, done_bytes: 0, parts, retries: 0, ticket }
    }

    fn check_alignment(&self) -> Result<()> {
        let check = |what: &'static str, value: u64| {
            if value.is_multiple_of(BLOCK_BYTES as u64) {
                Ok(())
            } else {
                Err(Error::Misaligned { file: self.file.path.clone(), what, value })
            }
        };
        check("the offset", self.offset)?;
        match &self.transfer {
            Transfer::Read(buffer) => check("the buffer's length", buffer.len() as u64),
            Transfer::Write(buffers) => buffers.iter().try_for_each(|buffer| {
                check("a buffer's length", buffer.len() as u64)?;
                if buffer.is_empty() {
                    Ok(())
                } else {
                    check("a buffer's address", buffer.as_ptr().addr() as u64)
                }
            }),
            Transfer::Sync => Ok(()),
        }
    }

    /// Lists the ranges not yet transferred, as many as one system call takes.
    fn lay_out_parts(&mut self) {
        self.parts.0.clear();
        let mut skip = self.done_bytes as usize;
        let mut room = MAX_TRANSFER_BYTES;
        let mut add = |address: *mut u8, bytes: usize| {
            if skip >= bytes {
                skip -= bytes;
                return;
            }
            let taken = (bytes - skip).min(room);
            if taken > 0 && self.parts.0.len() < MAX_PARTS {
                self.parts
                    .0
                    .push(libc::iovec { iov_base: address.wrapping_add(skip).cast(), iov_len: taken });
                room -= taken;
            }
            skip = 0;
        };
        match &self.transfer {
            Transfer::Read(buffer) => add(buffer.address(), buffer.len()),
            Transfer::Write(buffers) => {
                for buffer in buffers {
                    add(buffer.as_ptr().cast_mut(), buffer.len());
                }
            }
            Transfer::Sync => {}
        }
    }

    /// Nothing to transfer: a read or write of zero bytes.
    pub(crate) fn is_empty(&self) -> bool {
        self.total_bytes == 0 && !matches!(self.transfer, Transfer::Sync)
    }

    pub fn file(&self) -> &OpenFile {
        &self.file
    }

    /// Where the request starts in its file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of the whole request.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Bytes transferred so far.
    pub fn done_bytes(&self) -> u64 {
        self.done_bytes
    }

    /// Where the transfer goes on.
    pub fn position(&self) -> u64 {
        self.offset + self.done_bytes
    }

    /// The buffers, for backends that copy.
    pub fn transfer(&mut self) -> &mut Transfer {
        &mut self.transfer
    }

    pub fn traffic(&self) -> Traffic {
        match self.transfer {
            Transfer::Read(_) => Traffic::Read,
            Transfer::Write(_) => Traffic::Write,
            Transfer::Sync => Traffic::Sync,
        }
    }

    /// Applies the result of a system call: bytes moved, or a negative error number.
    pub fn advance(mut self: Box<Self>, result: i32) -> Progress {
        if result < 0 {
            let number = -result;
            let for_the_moment = matches!(number, libc::EINTR | libc::EAGAIN | libc::ECANCELED);
            if for_the_moment && self.retries < MAX_RETRIES {
                self.retries += 1;
                return Progress::Again(self);
            }
            let error = self.request_error(io::Error::from_raw_os_error(number));
            return Progress::Done(self, Err(error));
        }
        self.done_bytes += result as u64;
        if self.done_bytes >= self.total_bytes {
            return Progress::Done(self, Ok(()));
        }
        // The end of a file can lie inside a block only when another program wrote it; a transfer cannot go on
        // from there with aligned requests.
        let stuck = result == 0 || !self.done_bytes.is_multiple_of(BLOCK_BYTES as u64);
        if !stuck {
            self.lay_out_parts();
            return Progress::Again(self);
        }
        let error = match self.transfer {
            Transfer::Read(_) => Error::PastEnd {
                file: self.file.path.clone(),
                offset: self.offset,
                wanted_bytes: self.total_bytes,
                found_bytes: self.done_bytes,
            },
            _ => self.request_error(io::Error::from(io::ErrorKind::WriteZero)),
        };
        Progress::Done(self, Err(error))
    }

    fn request_error(&self, source: io::Error) -> Error {
        let operation = match self.transfer {
            Transfer::Read(_) => "read",
            Transfer::Write(_) => "write",
            Transfer::Sync => "sync",
        };
        self.file.error(operation, self.offset, self.total_bytes, source)
    }

    pub(crate) fn into_completion(self) -> Completion {
        match self.transfer {
            Transfer::Read(buffer) => Completion::Read { buffer },
            Transfer::Write(_) => Completion::Write { bytes: self.total_bytes },
            Transfer::Sync => Completion::Sync,
        }
    }
}
