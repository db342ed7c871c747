//! The progress bar, which appears by itself when a statement takes longer than a second.

use std::io::IsTerminal as _;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nandina::{ProgressMeter, byte_size, format_count};

/// Shorter statements show nothing.
const PATIENCE: Duration = Duration::from_secs(1);
const REDRAW: Duration = Duration::from_millis(100);
/// Steps of the bar: finer than any terminal shows.
const STEPS: u64 = 1000;

/// Shows the progress of one statement until it is dropped.
pub struct Progress {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Whether progress can be shown: standard error is a terminal.
    pub fn is_possible() -> bool {
        std::io::stderr().is_terminal()
    }

    /// Watches a running statement from a thread of its own, so that it shows even when all workers are busy.
    pub fn watch(meter: ProgressMeter) -> Self {
        let (stop, stopped) = channel();
        let watch = move || {
            let start = Instant::now();
            if stopped.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let (known, unknown) = (bar_style(), spinner_style());
            let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr())
                .with_elapsed(start.elapsed())
                .with_style(unknown.clone());
            loop {
                let progress = meter.now();
                let mut facts = Vec::new();
                if progress.rows_read > 0 || progress.fraction.is_none() {
                    facts.push(format!("{} rows read", format_count(progress.rows_read)));
                }
                if progress.spilled_bytes > 0 {
                    facts.push(format!("{} spilled", byte_size::format(progress.spilled_bytes)));
                }
                bar.set_message(facts.join(", "));
                match progress.fraction {
                    Some(fraction) => {
                        bar.set_style(known.clone());
                        bar.set_position((fraction * STEPS as f64) as u64);
                    }
                    None => {
                        bar.set_style(unknown.clone());
                        bar.tick();
                    }
                }
                if stopped.recv_timeout(REDRAW) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            bar.finish_and_clear();
        };
        let thread = std::thread::Builder::new().name("progress".to_owned()).spawn(watch);
        Progress { stop: Some(stop), thread: thread.ok() }
    }

    /// A bar for work whose share is known, from 0 to 1.
    pub fn share(is_shown: bool) -> ProgressBar {
        let target = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        ProgressBar::with_draw_target(Some(STEPS), target).with_style(bar_style())
    }

    pub fn set_share(bar: &ProgressBar, share: f64, what: &'static str) {
        bar.set_message(what);
        bar.set_position((share * STEPS as f64) as u64);
    }

    /// A bar for work that is counted in rows.
    pub fn rows(total: u64, is_shown: bool) -> ProgressBar {
        let target = if is_shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        bar.set_style(rows_style());
        bar
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported; there is only a bar less.
            let _ = thread.join();
        }
    }
}

fn bar_style() -> ProgressStyle {
    style("{bar:30.cyan/dim} {percent:>3} %  {msg}  {elapsed}").progress_chars("━━─")
}

fn spinner_style() -> ProgressStyle {
    style("{spinner:.cyan} {msg}  {elapsed}")
}

fn rows_style() -> ProgressStyle {
    style("{msg:<9} {bar:30.cyan/dim} {percent:>3} %  {human_pos} rows  {elapsed}").progress_chars("━━─")
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_valid() {
        for template in [
            "{bar:30.cyan/dim} {percent:>3} %  {msg}  {elapsed}",
            "{spinner:.cyan} {msg}  {elapsed}",
            "{msg:<9} {bar:30.cyan/dim} {percent:>3} %  {human_pos} rows  {elapsed}",
        ] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
