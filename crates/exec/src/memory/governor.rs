//! The memory governor: DataFusion's [`MemoryPool`] with a way to ask for memory back.
//!
//! A plain pool can only say no. The governor first asks the spilling operators that registered a
//! [`Reclaim`] to write some of what they hold to temporary space, and says no only when nothing is left to
//! give. That is what keeps one operator from starving another: a join that has finished building holds memory
//! which a sort above it may need more. Whose memory costs least I/O to do without is asked first
//! ([`ReclaimOrder`]).
//!
//! Invariants
//! - Resident memory beside reservations makes spilling begin earlier, and causes no request to be refused.
//! - `used` exceeds the limit through [`MemoryPool::try_grow`] only for consumers that are [never refused](NEVER_REFUSED); the
//!   infallible [`MemoryPool::grow`], which DataFusion uses for memory that is already allocated, may pass it.
//! - What is cached of segments ([`MemoryGovernor::read_cache`]) is not part of `used`: nothing is refused and nothing spilled
//!   for it, as it leaves when its memory is wanted.
//! - [`Reclaim::reclaim`] runs on the thread that asks, which must hold no lock that a reclaim may want.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use datafusion::common::{DataFusionError, Result};
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation, human_readable_size,
};
use nandina_storage::{CacheBudget, ReadCache};
use parking_lot::Mutex;

use super::resident::{ResidentBound, ResidentMeter};

/// An operator that can give memory back by spilling.
pub trait Reclaim: Send + Sync {
    /// Bytes that [`Reclaim::reclaim`] could free now. An estimate that is cheap to ask for.
    fn reclaimable_bytes(&self) -> usize;

    /// Bytes that will be written and read, now and later, for each byte given back now. An estimate that is cheap to
    /// ask for; a byte written once and read once costs two.
    fn io_per_byte(&self) -> f64 {
        2.0
    }

    /// Frees at least `bytes` if it can, by spilling, and returns the bytes it spilled: 0 means that asking again frees nothing.
    /// The governor may have less of them, where the operator has consumed more input meanwhile.
    ///
    /// Called on the thread of the consumer that needs memory, so it must not wait for a lock which that thread may
    /// hold: a busy partition is skipped.
    fn reclaim(&self, bytes: usize) -> usize;
}

/// Whom the governor asks first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReclaimOrder {
    /// Whose memory costs least I/O to do without, unless it holds so little that it could no longer work well: less
    /// than a fraction of an equal share. Among equals the largest holder.
    #[default]
    LeastIo,
    /// The largest holder, whatever it costs.
    Largest,
}

/// An equal share of the limit, divided by this, is what an operator keeps while others hold more: a sort that is
/// asked for every batch writes runs of one batch each.
const KEPT_SHARE: usize = 4;

/// What each of so many holders keeps while others hold more.
fn kept_share(holders: usize, limit_bytes: usize) -> usize {
    limit_bytes / (KEPT_SHARE * holders.max(1))
}

/// What holders are asked for when `additional` bytes are missing: a little more keeps the next few requests from asking
/// again.
fn wanted_bytes(additional: usize, limit_bytes: usize) -> usize {
    additional.max(limit_bytes / 64)
}

impl ReclaimOrder {
    /// Puts those first that are to be asked first. Of each holder: the bytes it could give, what they cost.
    fn arrange<T>(self, holders: &mut [(usize, f64, T)], limit_bytes: usize) {
        let kept = kept_share(holders.len(), limit_bytes);
        holders.sort_by(|(bytes, cost, _), (other_bytes, other_cost, _)| {
            let by_size = other_bytes.cmp(bytes);
            match self {
                Self::Largest => by_size,
                Self::LeastIo => {
                    let holds_little = |bytes: &usize| *bytes < kept;
                    let by_share = holds_little(bytes).cmp(&holds_little(other_bytes));
                    by_share.then(cost.total_cmp(other_cost)).then(by_size)
                }
            }
        });
    }
}

/// What DataFusion's aggregations without groups are called. Their state is that of a single group, which is as large as
/// it is: they can spill nothing, and to refuse them memory would end the query.
const NEVER_REFUSED: &str = "AggregateStream[";

/// Grants memory under one limit, and takes it back from operators that can spill.
pub struct MemoryGovernor {
    limit_bytes: AtomicUsize,
    used_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
    /// Reservations of DataFusion's own spilling operators, which react to a refusal by spilling themselves.
    spilling_consumers: AtomicUsize,
    reclaimers: Mutex<Vec<Weak<dyn Reclaim>>>,
    order: ReclaimOrder,
    resident: Option<ResidentMeter>,
    /// What of segments is kept in memory that is not reserved, and takes so much of it.
    cache: OnceLock<Weak<dyn Cached>>,
    cached_bytes: AtomicUsize,
    most_cached_bytes: AtomicUsize,
}

/// Keeps a [`Reclaim`] registered; dropping it ends the registration.
#[must_use = "dropping the handle ends the registration"]
pub struct ReclaimHandle {
    governor: Arc<dyn MemoryPool>,
    reclaimer: Weak<dyn Reclaim>,
}

impl Drop for ReclaimHandle {
    fn drop(&mut self) {
        if let Some(governor) = self.governor.downcast_ref::<MemoryGovernor>() {
            governor.reclaimers.lock().retain(|known| !known.ptr_eq(&self.reclaimer));
        }
    }
}

impl MemoryGovernor {
    /// A governor of `limit_bytes`; `None` grants everything and only counts.
    pub fn new(limit_bytes: Option<usize>) -> Self {
        Self {
            limit_bytes: AtomicUsize::new(limit_bytes.unwrap_or(usize::MAX)),
            used_bytes: AtomicUsize::new(0),
            peak_bytes: AtomicUsize::new(0),
            spilling_consumers: AtomicUsize::new(0),
            reclaimers: Mutex::new(Vec::new()),
            order: ReclaimOrder::default(),
            resident: None,
            cache: OnceLock::new(),
            cached_bytes: AtomicUsize::new(0),
            most_cached_bytes: AtomicUsize::new(usize::MAX),
        }
    }

    /// Makes a cache of what is read, in memory that is not reserved. It gives way to everybody, and so needs no reservation.
    pub fn read_cache(self: &Arc<Self>) -> Arc<ReadCache> {
        let cache = ReadCache::new(Arc::clone(self) as Arc<dyn CacheBudget>);
        self.give_way(Arc::<ReadCache>::downgrade(&cache));
        cache
    }

    fn give_way(&self, cache: Weak<dyn Cached>) {
        assert!(self.cache.set(cache).is_ok(), "a governor has one cache");
    }

    /// Whether something may be kept in the cache from now on.
    pub fn set_caching(&self, is_on: bool) {
        self.most_cached_bytes.store(if is_on { usize::MAX } else { 0 }, Ordering::Relaxed);
        self.make_way(0);
    }

    /// Bytes that are cached now.
    pub fn cached_bytes(&self) -> usize {
        self.cached_bytes.load(Ordering::Relaxed)
    }

    /// Has the cache leave memory that is reserved now, or is needed for `pressure` bytes that are resident beside it.
    fn make_way(&self, pressure: usize) {
        let cached = self.cached_bytes();
        if cached == 0 {
            return;
        }
        let limit = self.limit_bytes.load(Ordering::Relaxed);
        let left = limit.saturating_sub(self.used_bytes()).saturating_sub(pressure);
        let excess = cached.saturating_sub(left.min(self.most_cached_bytes.load(Ordering::Relaxed)));
        if excess > 0
            && let Some(cache) = self.cache.get().and_then(Weak::upgrade)
        {
            // A little more, so that the next few requests find it free.
            cache.evict(excess.max(wanted_bytes(0, limit).min(cached)));
        }
    }

    /// Asks operators for memory in this order.
    #[must_use]
    pub fn with_order(self, order: ReclaimOrder) -> Self {
        Self { order, ..self }
    }

    /// Looks at the resident memory of the process, too: where more than `bound` allows is not reserved, operators spill
    /// as if the limit were so much smaller.
    #[must_use]
    pub fn with_resident_bound(self, bound: Option<ResidentBound>) -> Self {
        Self { resident: bound.map(ResidentMeter::new), ..self }
    }

    /// The limit in bytes; `None` when there is none.
    pub fn limit_bytes(&self) -> Option<usize> {
        match self.limit_bytes.load(Ordering::Relaxed) {
            usize::MAX => None,
            bytes => Some(bytes),
        }
    }

    /// Changes the limit for reservations made from now on; granted memory stays granted.
    pub fn set_limit_bytes(&self, limit_bytes: Option<usize>) {
        self.limit_bytes.store(limit_bytes.unwrap_or(usize::MAX), Ordering::Relaxed);
        self.make_way(0);
    }

    /// Bytes reserved now.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// The most bytes that were reserved at any one time.
    pub fn peak_bytes(&self) -> usize {
        self.peak_bytes.load(Ordering::Relaxed)
    }

    /// Registers an operator that can spill, if `pool` is a governor: other pools cannot ask.
    pub fn register_reclaimer(
        pool: &Arc<dyn MemoryPool>,
        reclaimer: Weak<dyn Reclaim>,
    ) -> Option<ReclaimHandle> {
        let governor = pool.downcast_ref::<MemoryGovernor>()?;
        governor.reclaimers.lock().push(Weak::clone(&reclaimer));
        Some(ReclaimHandle { governor: Arc::clone(pool), reclaimer })
    }

    /// Takes `additional` bytes if they fit under the limit. Nothing always fits, even if others have passed it.
    fn take(&self, additional: usize) -> bool {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        let taken = self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(additional).filter(|&sum| sum <= limit_bytes || additional == 0)
        });
        if let Ok(before) = taken {
            self.peak_bytes.fetch_max(before + additional, Ordering::Relaxed);
            self.make_way(0);
        }
        taken.is_ok()
    }

    /// If more than is allowed is resident beside reservations, has holders spill until `additional` bytes would fit under a
    /// limit that is so much smaller. Holders of very little keep it: that is no reason for runs of one batch.
    fn relieve(&self, additional: usize) {
        /// So many times consumers are asked for one request.
        const MOST_ROUNDS: usize = 16;
        /// A holder keeps its kept share divided by this.
        const KEPT_PART: usize = 4;
        let Some(meter) = &self.resident else { return };
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        let pressure = meter.pressure(limit_bytes, self.used_bytes().saturating_add(self.cached_bytes()));
        self.make_way(pressure);
        let aim_bytes = limit_bytes - pressure;
        let wanted = wanted_bytes(additional, limit_bytes);
        for _ in 0..MOST_ROUNDS {
            if self.used_bytes().saturating_add(additional) <= aim_bytes {
                return;
            }
            let holders = self.holders(limit_bytes);
            let kept_bytes = kept_share(holders.len(), limit_bytes) / KEPT_PART;
            let mut others = holders.into_iter().filter(|(bytes, ..)| *bytes > kept_bytes);
            if !others.any(|(.., holder)| holder.reclaim(wanted) > 0) {
                return;
            }
        }
    }

    /// The holders that can give memory, in the order in which they are asked.
    fn holders(&self, limit_bytes: usize) -> Vec<(usize, f64, Arc<dyn Reclaim>)> {
        // Dropping the last reference to one ends its registration: never under the lock.
        let registered: Vec<Arc<dyn Reclaim>> =
            self.reclaimers.lock().iter().filter_map(Weak::upgrade).collect();
        let mut holders: Vec<(usize, f64, Arc<dyn Reclaim>)> = registered
            .into_iter()
            .map(|holder| (holder.reclaimable_bytes(), holder.io_per_byte(), holder))
            .filter(|(bytes, ..)| *bytes > 0)
            .collect();
        self.order.arrange(&mut holders, limit_bytes);
        holders
    }

    /// Asks one holder after the other for memory until `additional` bytes fit or none gives any.
    fn reclaim_for(&self, additional: usize) -> bool {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        let wanted = wanted_bytes(additional, limit_bytes);
        loop {
            if !self.holders(limit_bytes).into_iter().any(|(.., holder)| holder.reclaim(wanted) > 0) {
                // Another consumer may have been granted the memory just freed, or have freed what this one was to
                // give.
                return self.take(additional);
            }
            if self.take(additional) {
                return true;
            }
        }
    }

    /// A consumer that spills by itself when refused is refused once it holds its fair share: taking a
    /// join's memory for it would only move the spill from one operator to another. One that holds nothing has nothing
    /// to spill: refusing it would end the query.
    fn over_fair_share(&self, reservation: &MemoryReservation, additional: usize) -> bool {
        if !reservation.consumer().can_spill() || reservation.size() == 0 {
            return false;
        }
        if self.starves_others(reservation, additional) {
            return true;
        }
        let reclaimers = self.reclaimers.lock().len();
        let holders = (self.spilling_consumers.load(Ordering::Relaxed) + reclaimers).max(1);
        reservation.size() + additional > self.limit_bytes.load(Ordering::Relaxed) / holders
    }

    /// Whether a consumer that spills by itself would take what another of its kind needs. Neither can be asked for
    /// memory, so what one has taken is gone for the other, which may not have come to its first row yet.
    fn starves_others(&self, reservation: &MemoryReservation, additional: usize) -> bool {
        let consumers = self.spilling_consumers.load(Ordering::Relaxed);
        let is_alone = consumers < 2 || !reservation.consumer().can_spill() || reservation.size() == 0;
        // One share is left for all other operators.
        !is_alone
            && reservation.size() + additional > self.limit_bytes.load(Ordering::Relaxed) / (consumers + 1)
    }

    fn refusal(&self, reservation: &MemoryReservation, additional: usize) -> DataFusionError {
        let limit = self.limit_bytes.load(Ordering::Relaxed);
        DataFusionError::ResourcesExhausted(format!(
            "{} needs {} more memory, but {} of the limit of {} are in use and nothing more can be spilled. \
             Raise the limit (-m, SET memory_limit) or lower the number of threads (SET threads)",
            reservation.consumer().name(),
            human_readable_size(additional),
            human_readable_size(self.used_bytes()),
            human_readable_size(limit),
        ))
    }
}

impl MemoryPool for MemoryGovernor {
    fn name(&self) -> &str {
        "nandina_governor"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        if consumer.can_spill() {
            self.spilling_consumers.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        if consumer.can_spill() {
            self.spilling_consumers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn grow(&self, _reservation: &MemoryReservation, additional: usize) {
        let before = self.used_bytes.fetch_add(additional, Ordering::Relaxed);
        self.peak_bytes.fetch_max(before + additional, Ordering::Relaxed);
        self.make_way(0);
    }

    fn shrink(&self, _reservation: &MemoryReservation, shrink: usize) {
        self.used_bytes.fetch_sub(shrink, Ordering::Relaxed);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.relieve(additional);
        if !self.starves_others(reservation, additional) && self.take(additional) {
            return Ok(());
        }
        if !self.over_fair_share(reservation, additional) && self.reclaim_for(additional) {
            return Ok(());
        }
        if reservation.consumer().name().starts_with(NEVER_REFUSED) {
            self.grow(reservation, additional);
            return Ok(());
        }
        Err(self.refusal(reservation, additional))
    }

    fn reserved(&self) -> usize {
        self.used_bytes()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.limit_bytes().map_or(MemoryLimit::Infinite, MemoryLimit::Finite)
    }
}

/// What is in memory only as long as nobody else needs it.
trait Cached: Send + Sync {
    /// Has so many bytes leave, or all there are.
    fn evict(&self, bytes: usize);
}

impl Cached for ReadCache {
    fn evict(&self, bytes: usize) {
        Self::evict(self, bytes);
    }
}

/// Below this limit nothing is cached: operators hold more beside their reservations than would be of use.
const LEAST_CACHING_LIMIT_BYTES: usize = 64 << 20;
/// The cache has half of the limit at most: what operators do not reserve has to fit in beside it.
const CACHED_SHARE: usize = 2;
/// It leaves this share of the limit free.
const KEPT_FREE_SHARE: usize = 8;

impl CacheBudget for MemoryGovernor {
    fn try_take(&self, bytes: usize) -> bool {
        let limit = self.limit_bytes.load(Ordering::Relaxed);
        if limit < LEAST_CACHING_LIMIT_BYTES {
            return false;
        }
        // What is about to be reserved need not evict at once.
        let free = limit.saturating_sub(self.used_bytes()).saturating_sub(limit / KEPT_FREE_SHARE);
        let most = (limit / CACHED_SHARE).min(self.most_cached_bytes.load(Ordering::Relaxed)).min(free);
        let taken = self.cached_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |cached| {
            cached.checked_add(bytes).filter(|&sum| sum <= most)
        });
        taken.is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.cached_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl fmt::Debug for MemoryGovernor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryGovernor")
            .field("limit_bytes", &self.limit_bytes())
            .field("used_bytes", &self.used_bytes())
            .field("peak_bytes", &self.peak_bytes())
            .finish_non_exhaustive()
    }
}

impl fmt::Display for MemoryGovernor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limit_bytes().map_or_else(|| "no limit".to_owned(), human_readable_size);
        write!(f, "memory governor: {} used of {limit}", human_readable_size(self.used_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds a reservation and gives it back in pieces.
    struct Holder(MemoryReservation);

    impl Reclaim for Holder {
        fn reclaimable_bytes(&self) -> usize {
            self.0.size()
        }

        fn reclaim(&self, bytes: usize) -> usize {
            let given = bytes.min(self.0.size());
            self.0.shrink(given);
            given
        }
    }

    fn pool(limit: usize) -> Arc<dyn MemoryPool> {
        Arc::new(MemoryGovernor::new(Some(limit)))
    }

    #[test]
    fn refuses_beyond_the_limit_and_names_the_consumer() {
        let pool = pool(1000);
        let scan = MemoryConsumer::new("scan").register(&pool);
        scan.try_grow(900).unwrap();
        let error = scan.try_grow(200).unwrap_err().to_string();
        assert!(error.contains("scan needs 200"), "{error}");
        assert_eq!(pool.reserved(), 900);
    }

    /// Its owner drops it while it is asked what it has.
    struct Leaving {
        owned: Mutex<Option<Arc<Leaving>>>,
        handle: Mutex<Option<ReclaimHandle>>,
    }

    impl Reclaim for Leaving {
        fn reclaimable_bytes(&self) -> usize {
            drop(self.owned.lock().take());
            0
        }

        fn reclaim(&self, _bytes: usize) -> usize {
            0
        }
    }

    #[test]
    fn an_operator_may_end_while_it_is_asked() {
        let pool = pool(1000);
        let leaving = Arc::new(Leaving { owned: Mutex::new(None), handle: Mutex::new(None) });
        *leaving.handle.lock() =
            MemoryGovernor::register_reclaimer(&pool, Arc::<Leaving>::downgrade(&leaving));
        *leaving.owned.lock() = Some(Arc::clone(&leaving));
        drop(leaving);
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let scan = MemoryConsumer::new("scan").register(&pool);
            sender.send(scan.try_grow(2000).is_err()).unwrap();
        });
        assert_eq!(receiver.recv_timeout(std::time::Duration::from_secs(60)), Ok(true));
    }

    #[test]
    fn nothing_is_granted_beyond_the_limit() {
        let pool = pool(1000);
        let others = MemoryConsumer::new("others").register(&pool);
        others.grow(1500);
        let scan = MemoryConsumer::new("scan").register(&pool);
        scan.try_grow(0).unwrap();
        assert!(scan.try_grow(1).is_err());
    }

    #[test]
    fn an_aggregation_without_groups_is_never_refused() {
        let pool = pool(1000);
        let reservation = MemoryConsumer::new("join").register(&pool);
        reservation.try_grow(900).unwrap();
        let holder: Arc<dyn Reclaim> = Arc::new(Holder(reservation));
        let _handle = MemoryGovernor::register_reclaimer(&pool, Arc::downgrade(&holder));
        let state = MemoryConsumer::new("AggregateStream[1]").register(&pool);
        state.try_grow(5000).unwrap();
        assert_eq!((state.size(), holder.reclaimable_bytes()), (5000, 0), "others spill first");
    }

    #[test]
    fn memory_is_taken_where_that_costs_least() {
        let asked = |order: ReclaimOrder, mut holders: Vec<(usize, f64, &'static str)>| {
            order.arrange(&mut holders, 1200);
            holders.into_iter().map(|(.., name)| name).collect::<Vec<_>>()
        };
        let holders = vec![(400, 20.0, "join"), (200, 2.0, "sort"), (300, 2.0, "groups")];
        assert_eq!(asked(ReclaimOrder::LeastIo, holders.clone()), ["groups", "sort", "join"]);
        assert_eq!(asked(ReclaimOrder::Largest, holders), ["join", "groups", "sort"]);
        let starved = vec![(400, 20.0, "join"), (99, 2.0, "sort"), (300, 6.0, "groups")];
        assert_eq!(asked(ReclaimOrder::LeastIo, starved), ["groups", "join", "sort"]);
    }

    /// Gives cached memory back when it is asked to.
    struct Cache(Arc<MemoryGovernor>);

    impl Cached for Cache {
        fn evict(&self, bytes: usize) {
            self.0.give_back(bytes.min(self.0.cached_bytes()));
        }
    }

    #[test]
    fn what_is_cached_leaves_when_its_memory_is_wanted() {
        const MB: usize = 1 << 20;
        let governor = Arc::new(MemoryGovernor::new(Some(100 * MB)));
        let cache = Arc::new(Cache(Arc::clone(&governor)));
        governor.give_way(Arc::<Cache>::downgrade(&cache));
        assert!(governor.try_take(50 * MB) && !governor.try_take(1), "half of the limit at most");
        let pool: Arc<dyn MemoryPool> = Arc::clone(&governor) as _;
        let sort = MemoryConsumer::new("sort").with_can_spill(true).register(&pool);
        sort.try_grow(40 * MB).unwrap();
        assert_eq!(governor.cached_bytes(), 50 * MB, "there is room for both");
        // Whatever is cached, what fits into the limit is granted, and a little more leaves than has to.
        sort.try_grow(30 * MB).unwrap();
        let cached = governor.cached_bytes();
        assert!((28 * MB..=30 * MB).contains(&cached), "{cached}");
        assert!(!governor.try_take(1), "an eighth of the limit stays free");
        sort.try_grow(30 * MB).unwrap();
        assert_eq!((governor.used_bytes(), governor.cached_bytes()), (100 * MB, 0));
        drop(sort);
        assert!(governor.try_take(40 * MB));
        governor.set_limit_bytes(Some(70 * MB));
        assert_eq!(governor.cached_bytes(), 40 * MB);
        governor.set_limit_bytes(Some(30 * MB));
        assert!(governor.cached_bytes() <= 30 * MB && !governor.try_take(1), "such a limit has no cache");
        governor.set_limit_bytes(Some(100 * MB));
        governor.set_caching(false);
        assert!(governor.cached_bytes() == 0 && !governor.try_take(1));
        governor.set_caching(true);
        assert!(governor.try_take(1));
    }

    #[test]
    fn resident_memory_makes_the_cache_leave_before_others_spill() {
        const MB: usize = 1 << 20;
        // 130 MB are resident, of which 30 are neither reserved nor cached, and none of these is allowed.
        let bound = ResidentBound { allowed_bytes: 0, measure: || Some(130 << 20), give_back: || {} };
        let governor = MemoryGovernor::new(Some(100 * MB)).with_resident_bound(Some(bound));
        let governor = Arc::new(governor);
        let cache = Arc::new(Cache(Arc::clone(&governor)));
        governor.give_way(Arc::<Cache>::downgrade(&cache));
        let pool: Arc<dyn MemoryPool> = Arc::clone(&governor) as _;
        let reservation = MemoryConsumer::new("join").register(&pool);
        reservation.grow(55 * MB);
        let holder: Arc<dyn Reclaim> = Arc::new(Holder(reservation));
        let _handle = MemoryGovernor::register_reclaimer(&pool, Arc::downgrade(&holder));
        governor.cached_bytes.store(45 * MB, Ordering::Relaxed);
        let scan = MemoryConsumer::new("scan").register(&pool);
        scan.try_grow(10 * MB).unwrap();
        assert_eq!(holder.reclaimable_bytes(), 55 * MB, "nothing was spilled");
        assert!(governor.cached_bytes() <= 15 * MB, "{}", governor.cached_bytes());
    }

    #[test]
    fn asks_the_largest_holder_first() {
        let pool = pool(1000);
        let hold = |bytes| {
            let reservation = MemoryConsumer::new("join").register(&pool);
            reservation.try_grow(bytes).unwrap();
            let holder: Arc<dyn Reclaim> = Arc::new(Holder(reservation));
            let handle = MemoryGovernor::register_reclaimer(&pool, Arc::downgrade(&holder));
            (holder, handle)
        };
        let (small, _small_handle) = hold(300);
        let (large, _large_handle) = hold(600);
        let sort = MemoryConsumer::new("aggregate").register(&pool);
        sort.try_grow(200).unwrap();
        assert_eq!(small.reclaimable_bytes(), 300);
        assert_eq!(large.reclaimable_bytes(), 400);
        assert_eq!(pool.reserved(), 900);
    }

    #[test]
    fn a_dropped_handle_is_not_asked_again() {
        let pool = pool(1000);
        let reservation = MemoryConsumer::new("join").register(&pool);
        reservation.try_grow(1000).unwrap();
        let holder: Arc<dyn Reclaim> = Arc::new(Holder(reservation));
        drop(MemoryGovernor::register_reclaimer(&pool, Arc::downgrade(&holder)));
        let other = MemoryConsumer::new("other").register(&pool);
        assert!(other.try_grow(1).is_err());
        assert_eq!(holder.reclaimable_bytes(), 1000);
    }

    #[test]
    fn a_spilling_consumer_is_refused_beyond_its_fair_share() {
        let pool = pool(1000);
        let reservation = MemoryConsumer::new("join").register(&pool);
        reservation.try_grow(1000).unwrap();
        let holder: Arc<dyn Reclaim> = Arc::new(Holder(reservation));
        let _handle = MemoryGovernor::register_reclaimer(&pool, Arc::downgrade(&holder));
        let sort = MemoryConsumer::new("sort").with_can_spill(true).register(&pool);
        sort.try_grow(400).unwrap();
        assert!(sort.try_grow(200).is_err(), "half of the limit is the share of one of two holders");
        assert_eq!(holder.reclaimable_bytes(), 600);
    }

    #[test]
    fn a_spilling_consumer_that_holds_nothing_is_not_refused_for_its_share() {
        let pool = pool(1000);
        let reservation = MemoryConsumer::new("join").register(&pool);
        reservation.try_grow(900).unwrap();
        let holder: Arc<dyn Reclaim> = Arc::new(Holder(reservation));
        let _handle = MemoryGovernor::register_reclaimer(&pool, Arc::downgrade(&holder));
        let sort = MemoryConsumer::new("sort").with_can_spill(true).register(&pool);
        sort.try_grow(700).unwrap();
        assert_eq!(holder.reclaimable_bytes(), 200);
        assert!(sort.try_grow(200).is_err(), "now it has something to spill");
    }

    #[test]
    fn what_is_resident_makes_others_spill_and_refuses_nothing() {
        const KIB: usize = 1 << 10;
        // Of a process that has 600 KiB beside its reservations, none of which is allowed.
        let bound = ResidentBound { allowed_bytes: 0, measure: || Some(1400 << 10), give_back: || {} };
        let governor = MemoryGovernor::new(Some(1000 * KIB)).with_resident_bound(Some(bound));
        let pool: Arc<dyn MemoryPool> = Arc::new(governor);
        let reservation = MemoryConsumer::new("join").register(&pool);
        reservation.grow(800 * KIB);
        let holder: Arc<dyn Reclaim> = Arc::new(Holder(reservation));
        let _handle = MemoryGovernor::register_reclaimer(&pool, Arc::downgrade(&holder));
        let scan = MemoryConsumer::new("scan").register(&pool);
        scan.try_grow(100 * KIB).unwrap();
        assert_eq!(holder.reclaimable_bytes(), 400 * KIB, "half of the limit at most");
        scan.try_grow(100 * KIB).unwrap();
        scan.try_grow(100 * KIB).unwrap();
        assert_eq!(holder.reclaimable_bytes(), 200 * KIB);
        scan.try_grow(150 * KIB).unwrap();
        assert_eq!(holder.reclaimable_bytes(), 50 * KIB);
        scan.try_grow(500 * KIB).unwrap();
        assert_eq!(holder.reclaimable_bytes(), 50 * KIB, "a sixteenth of the limit is kept");
        drop(holder);
        scan.try_grow(50 * KIB).unwrap();
        assert!(scan.try_grow(KIB).is_err());
    }

    #[test]
    fn spilling_consumers_leave_each_other_a_share() {
        let pool = pool(900);
        let sort = || MemoryConsumer::new("sort").with_can_spill(true).register(&pool);
        let (first, second) = (sort(), sort());
        first.try_grow(300).unwrap();
        assert!(first.try_grow(1).is_err(), "the other has not begun");
        second.try_grow(300).unwrap();
        drop(second);
        first.try_grow(500).unwrap();
    }
}
