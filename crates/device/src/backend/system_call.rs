//! Carrying an operation by a system call that waits for it.

use std::io;
use std::os::fd::AsRawFd;

use crate::device::finish;
use crate::file::Handle;
use crate::request::{Operation, Transfer};

/// Executes the operation in this thread and reports it.
pub(super) fn execute(operation: Box<Operation>) {
    let result = call(&operation);
    finish([(operation, result)]);
}

/// One system call; bytes moved or a negative error number.
fn call(operation: &Operation) -> i32 {
    let Handle::Descriptor(descriptor) = &operation.file.handle else {
        return -libc::EBADF;
    };
    let descriptor = descriptor.as_raw_fd();
    let parts = &operation.parts.0;
    let position = operation.position() as libc::off_t;
    let returned = match operation.transfer {
        // SAFETY: the operation owns the buffers and keeps the descriptor open; nobody else uses the read buffer.
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
