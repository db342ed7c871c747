//! What the terminal did before a line was typed in it, for a program that has to end meanwhile.

use std::io::{self, IsTerminal as _, Write as _};
use std::mem::MaybeUninit;

/// Modes of the terminal on standard input, if it is one.
pub(super) struct TerminalModes(Option<libc::termios>);

impl TerminalModes {
    pub(super) fn now() -> Self {
        let mut modes = MaybeUninit::uninit();
        // SAFETY: fills in what it is given, if it returns 0.
        let are_known = io::stdin().is_terminal()
            && unsafe { libc::tcgetattr(libc::STDIN_FILENO, modes.as_mut_ptr()) } == 0;
        // SAFETY: it has returned 0.
        Self(are_known.then(|| unsafe { modes.assume_init() }))
    }

    pub(super) fn restore(&self) {
        if let Self(Some(modes)) = self {
            // The line editor has also asked for pastes to be marked, and left the cursor in its line.
            print!("\x1b[?2004l\r\n");
            let _ = io::stdout().flush();
            // SAFETY: reads modes that are there. A terminal that has gone needs none.
            unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, modes) };
        }
    }
}
