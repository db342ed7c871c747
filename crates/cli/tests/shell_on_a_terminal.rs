//! The shell on a terminal: it answers, remembers, completes, shows progress, and outlives Ctrl-C.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test"
)]

#[path = "program/program.rs"]
mod program;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::FromRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use program::names_below;

/// The program at a terminal of its own.
struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
    /// What has been looked at.
    seen: usize,
}

impl Terminal {
    /// Starts the program with `arguments` in `folder`, which is its home, too.
    fn open(folder: &Path, arguments: &[&str]) -> Self {
        let (mut master, mut slave) = (0, 0);
        let size = libc::winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: two descriptors and a size in local variables; name and modes are left out.
        let opened = unsafe {
            libc::openpty(
                &raw mut master,
                &raw mut slave,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                &raw const size,
            )
        };
        assert_eq!(opened, 0, "a terminal");
        // SAFETY: just opened, owned by nobody else.
        let (master, slave) = unsafe { (File::from_raw_fd(master), File::from_raw_fd(slave)) };
        let mut command = Command::new(env!("CARGO_BIN_EXE_nandina"));
        command.current_dir(folder).env("HOME", folder).env("TERM", "xterm").args(arguments);
        command.env_remove("XDG_STATE_HOME").env_remove("XDG_DATA_HOME").env_remove("NANDINA_HISTORY");
        command.env_remove("XDG_CACHE_HOME");
        let end = || Stdio::from(slave.try_clone().unwrap());
        command.stdin(end()).stdout(end()).stderr(end());
        // SAFETY: both calls may be made between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        drop((command, slave));
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut output, shown) = (master.try_clone().unwrap(), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The terminal ends with an error when the program does.
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { child, keyboard: master, screen, seen: 0 }
    }

    fn type_keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until `text` is shown behind what was seen before.
    #[track_caller]
    fn expect(&mut self, text: &str) {
        let start = Instant::now();
        loop {
            let screen = self.screen.lock().unwrap().clone();
            if let Some(at) = screen[self.seen..].find(text) {
                self.seen += at + text.len();
                return;
            }
            let unseen = &screen[self.seen..];
            assert!(start.elapsed() < Duration::from_secs(60), "{text:?} is not shown, but {unseen:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    fn expect_exit(&mut self, code: i32) {
        let start = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < Duration::from_secs(60), "the program does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(self.child.wait().unwrap().code(), Some(code));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const PROMPT: &str = "nandina> ";

#[test]
fn statements_are_answered_and_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::open(folder.path(), &["base"]);
    terminal.expect(PROMPT);
    terminal.type_keys("CREATE TABLE goods AS SELECT 40 + 2 AS answer;\r");
    terminal.expect("1 row written");
    terminal.expect(PROMPT);
    // A statement over two lines.
    terminal.type_keys("SELECT answer,\r");
    terminal.type_keys("answer + 1 AS next FROM goods;\r");
    terminal.expect("43");
    terminal.expect(PROMPT);
    terminal.type_keys("\\d\r");
    terminal.expect("goods");
    terminal.expect(PROMPT);
    terminal.type_keys("\\timing\r");
    terminal.expect(PROMPT);
    terminal.type_keys("SELECT 1;\r");
    terminal.expect("Time: ");
    terminal.expect(PROMPT);
    // The name of the table is completed; an error does not end the shell.
    terminal.type_keys("SELECT max(answer) * 2 FROM goo\t;\r");
    terminal.expect("84");
    terminal.expect(PROMPT);
    terminal.type_keys("SELECT nothing FROM nowhere;\r");
    terminal.expect("nowhere");
    terminal.expect(PROMPT);
    // Three statements back in the history.
    terminal.type_keys("\u{1b}[A\u{1b}[A\u{1b}[A\r");
    terminal.expect("Time: ");
    terminal.expect(PROMPT);
    terminal.type_keys("\\q\r");
    terminal.expect_exit(0);
    let remembered = names_below(folder.path())
        .iter()
        .filter_map(|name| std::fs::read_to_string(name).ok())
        .any(|text| text.contains("CREATE TABLE goods"));
    assert!(remembered, "no history in {:?}", names_below(folder.path()));
}

#[test]
fn ctrl_c_cancels_the_query_and_not_the_shell() {
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::open(folder.path(), &["-m", "64MB", "--temp-dir", "temp"]);
    terminal.expect(PROMPT);
    let join = "tpch('lineitem', 20) JOIN tpch('orders', 20) ON l_orderkey = o_orderkey";
    terminal.type_keys(&format!("SELECT min(o_comment) FROM {join};\r"));
    terminal.expect("rows read");
    terminal.type_keys("\u{3}");
    terminal.expect("cancelled");
    terminal.expect(PROMPT);
    // Writes that are in flight end first.
    let temp = folder.path().join("temp");
    let is_full = |name: &String| std::fs::metadata(name).is_ok_and(|file| file.is_file() && file.len() > 0);
    let start = Instant::now();
    while names_below(&temp).iter().any(is_full) {
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", names_below(&temp));
        std::thread::sleep(Duration::from_millis(20));
    }
    terminal.type_keys("SELECT 6 * 7;\r");
    terminal.expect("42");
    // Ctrl-D leaves.
    terminal.expect(PROMPT);
    terminal.type_keys("\u{4}");
    terminal.expect_exit(0);
}

#[test]
fn the_shell_ends_when_it_is_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    let terminate = |terminal: &Terminal| {
        let id = terminal.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    };
    let mut terminal = Terminal::open(folder.path(), &["--temp-dir", "temp"]);
    terminal.expect(PROMPT);
    terminate(&terminal);
    terminal.expect_exit(0);

    let mut terminal = Terminal::open(folder.path(), &["-m", "64MB", "--temp-dir", "temp"]);
    terminal.expect(PROMPT);
    terminal.type_keys("SELECT count(DISTINCT l_comment) FROM tpch('lineitem', 20);\r");
    terminal.expect("rows read");
    terminate(&terminal);
    terminal.expect("cancelled");
    terminal.expect_exit(0);
}

#[test]
fn long_queries_show_their_progress() {
    let folder = tempfile::tempdir().unwrap();
    let sql = "SELECT count(DISTINCT l_comment) FROM tpch('lineitem', 2)";
    let mut terminal = Terminal::open(folder.path(), &["-c", sql]);
    terminal.expect("rows read");
    terminal.type_keys("\u{3}");
    terminal.expect_exit(130);

    let mut terminal = Terminal::open(folder.path(), &["--no-progress", "-c", sql]);
    std::thread::sleep(Duration::from_millis(2500));
    assert!(!terminal.screen.lock().unwrap().contains("rows read"));
    terminal.type_keys("\u{3}");
    terminal.expect_exit(130);
}

#[test]
fn measuring_a_device_shows_its_progress() {
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::open(folder.path(), &["-c", "CALIBRATE FULL '.'"]);
    terminal.expect(" %");
    terminal.type_keys("\u{3}");
    terminal.expect_exit(130);
    assert_eq!(names_below(folder.path()), Vec::<String>::new());
}
