//! Where is an address on the platters, and how long does the arm take to get there?
//!
//! Tracks follow each other from the outermost cylinder inwards, first through all heads of a cylinder. Cylinders are
//! grouped in zones; tracks of one zone hold equally much, those of outer zones more. Every track begins a little
//! later in the revolution than the one before (skew), so that reading on finds the next track's beginning just
//! arriving under the head.
//!
//! ```text
//!   track 0   ├───────────────────────────┤
//!   track 1       ├───────────────────────────┤          one revolution ──► angle
//!   track 2           ├───────────────────────────┤
//!             ◄skew─►
//!
//!   clock(address) = track · (revolution + skew) + part of the revolution before the address
//! ```
//!
//! The *clock* of an address is the time at which a head that began with address 0 at time 0, and read on ever since,
//! would arrive at it. Everything follows from it: the angle of an address is its clock modulo the revolution, and the
//! time to transfer a range the difference of two clocks.
//!
//! The seek curve is that of Ruemmler and Wilkes, "An introduction to disk drive modeling" (IEEE Computer, 1994),
//! figure 1: a constant and a square root of the distance while the arm mostly accelerates, linear where it coasts.
//! It is fixed by the three times that data sheets give.
//!
//! Invariants
//! - Tracks hold whole blocks: no block crosses from one track to the next.
//! - Skew is at least the time to get onto the next track and to settle for writing there.

use super::{DiskParameters, Nanos};
use nandina_device::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

#[derive(Debug, Clone)]
pub(super) struct Geometry {
    pub(super) revolution_nanos: Nanos,
    skew_nanos: Nanos,
    head_switch_nanos: Nanos,
    heads: u64,
    tracks_per_zone: u64,
    zones: Vec<Zone>,
    /// Angle, as a part of the revolution in nanoseconds, that is under the heads at time 0.
    phase_nanos: Nanos,
    curve: SeekCurve,
}

#[derive(Debug, Clone, Copy, Default)]
struct Zone {
    first_address: u64,
    track_bytes: u64,
}

/// Where an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    track: u64,
    offset: u64,
    track_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct SeekCurve {
    track_to_track: f64,
    third: f64,
    full: f64,
    third_distance: f64,
    full_distance: f64,
}

impl SeekCurve {
    fn nanos(&self, distance: u64) -> Nanos {
        if distance == 0 {
            return 0;
        }
        let distance = distance as f64;
        let nanos = if distance < self.third_distance {
            let share = (distance.sqrt() - 1.0) / (self.third_distance.sqrt() - 1.0);
            self.track_to_track + (self.third - self.track_to_track) * share
        } else {
            let share = (distance - self.third_distance) / (self.full_distance - self.third_distance);
            self.third + (self.full - self.third) * share
        };
        nanos.round() as Nanos
    }
}

impl Geometry {
    pub(super) fn new(parameters: &DiskParameters, seed: u64) -> Self {
        let revolution_nanos = 60_000_000_000 / parameters.revolutions_per_minute.max(1);
        let skew_nanos = parameters.track_to_track_seek_nanos.max(parameters.head_switch_nanos)
            + parameters.write_settle_nanos;
        let heads = parameters.heads.max(1);
        let zone_count = parameters.zones.max(1);
        // A track passes in one revolution, but the next one is not under way before the skew has passed too.
        let track_bytes = |zone: u64| {
            let share = zone as f64 / (zone_count - 1).max(1) as f64;
            let outer = parameters.outer_bytes_per_second as f64;
            let rate = outer + (parameters.inner_bytes_per_second as f64 - outer) * share;
            let bytes = rate * (revolution_nanos + skew_nanos) as f64 / 1e9;
            ((bytes / BLOCK as f64).round() as u64).max(1) * BLOCK
        };
        let bytes_per_step: u64 = (0..zone_count).map(track_bytes).sum::<u64>() * heads;
        let cylinders_per_zone = parameters.capacity_bytes.div_ceil(bytes_per_step).max(1);
        let tracks_per_zone = cylinders_per_zone * heads;
        let mut first_address = 0;
        let zones = (0..zone_count)
            .map(|zone| {
                let zone = Zone { first_address, track_bytes: track_bytes(zone) };
                first_address += tracks_per_zone * zone.track_bytes;
                zone
            })
            .collect();
        let cylinders = cylinders_per_zone * zone_count;
        let full_distance = (cylinders - 1).max(3) as f64;
        let curve = SeekCurve {
            track_to_track: parameters.track_to_track_seek_nanos as f64,
            third: parameters.average_seek_nanos as f64,
            full: parameters.full_stroke_seek_nanos as f64,
            // Below two cylinders the square root would have no room between its two points.
            third_distance: (full_distance / 3.0).max(2.0),
            full_distance,
        };
        Self {
            revolution_nanos,
            skew_nanos,
            head_switch_nanos: parameters.head_switch_nanos,
            heads,
            tracks_per_zone,
            zones,
            phase_nanos: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) % revolution_nanos,
            curve,
        }
    }

    #[cfg(test)]
    pub(super) fn cylinders(&self) -> u64 {
        self.tracks_per_zone / self.heads * self.zones.len() as u64
    }

    fn place(&self, address: u64) -> Place {
        let number = self.zones.partition_point(|zone| zone.first_address <= address).saturating_sub(1);
        let Zone { first_address, track_bytes } = self.zone(number);
        let inside = address - first_address;
        Place {
            track: number as u64 * self.tracks_per_zone + inside / track_bytes,
            offset: inside % track_bytes,
            track_bytes,
        }
    }

    fn zone(&self, number: usize) -> Zone {
        let last = self.zones.len().saturating_sub(1);
        // There is at least one zone; the default keeps divisions by its track whole.
        self.zones.get(number.min(last)).copied().unwrap_or(Zone { first_address: 0, track_bytes: BLOCK })
    }

    pub(super) fn track(&self, address: u64) -> u64 {
        self.place(address).track
    }

    /// When a head that reads from address 0 on arrives at `address`.
    pub(super) fn clock(&self, address: u64) -> Nanos {
        self.clock_of(self.place(address), 0)
    }

    /// When such a head has read what lies before `end`. Earlier than its clock where a track ends.
    pub(super) fn clock_at_end(&self, end: u64) -> Nanos {
        self.clock_of(self.place(end.saturating_sub(BLOCK)), BLOCK)
    }

    fn clock_of(&self, place: Place, further_bytes: u64) -> Nanos {
        place.track * (self.revolution_nanos + self.skew_nanos)
            + (place.offset + further_bytes) * self.revolution_nanos / place.track_bytes
    }

    /// The end of the last block that such a head has read whole at `clock`.
    pub(super) fn address_at(&self, clock: Nanos) -> u64 {
        let period = self.revolution_nanos + self.skew_nanos;
        let track = clock / period;
        let number = track / self.tracks_per_zone;
        let zone = self.zone(number as usize);
        let track_in_zone = track - (number.min(self.zones.len() as u64 - 1) * self.tracks_per_zone);
        // Rounded up against the rounding down of clocks, so that a block counts as read when its clock says so.
        let passed = (clock % period).min(self.revolution_nanos) + 1;
        let bytes = (passed * zone.track_bytes / self.revolution_nanos).min(zone.track_bytes);
        zone.first_address + track_in_zone * zone.track_bytes + bytes / BLOCK * BLOCK
    }

    /// Cylinders between two tracks, and time from leaving one to being ready to read from the other.
    pub(super) fn seek(&self, from_track: u64, to_track: u64) -> (u64, Nanos) {
        if from_track == to_track {
            return (0, 0);
        }
        let distance = (from_track / self.heads).abs_diff(to_track / self.heads);
        (distance, self.curve.nanos(distance).max(self.head_switch_nanos))
    }

    /// Time from `now` until the place with this clock passes under the head next.
    pub(super) fn rotational_wait(&self, now: Nanos, clock: Nanos) -> Nanos {
        let angle = (now + self.phase_nanos) % self.revolution_nanos;
        (clock % self.revolution_nanos + self.revolution_nanos - angle) % self.revolution_nanos
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seek_curve_hits_the_three_times_of_the_data_sheet_and_never_falls() {
        let parameters = DiskParameters::disk_7200_rpm();
        let geometry = Geometry::new(&parameters, 1);
        let heads = parameters.heads;
        let seek = |distance: u64| geometry.seek(0, distance * heads).1;
        let stroke = geometry.cylinders() - 1;
        assert_eq!(seek(1), parameters.track_to_track_seek_nanos);
        assert!(seek(stroke / 3).abs_diff(parameters.average_seek_nanos) < 100);
        assert_eq!(seek(stroke), parameters.full_stroke_seek_nanos);
        assert_eq!(geometry.seek(0, 1), (0, parameters.head_switch_nanos), "same cylinder, other head");
        assert_eq!(geometry.seek(7, 7), (0, 0));
        let mut last = 0;
        for distance in (1..=stroke).step_by(97) {
            assert!(seek(distance) >= last, "distance {distance}");
            last = seek(distance);
        }
    }

    #[test]
    fn clocks_grow_with_addresses_and_lead_back_to_them() {
        let parameters = DiskParameters::disk_7200_rpm();
        let geometry = Geometry::new(&parameters, 1);
        let blocks = parameters.capacity_bytes / BLOCK;
        for block in (0..1000).chain((0..blocks).step_by(123_457)).chain(blocks - 1000..blocks) {
            let (address, end) = (block * BLOCK, (block + 1) * BLOCK);
            assert!(geometry.clock(address) < geometry.clock_at_end(end), "block {block}");
            assert!(geometry.clock_at_end(end) <= geometry.clock(end), "block {block}");
            assert_eq!(geometry.address_at(geometry.clock_at_end(end)), end, "block {block}");
            assert_eq!(geometry.address_at(geometry.clock(end)), end, "block {block}");
        }
    }

    #[test]
    fn capacity_reaches_over_all_cylinders() {
        let parameters = DiskParameters::disk_7200_rpm();
        for scale in [1, 10, 100] {
            let parameters = DiskParameters {
                capacity_bytes: parameters.capacity_bytes / scale / BLOCK * BLOCK,
                ..parameters.clone()
            };
            let geometry = Geometry::new(&parameters, 1);
            let used = geometry.track(parameters.capacity_bytes - BLOCK) / parameters.heads + 1;
            let share = used as f64 / geometry.cylinders() as f64;
            assert!((0.94..=1.0).contains(&share), "scale {scale}: {share}");
        }
    }
}
