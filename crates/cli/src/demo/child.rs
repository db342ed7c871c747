//! This program again, as a child: each step of the demo has a process of its own, so that the memory of one
//! step does not count for another.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::failure::{Failure, Result};
use crate::interrupt::Interrupt;

/// Runs this program with `arguments` and returns what it printed. Its messages and progress go where ours go.
pub async fn run(arguments: Vec<String>, interrupt: &Interrupt) -> Result<String> {
    let program = std::env::current_exe().map_err(|error| Failure::io("finding this program", error))?;
    let mut command = Command::new(program);
    // How the allocator is set up depends on each step's own limit.
    command
        .args(&arguments)
        .stdout(Stdio::piped())
        .env_remove(crate::resident::HUGE_PAGES)
        .env_remove(crate::resident::STARTED_AGAIN);
    let child = command.spawn().map_err(|error| Failure::io("starting a step of the demo", error))?;
    let mut child = Running(child);
    let mut pipe = child.0.stdout.take();
    // Read all along: a child that prints much would wait for us otherwise.
    let reader = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        pipe.as_mut().map_or(Ok(0), |pipe| pipe.read_to_string(&mut text)).map(|_| text)
    });
    let status = loop {
        // A Ctrl-C reached the child, too; a plain SIGTERM did not. Leaving kills it, and waits.
        if interrupt.is_pressed() {
            return Err(Failure::Cancelled);
        }
        match child.0.try_wait().map_err(|error| Failure::io("waiting for a step of the demo", error))? {
            Some(status) => break status,
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    match status.code() {
        Some(0) => {}
        Some(130) => return Err(Failure::Cancelled),
        // It has said why.
        _ => {
            let step = arguments.first().map_or("a step", String::as_str);
            let message = format!("the demo's step '{step}' failed ({status})");
            return Err(Failure::Query(nandina::Error::Query { message }));
        }
    }
    let text =
        reader.await.map_err(|error| Failure::io("reading a step's output", std::io::Error::other(error)))?;
    text.map_err(|error| Failure::io("reading a step's output", error))
}

/// A child that is gone when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(Some(_))) {
            return;
        }
        // It hears of a Ctrl-C itself and removes its temporary files; give it the time for that.
        for _ in 0..100 {
            std::thread::sleep(Duration::from_millis(20));
            if matches!(self.0.try_wait(), Ok(Some(_))) {
                return;
            }
        }
        // Both fail when it has ended already, which is what they are for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
