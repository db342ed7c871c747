//! Locks and atomic numbers of everything but the log, and the wait of a thread that has nothing to do.
//!
//! They are `parking_lot`'s and the standard library's. `rowstore-schedules` builds the same sources with locks of `shuttle`, whose scheduler
//! decides before every step which thread goes on.

#[cfg(not(feature = "scheduled"))]
pub use std::sync::atomic;

#[cfg(not(feature = "scheduled"))]
pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(feature = "scheduled")]
pub use self::scheduled::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic};

/// Lets others go on for a moment.
pub fn pause() {
    #[cfg(not(feature = "scheduled"))]
    std::thread::sleep(std::time::Duration::from_micros(100));
    #[cfg(feature = "scheduled")]
    shuttle::thread::yield_now();
}

/// Locks with the interface of `parking_lot`, of which `shuttle` sees every step.
#[cfg(feature = "scheduled")]
mod scheduled {
    use std::ops::{Deref, DerefMut};
    use std::sync::{PoisonError, TryLockError};
    use std::time::Duration;

    pub use shuttle::sync::{MutexGuard, atomic};

    /// A thread that panics ends its schedule: what it leaves behind is looked at by nobody.
    fn unpoisoned<T>(locked: Result<T, PoisonError<T>>) -> T {
        locked.unwrap_or_else(PoisonError::into_inner)
    }

    fn tried<T>(locked: Result<T, TryLockError<T>>) -> Option<T> {
        match locked {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    #[derive(Debug, Default)]
    pub struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            unpoisoned(self.0.lock())
        }

        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            tried(self.0.try_lock())
        }
    }

    /// Readers that come wait for a writer that waits, as in `parking_lot`.
    #[derive(Debug, Default)]
    pub struct RwLock<T> {
        holders: Mutex<Holders>,
        changed: shuttle::sync::Condvar,
        /// All threads of a schedule run on one thread of the operating system, so that this lock is free for the holder of the other.
        value: std::sync::RwLock<T>,
    }

    #[derive(Debug, Default)]
    struct Holders {
        readers: usize,
        is_written: bool,
        waiting_writers: usize,
    }

    impl Holders {
        fn read(&mut self) -> bool {
            let is_free = !self.is_written && self.waiting_writers == 0;
            self.readers += usize::from(is_free);
            is_free
        }

        fn write(&mut self) -> bool {
            let is_free = !self.is_written && self.readers == 0;
            self.is_written |= is_free;
            is_free
        }
    }

    pub struct RwLockReadGuard<'a, T> {
        lock: &'a RwLock<T>,
        value: Option<std::sync::RwLockReadGuard<'a, T>>,
    }

    pub struct RwLockWriteGuard<'a, T> {
        lock: &'a RwLock<T>,
        value: Option<std::sync::RwLockWriteGuard<'a, T>>,
    }

    impl<T> RwLock<T> {
        pub fn new(value: T) -> Self {
            Self { holders: Mutex::default(), changed: Default::default(), value: value.into() }
        }

        fn reading(&self) -> RwLockReadGuard<'_, T> {
            RwLockReadGuard { lock: self, value: tried(self.value.try_read()) }
        }

        fn writing(&self) -> RwLockWriteGuard<'_, T> {
            RwLockWriteGuard { lock: self, value: tried(self.value.try_write()) }
        }

        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            let mut holders = self.holders.lock();
            while !holders.read() {
                holders = unpoisoned(self.changed.wait(holders));
            }
            drop(holders);
            self.reading()
        }

        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            let mut holders = self.holders.lock();
            holders.waiting_writers += 1;
            while !holders.write() {
                holders = unpoisoned(self.changed.wait(holders));
            }
            holders.waiting_writers -= 1;
            drop(holders);
            self.writing()
        }

        pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
            let is_read = self.holders.lock().read();
            is_read.then(|| self.reading())
        }

        pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
            let is_written = self.holders.lock().write();
            is_written.then(|| self.writing())
        }

        /// There is no time: those who wait so long see to it that others go on, and try again.
        pub fn try_read_for(&self, _patience: Duration) -> Option<RwLockReadGuard<'_, T>> {
            let locked = self.try_read();
            if locked.is_none() {
                shuttle::thread::yield_now();
            }
            locked
        }

        pub fn try_write_for(&self, _patience: Duration) -> Option<RwLockWriteGuard<'_, T>> {
            /// Times that a writer looks whether readers have left, while which no others come.
            const LOOKS: usize = 3;
            self.holders.lock().waiting_writers += 1;
            let mut is_written = false;
            for _ in 0..LOOKS {
                is_written = self.holders.lock().write();
                if is_written {
                    break;
                }
                shuttle::thread::yield_now();
            }
            self.holders.lock().waiting_writers -= 1;
            self.changed.notify_all();
            is_written.then(|| self.writing())
        }
    }

    impl<'a, T> RwLockWriteGuard<'a, T> {
        /// Nobody else can write in between.
        pub fn downgrade(mut this: Self) -> RwLockReadGuard<'a, T> {
            let lock = this.lock;
            this.value = None;
            std::mem::forget(this);
            let mut holders = lock.holders.lock();
            holders.is_written = false;
            holders.readers += 1;
            drop(holders);
            lock.changed.notify_all();
            lock.reading()
        }
    }

    impl<T> Drop for RwLockReadGuard<'_, T> {
        fn drop(&mut self) {
            self.value = None;
            self.lock.holders.lock().readers -= 1;
            self.lock.changed.notify_all();
        }
    }

    impl<T> Drop for RwLockWriteGuard<'_, T> {
        fn drop(&mut self) {
            self.value = None;
            self.lock.holders.lock().is_written = false;
            self.lock.changed.notify_all();
        }
    }

    const HELD: &str = "the value is free for the holder of the lock";

    impl<T> Deref for RwLockReadGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.value.as_deref().unwrap_or_else(|| unreachable!("{HELD}"))
        }
    }

    impl<T> Deref for RwLockWriteGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.value.as_deref().unwrap_or_else(|| unreachable!("{HELD}"))
        }
    }

    impl<T> DerefMut for RwLockWriteGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.value.as_deref_mut().unwrap_or_else(|| unreachable!("{HELD}"))
        }
    }
}
