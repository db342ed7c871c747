//! Files behave like byte vectors under any sequence of requests.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test")]

use crate::setup;

use std::cell::Cell;

use nandina_device::{FileClass, Request};
use proptest::prelude::*;
use setup::{KIB4, all_devices, filled};

#[derive(Debug, Clone)]
enum Step {
    /// Blocks of different values, as one vectored write each.
    Write(Vec<(u64, Vec<u8>)>),
    Read(Vec<(u64, usize)>),
    Truncate(u64),
    Allocate(u64, u64),
    Sync,
}

const BLOCKS: u64 = 24;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop::collection::vec((0..BLOCKS, prop::collection::vec(any::<u8>(), 1..5)), 1..4).prop_map(Step::Write),
        4 => prop::collection::vec((0..BLOCKS, 1..8usize), 1..6).prop_map(Step::Read),
        1 => (0..BLOCKS).prop_map(Step::Truncate),
        1 => (0..BLOCKS, 1..8u64).prop_map(|(first, blocks)| Step::Allocate(first, blocks)),
        1 => Just(Step::Sync),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn like_a_vector(steps in prop::collection::vec(step(), 1..25)) {
        thread_local! { static NUMBER: Cell<u32> = const { Cell::new(0) }; }
        thread_local! { static DEVICES: Vec<setup::TestDevice> = all_devices(); }
        let number = NUMBER.replace(NUMBER.get() + 1);
        DEVICES.with(|devices| {
            for setup in devices {
                let device = &setup.device;
                let name = format!("file-{number}");
                let file = device.create(&name, FileClass::Table).unwrap();
                let mut model: Vec<u8> = Vec::new();
                for step in &steps {
                    match step {
                        Step::Write(writes) => {
                            // Ranges of one batch may overlap, and the order inside a batch is open.
                            for (block, values) in writes {
                                let buffers =
                                    values.iter().map(|&value| filled(device, KIB4, value).into()).collect();
                                file.submit(vec![Request::Write { offset: block * KIB4 as u64, buffers }])
                                    .wait()
                                    .unwrap();
                                let start = *block as usize * KIB4;
                                let end = start + values.len() * KIB4;
                                model.resize(model.len().max(end), 0);
                                for (target, value) in model[start..end].chunks_mut(KIB4).zip(values) {
                                    target.fill(*value);
                                }
                            }
                        }
                        Step::Read(reads) => {
                            let requests = reads
                                .iter()
                                .map(|(block, blocks)| {
                                    Request::read(block * KIB4 as u64, device.buffer(blocks * KIB4))
                                })
                                .collect();
                            let mut batch = file.submit(requests);
                            let mut failed = 0;
                            while let Some(piece) = batch.next_blocking() {
                                let Ok((index, completion)) = piece else {
                                    failed += 1;
                                    continue;
                                };
                                let start = reads[index].0 as usize * KIB4;
                                let end = start + reads[index].1 * KIB4;
                                prop_assert_eq!(&completion.into_buffer().unwrap()[..], &model[start..end]);
                            }
                            let beyond = reads
                                .iter()
                                .filter(|(block, blocks)| (*block as usize + blocks) * KIB4 > model.len())
                                .count();
                            prop_assert_eq!(failed, beyond, "{}", setup.name);
                        }
                        Step::Truncate(blocks) => {
                            file.truncate(blocks * KIB4 as u64).unwrap();
                            model.resize(*blocks as usize * KIB4, 0);
                        }
                        Step::Allocate(first, blocks) => {
                            file.allocate(first * KIB4 as u64, blocks * KIB4 as u64).unwrap();
                            model.resize(model.len().max((first + blocks) as usize * KIB4), 0);
                        }
                        Step::Sync => file.sync().unwrap(),
                    }
                    prop_assert_eq!(file.len().unwrap(), model.len() as u64, "{}", setup.name);
                }
                device.remove(&name).unwrap();
            }
            Ok(())
        })?;
    }
}
