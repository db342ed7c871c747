//! File systems of our own, on files: small ones, and ones that can be taken away. They need root and loop devices.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::error::{BenchError, Result};
use crate::system;

const HINT: &str = "needs root, loop devices, and mkfs for the file system";

/// How long a file system may be in use by a process that has been killed.
const BUSY_FOR: Duration = Duration::from_secs(10);

/// A mounted file system, unmounted when it is dropped.
#[derive(Debug)]
pub struct Disk {
    image: PathBuf,
    pub folder: PathBuf,
}

impl Disk {
    /// Makes a file system in `place`.
    pub fn new(place: &Path, kind: &str, bytes: u64) -> Result<Self> {
        let (image, folder) = (place.join("disk.image"), place.join("disk"));
        std::fs::create_dir_all(&folder).map_err(BenchError::file(&folder))?;
        let file = File::create(&image).map_err(BenchError::file(&image))?;
        file.set_len(bytes).map_err(BenchError::file(&image))?;
        let force = if kind == "xfs" { "-f" } else { "-F" };
        order(Command::new(format!("mkfs.{kind}")).args(["-q", force]).arg(&image))?;
        let disk = Self { image, folder };
        disk.mount()?;
        Ok(disk)
    }

    fn mount(&self) -> Result<()> {
        order(Command::new("mount").args(["-o", "loop"]).arg(&self.image).arg(&self.folder))
    }

    /// What happens when the power is lost: nothing more reaches the device.
    pub fn lose_power(&self) -> Result<()> {
        let folder = File::open(&self.folder).map_err(BenchError::file(&self.folder))?;
        system::shut_down_file_system(&folder).map_err(BenchError::file(&self.folder))
    }

    /// Mounts it again, which replays its journal.
    pub fn restart(&self) -> Result<()> {
        self.unmount()?;
        self.mount()
    }

    /// A process that was killed may hold its files for a moment longer: the kernel ends its requests behind it.
    fn unmount(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            match order(Command::new("umount").arg(&self.folder)) {
                Err(_) if start.elapsed() < BUSY_FOR => std::thread::sleep(Duration::from_millis(20)),
                outcome => return outcome,
            }
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Nothing can be done about a failure here; the next attempt would say that the folder is in use.
        let _ = self.unmount();
    }
}

fn order(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|source| BenchError::Program {
        program: program.clone(),
        source,
        hint: HINT,
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(BenchError::Setup(format!("{program}: {said}; it {HINT}")))
}
