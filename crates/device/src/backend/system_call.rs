//! Executing an operation by system calls that wait for it.

use std::io;

use super::{Ended, Sink};
use crate::operation::{Operation, Progress, Transfer};

/// Executes the operation in this thread and reports it.
pub(super) fn execute(mut operation: Box<Operation>, sink: &Sink) {
    loop {
        let result = call(&operation);
        match operation.advance(result) {
            Progress::Again(rest) => operation = rest,
            Progress::Done(operation, outcome) => {
                return sink.ended(vec![Ended { operation, outcome, at: None }]);
            }
        }
    }
}

/// One system call; bytes moved or a negative error number.
fn call(operation: &Operation) -> i32 {
    let descriptor = operation.file.descriptor();
    let parts = &operation.parts.0;
    let position = operation.position() as libc::off_t;
    let returned = match operation.transfer {
        // SAFETY: the operation owns the buffers and keeps the descriptor open; nothing else uses the read buffer.
        Transfer::Read(_) => unsafe {
            libc::preadv(descriptor, parts.as_ptr(), parts.len() as libc::c_int, position)
        },
        // SAFETY: as above; the buffers are only read.
        Transfer::Write(_) => unsafe {
            libc::pwritev(descriptor, parts.as_ptr(), parts.len() as libc::c_int, position)
        },
        // SAFETY: the descriptor is open.
        Transfer::Sync => unsafe { libc::fdatasync(descriptor) as isize },
    };
    if returned < 0 {
        return -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    }
    returned as i32
}
