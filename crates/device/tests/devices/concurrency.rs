//! Blocking threads and async tasks share a device: nobody misses a completion, whoever drives the ring.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use crate::setup;

use futures::StreamExt;
use futures::executor::block_on;
use nandina_device::{Device, DeviceOptions, File, FileClass, IoAccount, Request};
use setup::{KIB4, filled, real_devices};

const BLOCKS: u64 = 512;

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn reads(device: &Device, file: &File, state: &mut u64, count: u64) -> (Vec<u64>, Vec<(File, Request)>) {
    let blocks: Vec<u64> = (0..count).map(|_| random(state) % BLOCKS).collect();
    let requests = blocks
        .iter()
        .map(|block| (file.clone(), Request::read(block * KIB4 as u64, device.buffer(KIB4))))
        .collect();
    (blocks, requests)
}

fn check(block: u64, completion: nandina_device::Completion) {
    let buffer = completion.into_buffer().unwrap();
    assert_eq!(buffer[..8], block.to_le_bytes());
}

fn work(device: &Device, file: &File, kind: u64, account: &std::sync::Arc<IoAccount>) -> u64 {
    let mut state = kind * 0x9e37_79b9 + 1;
    let mut done = 0;
    for _ in 0..150 {
        let count = random(&mut state) % 20;
        let (blocks, requests) = reads(device, file, &mut state, count);
        let mut batch = device.submit_many(requests, Some(account));
        done += count;
        match kind % 5 {
            0 => blocks.iter().zip(batch.wait().unwrap()).for_each(|(&block, piece)| check(block, piece)),
            1 => {
                while let Some(piece) = batch.next_blocking() {
                    let (index, completion) = piece.unwrap();
                    check(blocks[index], completion);
                }
            }
            2 => {
                let pieces = block_on(batch.wait_async()).unwrap();
                blocks.iter().zip(pieces).for_each(|(&block, piece)| check(block, piece));
            }
            3 => block_on(async {
                while let Some(piece) = batch.next().await {
                    let (index, completion) = piece.unwrap();
                    check(blocks[index], completion);
                }
            }),
            // Submits, does something else, and leaves some behind unread.
            _ => {
                std::thread::yield_now();
                for _ in 0..count / 2 {
                    batch.next_blocking().unwrap().unwrap();
                }
                drop(batch);
            }
        }
    }
    done
}

#[test]
fn every_waiter_is_served() {
    for max_depth in [4, 256] {
        for setup in real_devices(&DeviceOptions { max_depth, ..DeviceOptions::default() }) {
            let device = &setup.device;
            let file = device.create("data", FileClass::Table).unwrap();
            let mut contents = filled(device, BLOCKS as usize * KIB4, 0);
            for (block, bytes) in contents.chunks_mut(KIB4).enumerate() {
                bytes[..8].copy_from_slice(&(block as u64).to_le_bytes());
            }
            file.write_blocking(0, contents).unwrap();
            let complete = IoAccount::new();
            let partial = IoAccount::new();
            let submitted: u64 = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..10u64)
                    .map(|kind| {
                        let account = if kind % 5 == 4 { &partial } else { &complete };
                        let file = &file;
                        (kind, scope.spawn(move || work(device, file, kind, account)))
                    })
                    .collect();
                let done = threads.into_iter().map(|(kind, thread)| (kind, thread.join().unwrap()));
                done.filter(|(kind, _)| kind % 5 != 4).map(|(_, count)| count).sum()
            });
            let figures = complete.statistics();
            assert_eq!(figures.read_requests, submitted, "{}", setup.name);
            assert_eq!(figures.bytes_read, submitted * KIB4 as u64);
            assert_eq!(figures.in_flight, 0);
            assert_eq!(figures.latency_histogram.iter().sum::<u64>(), submitted);
        }
    }
}

/// One thread reads ahead without waiting while another keeps driving: read-ahead ends by itself.
#[test]
fn unattended_requests_end_and_are_counted() {
    for setup in real_devices(&DeviceOptions::default()) {
        let device = &setup.device;
        let file = device.create("data", FileClass::Table).unwrap();
        file.write_blocking(0, filled(device, 1 << 20, 1)).unwrap();
        for round in 1..=20u64 {
            let mut window = device.batch(None);
            let mut state = round;
            window.add(
                reads(device, &file, &mut state, 32)
                    .1
                    .into_iter()
                    .map(|(file, request)| match request {
                        Request::Read { offset, buffer } => (file, Request::read(offset % (1 << 20), buffer)),
                        write => (file, write),
                    })
                    .collect(),
            );
            window.next_blocking().unwrap().unwrap();
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
            while device.counters().total().in_flight > 0 {
                assert!(std::time::Instant::now() < deadline, "{}: requests stay in flight", setup.name);
                std::thread::yield_now();
            }
            assert_eq!(window.wait().unwrap().len(), 31);
        }
    }
}
