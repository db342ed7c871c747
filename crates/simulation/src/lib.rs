//! Devices that are not there: memory that fails as planned, and drives that are only modelled.
//!
//! ```text
//!   Machine ── one clock, one power switch
//!     ├── Device "/data"    memory  behind a model of an SSD   ┐ requests are executed at once
//!     ├── Device "/log"     memory  behind a model of an SSD   │ and end when the model says so,
//!     └── Device "/temp"    memory  behind a model of a disk   ┘ in virtual time
//!
//!   paced                   files of the operating system behind a model, in the system's time
//! ```
//!
//! [`Machine`] is what crash tests and experiments about devices run on: they can be repeated, and take no longer than
//! computing does. [`in_memory`] and [`on_drive`] make a machine with one device. [`PacedDrive`] slows a
//! real directory down to a model.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "a broken invariant is loud, and named")]

mod clock;
pub mod drive;
mod machine;
mod memory;
mod paced;
mod power;
mod timing;

pub use machine::{Machine, Simulation, SimulationOptions, Sleep, in_memory, on_drive};
pub use memory::{Contents, CrashOutcome, FaultPlan};
pub use paced::PacedDrive;
