//! Queue, gather, batches and feed against a serial reference: under random threads, budgets, batch sizes, delays, damaged
//! records and early ends, what comes out is what one thread would have made.
//!
//! Cases are numbered: `PENSTOCK_CASE=17 cargo test --test threads` runs that one alone, `PENSTOCK_CASES=5000` more of them.

use std::sync::Arc;
use std::time::Duration;

use penstock_core::codec::stream::Compression;
use penstock_core::example::columns::Column;
use penstock_core::example::encode::{self, Input, Values};
use penstock_core::example::plan::{Dtype, Encoding, Missing, Plan, Spec};
use penstock_core::example::walk::walk;
use penstock_core::feed::batch::{Batch, BatchDecoder, Rows};
use penstock_core::feed::shard_set::{ShardSet, ShardSource};
use penstock_core::feed::{Feed, FeedOptions};
use penstock_core::format::array_record;
use penstock_core::format::container::ReadBuffer;
use penstock_core::format::tfrecord::writer::TfRecordWriter;
use penstock_core::order::Order;
use penstock_core::ordered_queue::{in_order, NextItem};
use penstock_core::{Error, Kind};

/// SplitMix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// Runs a test for many cases, each with its own numbers; a failure names its case.
fn cases(default: u64, test: impl Fn(&mut Random)) {
    let set = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let chosen = set("PENSTOCK_CASE");
    let all = 0..set("PENSTOCK_CASES").unwrap_or(default);
    for case in chosen.map_or(all, |case| case..case + 1) {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&mut Random(case))));
        assert!(outcome.is_ok(), "case {case}: PENSTOCK_CASE={case} runs it alone");
    }
}

fn plan() -> Plan {
    let spec = |key: &str, dtype, encoding, count, missing| Spec { key: key.into(), dtype, encoding, count, missing };
    Plan::new(vec![
        spec("n", Dtype::Int64, Encoding::None, Some(1), Missing::Refuse),
        spec("x", Dtype::Float32, Encoding::Zlib, Some(5), Missing::Refuse),
        spec("s", Dtype::Bytes, Encoding::None, Some(1), Missing::Mask),
        spec("r", Dtype::Uint8, Encoding::None, None, Missing::Refuse),
    ])
    .unwrap()
}

/// Some files of records that tell their number, a few of them damaged.
struct Dataset {
    _folder: tempfile::TempDir,
    sources: Vec<ShardSource>,
    plan: Arc<Plan>,
    damaged: bool,
}

impl Dataset {
    fn new(random: &mut Random) -> Dataset {
        let (folder, plan) = (tempfile::tempdir().unwrap(), plan());
        let kind = random.below(4);
        let damaged = kind == 0 && random.below(2) == 0;
        let mut sources = Vec::new();
        let mut first = 0i64;
        for shard in 0..1 + random.below(4) {
            let rows = random.one_of(&[0, 1, 7, 100, 400]) as usize;
            let path = folder.path().join(shard.to_string());
            let numbers: Vec<u8> = (first..first + rows as i64).flat_map(i64::to_le_bytes).collect();
            let floats: Vec<u8> = (0..rows * 5).flat_map(|number| (number as f32).to_le_bytes()).collect();
            let strings: Vec<Vec<u8>> =
                (0..rows).map(|row| vec![row as u8; random.one_of(&[0, 3, 50, 3000, 60_000])]).collect();
            let present: Vec<u8> = (0..rows).map(|_| u8::from(random.below(5) > 0)).collect();
            let mut splits = vec![0i64];
            (0..rows).for_each(|row| splits.push(splits[row] + random.below(9) as i64));
            let ragged = vec![7u8; splits[rows] as usize];
            let inputs = [
                Input { values: Values::Numbers(&numbers), row_splits: None, present: None },
                Input { values: Values::Numbers(&floats), row_splits: None, present: None },
                Input {
                    values: Values::Slices(strings.iter().map(Vec::as_slice).collect()),
                    row_splits: None,
                    present: Some(&present),
                },
                Input { values: Values::Numbers(&ragged), row_splits: Some(&splits), present: None },
            ];
            let frames = encode::EncodeBatch::new(&plan, &inputs, rows).unwrap().encode(0..rows, Vec::new()).unwrap();
            match kind {
                3 => {
                    let group_size = 1 + random.below(9) as usize;
                    let compression = array_record::ChunkCompression::parse("zstd", Some(1)).unwrap();
                    let options = array_record::WriterOptions { group_size, compression, threads: 2 };
                    let mut writer = array_record::ArrayRecordWriter::create(&path, options).unwrap();
                    writer.write_frames(&frames).unwrap();
                    writer.finish(false).unwrap();
                }
                kind => {
                    let compression = if kind == 2 { Compression::Gzip } else { Compression::None };
                    let mut writer = TfRecordWriter::create(&path, compression, 1).unwrap();
                    writer.write_frames(&frames).unwrap();
                    let index = writer.finish(false).unwrap();
                    if damaged && rows > 0 {
                        let sidecar = folder.path().join(format!("{shard}.index"));
                        std::fs::write(&sidecar, index.to_bytes()).unwrap();
                        let mut bytes = std::fs::read(&path).unwrap();
                        for _ in 0..1 + random.below(5) {
                            let record = random.below(rows as u64) as usize;
                            let (start, end) = (index.offsets[record] + 12, index.offsets[record + 1] - 4);
                            bytes[(start + random.below(end - start)) as usize] ^= 1 << random.below(8);
                        }
                        std::fs::write(&path, bytes).unwrap();
                    }
                }
            }
            let sidecar = folder.path().join(format!("{shard}.index"));
            let sidecar = sidecar.exists().then_some(sidecar);
            sources.push(ShardSource { path, records: rows as u64, sidecar, rules: None });
            first += rows as i64;
        }
        Dataset { _folder: folder, sources, plan: Arc::new(plan), damaged }
    }

    /// As if opened for the first time.
    fn shards(&self) -> Arc<ShardSet> {
        Arc::new(ShardSet::new(self.sources.clone()).unwrap())
    }

    fn decoder(&self, skip: bool) -> BatchDecoder {
        BatchDecoder { shards: self.shards(), plan: self.plan.clone(), images: None, skip }
    }

    /// One record by itself: its columns, or that it is damaged.
    fn reference(&self, shards: &ShardSet, number: u64) -> Option<Vec<Column>> {
        let mut buffer = ReadBuffer::default();
        let record = shards.read(number, &mut buffer).map(<[u8]>::to_vec);
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                assert!(self.damaged && matches!(error.kind(), Kind::Corrupt), "{error}");
                return None;
            }
        };
        let walked = walk(&self.plan, std::iter::once(&record[..])).unwrap();
        Some((0..self.plan.specs().len()).map(|column| walked.column(column).unwrap()).collect())
    }

    /// Records one after the other: their columns, and the numbers of those that are damaged.
    fn serial(&self, shards: &ShardSet, numbers: &[u64]) -> (Vec<Column>, usize, Vec<u64>) {
        let mut columns: Vec<Column> = self.plan.specs().iter().map(Column::empty).collect();
        let (mut rows, mut damaged) = (0, Vec::new());
        for &number in numbers {
            match self.reference(shards, number) {
                Some(one) => {
                    columns.iter_mut().zip(&one).for_each(|(column, more)| column.join(more).unwrap());
                    rows += 1;
                }
                None => damaged.push(number),
            }
        }
        (columns, rows, damaged)
    }
}

fn assert_same(batch: &Batch, columns: &[Column], rows: usize) {
    assert_eq!(batch.rows, rows);
    for (column, expected) in batch.columns.iter().zip(columns) {
        assert!(column.values.bytes() == expected.values.bytes());
        assert_eq!(column.value_splits, expected.value_splits);
        assert_eq!(column.row_splits, expected.row_splits);
        assert_eq!(column.present, expected.present);
    }
}

fn some_numbers(random: &mut Random, count: u64) -> Vec<u64> {
    let length = random.one_of(&[0, 1, 5, 300, 1500]);
    match (count, random.below(2)) {
        (0, _) => Vec::new(),
        (_, 0) => (0..length).map(|_| random.below(count)).collect(),
        _ => {
            let first = random.below(count);
            (first..count.min(first + length)).collect()
        }
    }
}

#[test]
fn work_on_threads_gives_what_one_thread_gives() {
    cases(60, |random| {
        let tasks = random.one_of(&[0, 1, 3, 50, 400]);
        let threads = random.below(9) as usize;
        let (failing, refused) =
            (random.below(2 * tasks as u64 + 1) as usize, random.below(3 * tasks as u64 + 1) as usize);
        let delays: Vec<u64> = (0..tasks).map(|_| random.one_of(&[0, 0, 0, 10, 200])).collect();
        let work = |number: usize| {
            std::thread::sleep(Duration::from_micros(delays[number]));
            if number == failing {
                Err(Error::usage("work"))
            } else {
                Ok(number)
            }
        };
        let run = |threads| {
            let mut seen = Vec::new();
            let result = in_order(threads, tasks, work, |number| {
                if number == refused {
                    return Err(Error::usage("sink"));
                }
                seen.push(number);
                Ok(())
            });
            (seen, result.map_err(|error| error.to_string()))
        };
        assert_eq!(run(threads), run(1));
    });
}

#[test]
fn records_read_together_are_those_read_alone() {
    cases(60, |random| {
        let dataset = Dataset::new(random);
        let shards = dataset.shards();
        let numbers = some_numbers(random, shards.len());
        let together = dataset.shards().read_many(&numbers, &mut |_| Ok(()));
        let mut alone = Vec::new();
        for &number in &numbers {
            alone.push(shards.read(number, &mut ReadBuffer::default()).map(<[u8]>::to_vec));
        }
        match together {
            Ok(frames) => assert!(frames.iter().eq(alone.iter().map(|record| record.as_deref().unwrap()))),
            Err(error) => {
                assert_eq!(error.kind(), Kind::Corrupt);
                assert!(dataset.damaged && alone.iter().any(Result::is_err));
            }
        }
    });
}

#[test]
fn a_batch_is_the_same_on_any_number_of_threads() {
    cases(60, |random| {
        let dataset = Dataset::new(random);
        let shards = dataset.shards();
        let numbers = some_numbers(random, shards.len());
        let threads = 1 + random.below(8) as usize;
        let batch = dataset.decoder(false).batch(Rows { numbers: &numbers, places: &numbers, epoch: 0 }, threads);
        let (columns, rows, damaged) = dataset.serial(&shards, &numbers);
        match batch {
            Ok(batch) => {
                assert!(damaged.is_empty());
                assert_same(&batch, &columns, rows);
            }
            Err(error) => assert!(!damaged.is_empty() && error.kind() == Kind::Corrupt, "{error}"),
        }
    });
}

#[test]
fn a_feed_gives_what_one_thread_gives() {
    cases(80, |random| {
        let dataset = Dataset::new(random);
        let shards = dataset.shards();
        let length = shards.len();
        let mut order = Order::span(0, length).unwrap();
        for _ in 0..random.below(3) {
            order = match random.below(4) {
                0 => order.shuffle(random.next(), None).unwrap(),
                1 => order.shuffle(random.next(), Some(1 + random.below(50))).unwrap(),
                2 => order.repeat(Some(2)).unwrap(),
                _ => order.slice(random.below(order.length().unwrap() + 1), None, 1 + random.below(3), false).unwrap(),
            };
        }
        let length = order.length().unwrap();
        let start = if random.below(3) == 0 { random.below(length + 1) } else { 0 };
        let stop = (random.below(3) == 0).then(|| start + random.below(length - start + 1));
        let (epoch, batch) = (random.below(3), random.one_of(&[1usize, 2, 9, 64, 1000]));
        let (drop_remainder, skip) = (random.below(2) == 0, random.below(2) == 0);
        let threads = 1 + random.below(6) as usize;
        let budget = random.one_of(&[0, 10_000, 1 << 20, 1 << 28]);
        let taken = if random.below(4) == 0 { random.below(5) as usize } else { usize::MAX };

        let mut numbers = vec![0; (stop.unwrap_or(length) - start) as usize];
        order.numbers(epoch, start, &mut numbers).unwrap();
        let options = FeedOptions { order, epoch, start, stop, batch, drop_remainder, threads, budget };
        let mut feed = Feed::start(dataset.decoder(skip), options).unwrap();
        let mut position = start;
        for numbers in numbers.chunks(batch).take(taken) {
            if drop_remainder && numbers.len() < batch {
                break;
            }
            let (columns, rows, damaged) = dataset.serial(&shards, numbers);
            match feed.take(Duration::from_secs(120)) {
                Ok(NextItem::Item((at, batch))) => {
                    assert_eq!(at, position);
                    assert!(skip || damaged.is_empty());
                    assert_same(&batch, &columns, rows);
                    let skipped: Vec<u64> = batch.skipped.iter().map(|skipped| skipped.number).collect();
                    assert_eq!(skipped, damaged);
                    if random.below(8) == 0 {
                        std::thread::sleep(Duration::from_micros(300));
                    }
                }
                Ok(other) => panic!("expected a batch, got {other:?}"),
                // A run of several batches fails as a whole: the damaged record may be behind this batch.
                Err(error) => {
                    assert!(!skip && dataset.damaged && error.kind() == Kind::Corrupt, "{error}");
                    assert!(matches!(feed.take(Duration::from_secs(120)), Ok(NextItem::End)));
                    return;
                }
            }
            position += batch as u64;
        }
        if taken == usize::MAX {
            assert!(matches!(feed.take(Duration::from_secs(120)), Ok(NextItem::End)));
        }
        drop(feed);
    });
}
