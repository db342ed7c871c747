//! How long operations took, in a few kilobytes.

use std::time::Duration;

/// Steps within a factor of two: what is read from it is right within 9 %.
const STEPS: f64 = 8.0;
const BUCKETS: usize = 8 * 40;

/// Numbers of operations by the logarithm of their nanoseconds.
#[derive(Debug, Clone)]
pub struct Latencies(Vec<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self(vec![0; BUCKETS])
    }
}

impl Latencies {
    pub fn add(&mut self, took: Duration) {
        let at = (took.as_nanos().max(1) as f64).log2() * STEPS;
        let last = BUCKETS - 1;
        if let Some(bucket) = self.0.get_mut((at as usize).min(last)) {
            *bucket += 1;
        }
    }

    pub fn add_all(&mut self, others: &Self) {
        self.0.iter_mut().zip(&others.0).for_each(|(to, from)| *to += from);
    }

    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The seconds that this part of the operations stayed below.
    pub fn quantile(&self, part: f64) -> f64 {
        let wanted = (self.count() as f64 * part).ceil() as u64;
        let mut seen = 0;
        let at = self.0.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        at.map_or(0.0, |at| ((at + 1) as f64 / STEPS).exp2() / 1e9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_within_a_step() {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|micros| latencies.add(Duration::from_micros(micros)));
        for (part, seconds) in [(0.5, 500e-6), (0.99, 990e-6), (1.0, 1e-3)] {
            let told = latencies.quantile(part);
            assert!((seconds..seconds * 1.2).contains(&told), "{part}: {told}");
        }
        assert_eq!(latencies.count(), 1000);
    }
}
