//! A device as its users see it: what it keeps, shares and reports.

mod calibration_recovers_what_drives_are;
mod concurrency;
mod contents;
mod directories;
mod faults;
mod foreign_files;
mod lifetimes;
mod setup;
mod the_governor_shares_fairly;
mod transfers;
