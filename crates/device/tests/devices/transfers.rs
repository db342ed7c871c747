//! Reads and writes move the right bytes, on every backend.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use crate::setup;

use futures::StreamExt;
use futures::executor::block_on;
use nandina_device::{Completion, FileClass, IoAccount, OpenMode, Request, WriteBuffer};
use setup::{KIB4, all_devices, filled};

#[test]
fn what_was_written_is_read() {
    for setup in all_devices() {
        let device = &setup.device;
        let file = device.create("data", FileClass::Table).unwrap();
        let writes = (0..64u8)
            .rev()
            .map(|i| Request::write(u64::from(i) * KIB4 as u64, filled(device, KIB4, i)))
            .collect();
        let completions = file.submit(writes).wait().unwrap();
        assert_eq!(completions.len(), 64, "{}", setup.name);
        assert!(completions.iter().all(|completion| completion.bytes() == KIB4 as u64));
        assert_eq!(file.len().unwrap(), 64 * KIB4 as u64);

        let reads = (0..32u64)
            .map(|i| Request::Read { offset: i * 2 * KIB4 as u64, buffer: device.buffer(2 * KIB4) })
            .collect();
        let completions = file.submit(reads).wait().unwrap();
        for (i, completion) in completions.into_iter().enumerate() {
            let Completion::Read { buffer } = completion else { panic!("a read gives a buffer") };
            assert!(buffer[..KIB4].iter().all(|&byte| byte == 2 * i as u8), "{}", setup.name);
            assert!(buffer[KIB4..].iter().all(|&byte| byte == 2 * i as u8 + 1));
        }
    }
}

#[test]
fn a_vectored_write_is_one_request_over_consecutive_bytes() {
    for setup in all_devices() {
        let device = &setup.device;
        let file = device.create("data", FileClass::Temp).unwrap();
        // More parts than one system call takes.
        let parts: Vec<WriteBuffer> =
            (0..1500usize).map(|i| filled(device, KIB4, (i % 251) as u8).into()).collect();
        let account = IoAccount::new();
        file.submit_for(vec![Request::Write { offset: KIB4 as u64, buffers: parts }], &account)
            .wait()
            .unwrap();
        assert_eq!(account.statistics().write_requests, 1);
        assert_eq!(account.statistics().bytes_written, 1500 * KIB4 as u64);
        let all = file.read_blocking(KIB4 as u64, device.buffer(1500 * KIB4)).unwrap();
        for (i, block) in all.chunks(KIB4).enumerate() {
            assert!(block.iter().all(|&byte| byte == (i % 251) as u8), "{} block {i}", setup.name);
        }
    }
}

#[test]
fn slices_of_one_frozen_buffer_are_written_without_copying() {
    for setup in all_devices() {
        let device = &setup.device;
        let file = device.create("data", FileClass::Temp).unwrap();
        let mut buffer = device.buffer(3 * KIB4);
        for (i, block) in buffer.chunks_mut(KIB4).enumerate() {
            block.fill(i as u8 + 1);
        }
        let bytes = buffer.freeze();
        let parts = vec![bytes.slice(2 * KIB4..).into(), bytes.slice(..KIB4).into()];
        file.submit(vec![Request::Write { offset: 0, buffers: parts }]).wait().unwrap();
        let read = file.read_blocking(0, device.buffer(2 * KIB4)).unwrap();
        assert_eq!((read[0], read[KIB4]), (3, 1), "{}", setup.name);
    }
}

#[test]
fn a_batch_spans_files() {
    for setup in all_devices() {
        let device = &setup.device;
        let files: Vec<_> =
            (0..4).map(|i| device.create(&format!("part-{i}"), FileClass::Temp).unwrap()).collect();
        let requests = files
            .iter()
            .zip(1..)
            .map(|(file, value)| (file.clone(), Request::write(0, filled(device, KIB4, value))))
            .collect();
        assert_eq!(device.submit_many(requests, None).wait().unwrap().len(), 4);
        for (file, value) in files.iter().zip(1..) {
            assert_eq!(file.read_blocking(0, device.buffer(KIB4)).unwrap()[77], value, "{}", setup.name);
        }
    }
}

#[test]
fn pieces_arrive_once_each_and_windows_stay_open() {
    for setup in all_devices() {
        let device = &setup.device;
        let file = device.create("data", FileClass::Table).unwrap();
        file.write_blocking(0, filled(device, 256 * KIB4, 9)).unwrap();
        let mut window = device.batch(None);
        let read = |i: usize| (file.clone(), Request::read((i % 256 * KIB4) as u64, device.buffer(KIB4)));
        assert_eq!(window.add((0..8).map(read).collect()), 0..8);
        let mut seen = vec![0; 1000];
        while let Some(piece) = window.next_blocking() {
            let (index, completion) = piece.unwrap();
            seen[index] += 1;
            assert_eq!(completion.into_buffer().unwrap()[0], 9);
            let next = seen.iter().sum::<usize>() + window.len();
            if next < 1000 {
                assert_eq!(window.add(vec![read(next)]), next..next + 1);
            }
        }
        assert!(seen.iter().all(|&times| times == 1), "{}", setup.name);
        assert!(window.is_empty());
    }
}

#[test]
fn async_tasks_wait_whole_and_piecewise() {
    for setup in all_devices() {
        let device = &setup.device;
        let file = device.create("data", FileClass::Table).unwrap();
        block_on(async {
            let writes = (0..16u8)
                .map(|i| Request::write(u64::from(i) * KIB4 as u64, filled(device, KIB4, i)))
                .collect();
            file.submit(writes).wait_async().await.unwrap();
            file.sync_async().await.unwrap();
            let reads = (0..16).map(|i| Request::read(i * KIB4 as u64, device.buffer(KIB4))).collect();
            let mut pieces = file.submit(reads);
            let mut count = 0;
            while let Some(piece) = pieces.next().await {
                let (index, completion) = piece.unwrap();
                assert_eq!(completion.into_buffer().unwrap()[5], index as u8, "{}", setup.name);
                count += 1;
            }
            assert_eq!(count, 16);
        });
    }
}

#[test]
fn results_that_were_taken_are_not_reported_again() {
    for setup in all_devices() {
        let device = &setup.device;
        let file = device.create("data", FileClass::Table).unwrap();
        file.write_blocking(0, filled(device, 4 * KIB4, 1)).unwrap();
        let reads = (0..4).map(|i| Request::read(i * KIB4 as u64, device.buffer(KIB4))).collect();
        let mut batch = file.submit(reads);
        batch.next_blocking().unwrap().unwrap();
        assert_eq!(batch.wait().unwrap().len(), 3, "{}", setup.name);
    }
}

#[test]
fn unaligned_requests_fail_alone() {
    for setup in all_devices() {
        let device = &setup.device;
        let file = device.create("data", FileClass::Table).unwrap();
        file.write_blocking(0, filled(device, 2 * KIB4, 1)).unwrap();
        let odd_slice = filled(device, 2 * KIB4, 2).freeze().slice(512..512 + KIB4);
        let mut batch = file.submit(vec![
            Request::read(100, device.buffer(KIB4)),
            Request::read(0, device.buffer(100)),
            Request::write(0, odd_slice),
            Request::read(KIB4 as u64, device.buffer(KIB4)),
        ]);
        let mut messages = Vec::new();
        while let Some(piece) = batch.next_blocking() {
            match piece {
                Ok((index, completion)) => assert_eq!((index, completion.bytes()), (3, KIB4 as u64)),
                Err(error) => messages.push(error.to_string()),
            }
        }
        assert_eq!(messages.len(), 3, "{}", setup.name);
        assert!(messages[0].contains("data is not aligned: the offset is 100"), "{}", messages[0]);
        assert!(messages[1].contains("the buffer's length is 100"), "{}", messages[1]);
        assert!(messages[2].contains("a buffer's address"), "{}", messages[2]);
        assert_eq!(file.read_blocking(0, device.buffer(KIB4)).unwrap()[0], 1, "nothing was written");
    }
}

#[test]
fn reading_past_the_end_names_file_and_lengths() {
    for setup in all_devices() {
        let device = &setup.device;
        let file = device.create("data", FileClass::Table).unwrap();
        file.write_blocking(0, filled(device, 3 * KIB4, 1)).unwrap();
        let error = file.read_blocking(KIB4 as u64, device.buffer(4 * KIB4)).unwrap_err().to_string();
        assert!(
            error.contains("data ends early: 16384 bytes were wanted at offset 4096, only 8192 are there"),
            "{}: {error}",
            setup.name
        );
        assert!(file.read_blocking(1 << 20, device.buffer(KIB4)).is_err());
        assert_eq!(device.counters().total().failed_requests, 2);
    }
}

#[test]
fn a_file_opened_for_reading_cannot_be_written() {
    for setup in all_devices().into_iter().filter(|setup| setup.name != "simulated") {
        let device = &setup.device;
        device.create("data", FileClass::Table).unwrap();
        let file = device.open_file("data", FileClass::Table, OpenMode::Read).unwrap();
        let error = file.write_blocking(0, filled(device, KIB4, 1)).unwrap_err().to_string();
        assert!(error.starts_with("write of 4096 bytes at offset 0 of "), "{error}");
        assert_eq!(file.len().unwrap(), 0);
    }
}

#[test]
fn empty_batches_and_empty_requests_end_at_once() {
    for setup in all_devices() {
        let device = &setup.device;
        let file = device.create("data", FileClass::Table).unwrap();
        assert!(file.submit(Vec::new()).wait().unwrap().is_empty());
        let mut none = device.batch(None);
        assert!(none.next_blocking().is_none());
        assert!(block_on(none.next()).is_none());
        let done = file
            .submit(vec![
                Request::read(0, device.buffer(0)),
                Request::Write { offset: 0, buffers: vec![device.buffer(0).into()] },
            ])
            .wait()
            .unwrap();
        assert_eq!(done.len(), 2);
        assert_eq!(device.counters().total().requests(), 0, "{}", setup.name);
    }
}

#[test]
fn a_batch_takes_files_of_its_own_device_only() {
    let devices = all_devices();
    let (first, second) = (&devices[0].device, &devices[1].device);
    let own = first.create("own", FileClass::Table).unwrap();
    let foreign = second.create("foreign", FileClass::Table).unwrap();
    let mut batch = first.submit_many(
        vec![
            (foreign, Request::write(0, filled(first, KIB4, 1))),
            (own.clone(), Request::write(0, filled(first, KIB4, 2))),
        ],
        None,
    );
    let error = batch.next_blocking().unwrap().unwrap_err().to_string();
    assert!(error.contains("foreign was opened on another device"), "{error}");
    assert_eq!(batch.next_blocking().unwrap().unwrap().0, 1);
    assert_eq!(own.read_blocking(0, first.buffer(KIB4)).unwrap()[0], 2);
}
