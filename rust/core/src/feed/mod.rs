//! The feed: threads that order, read, check, decode and batch the records of an epoch, with a bounded number of bytes
//! in flight.

pub mod batch;
pub mod shard_set;

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::{contained, Error, Result};
use crate::feed::batch::{Batch, BatchDecoder, DecodeScratch, Rows, StageTimes};
use crate::interrupt::{self, Watch};
use crate::order::{Order, MAX_LENGTH};
use crate::ordered_queue::{Limits, NextItem, Queue};

/// Threads claim work in runs of whole batches of about this many bytes: enough that the queue costs little.
const RUN_BYTES: u64 = 1 << 20;

/// Minimum number of runs that fit into the budget.
const RUNS: u64 = 4;

/// What to read, in batches of what size, on how many threads.
#[derive(Clone, Debug)]
pub struct FeedOptions {
    /// Order of the records.
    pub order: Order,
    /// Number of the epoch.
    pub epoch: u64,
    /// First position.
    pub start: u64,
    /// Position to stop before. Default: the end.
    pub stop: Option<u64>,
    /// Positions per batch.
    pub batch: usize,
    /// True to leave out a last, smaller batch.
    pub drop_remainder: bool,
    /// Threads that read and decode.
    pub threads: usize,
    /// Memory budget in bytes: a third for batches in flight, the rest for shards that are cached because they are read
    /// at random.
    pub budget: usize,
}

/// Times and counts of a feed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Time of its threads per stage.
    pub spent: StageTimes,
    /// Time that threads waited for budget.
    pub full: Duration,
    /// Time that the consumer waited for batches.
    pub empty: Duration,
    /// Number of records delivered.
    pub records: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Number of batches delivered.
    pub batches: u64,
}

/// A batch with the position of its first row.
pub type Placed = (u64, Batch);

type Run = Result<Vec<Placed>>;

/// Batches, in order.
pub struct Feed {
    queue: Arc<Queue<Run>>,
    work: Arc<Work>,
    /// Ends the work of its threads.
    watch: Watch,
    threads: Vec<JoinHandle<()>>,
    run: std::vec::IntoIter<Placed>,
    stats: Stats,
    process: u32,
}

impl Feed {
    /// Start the threads.
    pub fn start(decoder: BatchDecoder, options: FeedOptions) -> Result<Feed> {
        let FeedOptions { order, epoch, start, stop, batch, drop_remainder, threads, budget } = options;
        if batch == 0 || threads == 0 {
            return Err(Error::usage("expected at least one record a batch and one thread"));
        }
        let length = order.length().unwrap_or(MAX_LENGTH);
        let stop = stop.unwrap_or(length);
        if start > stop || stop > length {
            return Err(Error::usage(format!("expected positions within 0..{length}, got {start}..{stop}")));
        }
        let stop = if drop_remainder { stop - (stop - start) % batch as u64 } else { stop };
        let bytes = budget / 3;
        let cache_budget = (budget - bytes) as u64;
        let queue = Arc::new(Queue::new(Limits { ahead: usize::MAX, at_first: threads, bytes }));
        let totals = Mutex::new(RunTotals { next: start, ..RunTotals::default() });
        let share = bytes as u64 / RUNS.max(2 * threads as u64);
        let work = Arc::new(Work { decoder, order, epoch, stop, batch, ramp: threads, share, cache_budget, totals });
        let watch = Watch::default();
        let threads = (0..threads)
            .map(|_| {
                let (queue, work, watch) = (queue.clone(), work.clone(), watch.clone());
                let run = move || queue.serve(|| watch.enter(|| work.run(&queue)));
                std::thread::Builder::new().name("penstock-feed".into()).spawn(run)
            })
            .collect::<std::io::Result<Vec<_>>>();
        match threads {
            Ok(threads) => {
                let process = std::process::id();
                let run = Vec::new().into_iter();
                Ok(Feed { queue, work, watch, threads, run, stats: Stats::default(), process })
            }
            Err(error) => {
                watch.end();
                queue.close();
                Err(Error::io("starting a thread failed", &error))
            }
        }
    }

    /// Return the next batch; wait at most `patience`.
    pub fn take(&mut self, patience: Duration) -> Result<NextItem<Placed>> {
        self.check_process()?;
        loop {
            if let Some((position, batch)) = self.run.next() {
                self.queue.release(batch.bytes());
                self.stats.records += batch.rows as u64;
                self.stats.bytes += batch.frame_bytes;
                self.stats.batches += 1;
                return Ok(NextItem::Item((position, batch)));
            }
            let began = Instant::now();
            let taken = self.queue.take(patience);
            self.stats.empty += began.elapsed();
            match taken {
                NextItem::Item(Ok(run)) => self.run = run.into_iter(),
                NextItem::Item(Err(error)) => {
                    self.end();
                    return Err(error);
                }
                NextItem::NotYet => return Ok(NextItem::NotYet),
                NextItem::End => return self.queue.failure().map_or(Ok(NextItem::End), Err),
            }
        }
    }

    /// Return the times and counts so far.
    pub fn stats(&self) -> Result<Stats> {
        self.check_process()?;
        // One lock after the other: who has the queue's may wait for that of the totals.
        let spent = self.work.totals().spent;
        let full = self.queue.full();
        Ok(Stats { spent, full, ..self.stats })
    }

    /// End its threads without waiting for them. In a fork they do not exist, and one of them may hold the lock.
    pub fn end(&self) {
        if self.process == std::process::id() {
            self.watch.end();
            self.queue.close();
        }
    }

    /// Detach its threads: dropping the feed does not wait for them.
    pub fn detach(mut self) {
        self.end();
        self.threads.clear();
    }

    /// The process that started it.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Fails in any other process than the one that started it.
    fn check_process(&self) -> Result<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        Err(inherited())
    }
}

/// The error for a feed that a fork would use.
pub fn inherited() -> Error {
    let message = "expected to be used by the process that started it, got a fork of that process";
    Error::usage(message).advise("Start iterating in the child process.")
}

impl Drop for Feed {
    fn drop(&mut self) {
        // In a fork there is nothing to end.
        self.end();
        if self.process == std::process::id() {
            for thread in self.threads.drain(..) {
                // A panic was turned into the queue's end already.
                let _ = thread.join();
            }
        } else {
            std::mem::take(&mut self.threads).into_iter().for_each(std::mem::forget);
        }
    }
}

/// What the threads share.
struct Work {
    decoder: BatchDecoder,
    order: Order,
    epoch: u64,
    stop: u64,
    batch: usize,
    /// Number of runs after which runs may be twice as long: the first batch is ready soon.
    ramp: usize,
    /// Maximum bytes of a run's batches.
    share: u64,
    /// Maximum bytes of cached shards.
    cache_budget: u64,
    totals: Mutex<RunTotals>,
}

#[derive(Default)]
struct RunTotals {
    /// First position of the next run.
    next: u64,
    /// Positions and bytes so far: an estimate for the runs to come.
    positions: u64,
    frame_bytes: u64,
    bytes: u64,
    spent: StageTimes,
}

impl Work {
    fn totals(&self) -> MutexGuard<'_, RunTotals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, queue: &Queue<Run>) {
        let mut progress = |_| interrupt::check();
        let mut scratch = DecodeScratch { cache_budget: self.cache_budget, ..DecodeScratch::new(&mut progress) };
        while let Some((number, positions)) = queue.claim(|number| self.next_run(number)) {
            let count = positions.end - positions.start;
            let run = contained(|| self.decode(positions, &mut scratch));
            let (mut bytes, mut frame_bytes) = (0, 0);
            for (_, batch) in run.iter().flatten() {
                bytes += batch.bytes();
                frame_bytes += batch.frame_bytes;
            }
            {
                let mut totals = self.totals();
                totals.positions += count;
                totals.frame_bytes += frame_bytes;
                totals.bytes += bytes as u64;
                totals.spent += std::mem::take(&mut scratch.spent);
            }
            queue.deliver(number, run, bytes);
        }
    }

    /// Return the positions of the next run: whole batches of about [`RUN_BYTES`] in all, few at first.
    fn next_run(&self, number: usize) -> Option<Range<u64>> {
        let mut totals = self.totals();
        let start = totals.next;
        if start >= self.stop {
            return None;
        }
        let fit = |most: u64, bytes: u64| {
            let positions = u128::from(most) * u128::from(totals.positions) / u128::from(bytes.max(1));
            u64::try_from(positions).unwrap_or(u64::MAX) / self.batch as u64
        };
        let batches = fit(RUN_BYTES, totals.frame_bytes)
            .min(fit(self.share, totals.bytes))
            .min(1 << (number / self.ramp).min(20))
            .max(1);
        let end = start.saturating_add(batches.saturating_mul(self.batch as u64)).min(self.stop);
        totals.next = end;
        Some(start..end)
    }

    fn decode(&self, positions: Range<u64>, scratch: &mut DecodeScratch<'_>) -> Run {
        let began = Instant::now();
        let mut places: Vec<u64> = positions.clone().collect();
        let mut numbers = places.clone();
        self.order.apply(self.epoch, &mut numbers);
        self.order.places(&mut places);
        scratch.spent.read += began.elapsed();
        let rows = Rows { numbers: &numbers, places: &places, epoch: self.epoch };
        let batches = self.decoder.batches(rows, self.batch, scratch)?;
        Ok(positions.step_by(self.batch).zip(batches).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::encode::{self, Input, Values};
    use crate::example::plan::{spec, Dtype, Plan};
    use crate::feed::shard_set::{ShardSet, ShardSource};

    /// Shards of so many rows, numbered through.
    fn shards(rows: &[usize]) -> (tempfile::TempDir, Arc<ShardSet>, Arc<Plan>) {
        let plan = Plan::new(vec![spec("n", Dtype::Int64, Some(1))]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut first = 0;
        let mut sources = Vec::new();
        for (shard, &rows) in rows.iter().enumerate() {
            let data: Vec<u8> = (first..first + rows as i64).flat_map(i64::to_le_bytes).collect();
            let inputs = [Input { values: Values::Numbers(&data), row_splits: None, present: None }];
            let frames = encode::EncodeBatch::new(&plan, &inputs, rows).unwrap().encode(0..rows, Vec::new()).unwrap();
            let path = folder.path().join(shard.to_string());
            std::fs::write(&path, frames.bytes()).unwrap();
            sources.push(ShardSource { path, records: rows as u64, sidecar: None, rules: None });
            first += rows as i64;
        }
        (folder, Arc::new(ShardSet::new(sources).unwrap()), Arc::new(plan))
    }

    fn decoder(shards: &Arc<ShardSet>, plan: &Arc<Plan>) -> BatchDecoder {
        BatchDecoder { shards: shards.clone(), plan: plan.clone(), images: None, skip: false }
    }

    fn options(order: Order, batch: usize, threads: usize) -> FeedOptions {
        FeedOptions { order, epoch: 2, start: 0, stop: None, batch, drop_remainder: false, threads, budget: 1 << 22 }
    }

    fn next(feed: &mut Feed) -> Option<(u64, Vec<i64>)> {
        match feed.take(Duration::from_secs(60)).unwrap() {
            NextItem::Item((position, batch)) => {
                let number = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().unwrap());
                Some((position, batch.columns[0].values.bytes().chunks(8).map(number).collect()))
            }
            NextItem::End => None,
            NextItem::NotYet => panic!("waited a minute"),
        }
    }

    fn all(mut feed: Feed) -> Vec<Vec<i64>> {
        std::iter::from_fn(|| next(&mut feed)).map(|(_, numbers)| numbers).collect()
    }

    #[test]
    fn batches_come_in_order_for_any_number_of_threads() {
        let (_folder, shards, plan) = shards(&[30_000, 1, 0, 70_002]);
        let span = Order::span(5, 100_003).unwrap();
        let window = span.shuffle(3, Some(5000)).unwrap();
        for order in [span.clone(), window, span.shuffle(1, None).unwrap().slice(1, None, 3, false).unwrap()] {
            let mut numbers = vec![0; order.length().unwrap() as usize];
            order.numbers(2, 0, &mut numbers).unwrap();
            let numbers: Vec<i64> = numbers.into_iter().map(|number| number as i64).collect();
            for threads in [1, 2, 5] {
                for (batch, drop_remainder) in [(7, false), (256, true), (99_998, false), (200_000, true)] {
                    let options = FeedOptions { drop_remainder, ..options(order.clone(), batch, threads) };
                    let got = all(Feed::start(decoder(&shards, &plan), options).unwrap());
                    let mut expected: Vec<Vec<i64>> = numbers.chunks(batch).map(<[i64]>::to_vec).collect();
                    if drop_remainder {
                        expected.retain(|rows| rows.len() == batch);
                    }
                    assert!(got == expected, "batch {batch}, threads {threads}");
                }
            }
        }
    }

    #[test]
    fn a_part_of_an_order_is_that_part() {
        let (_folder, shards, plan) = shards(&[100, 100]);
        let order = Order::span(0, 200).unwrap().shuffle(1, None).unwrap().repeat(None).unwrap();
        let whole = FeedOptions { stop: Some(900), ..options(order.clone(), 10, 2) };
        let part = FeedOptions { start: 250, ..whole.clone() };
        let whole = all(Feed::start(decoder(&shards, &plan), whole).unwrap());
        assert_eq!(all(Feed::start(decoder(&shards, &plan), part).unwrap()), whole[25..]);
        let mut ever = Feed::start(decoder(&shards, &plan), options(order, 10, 2)).unwrap();
        assert_eq!((0..90).map(|_| next(&mut ever).unwrap().1).collect::<Vec<_>>(), whole);
        assert_eq!(next(&mut ever).unwrap().0, 900);
    }

    #[test]
    fn what_waits_stays_within_the_budget() {
        let (_folder, shards, plan) = shards(&[200_000]);
        for (budget, most) in [(0, 8000), (40_000, 40_000), (1 << 20, 1 << 20)] {
            let order = Order::span(0, 200_000).unwrap();
            let options = FeedOptions { budget, ..options(order, 1000, 2) };
            let mut feed = Feed::start(decoder(&shards, &plan), options).unwrap();
            for _ in 0..3 {
                std::thread::sleep(Duration::from_millis(50));
                let waiting = feed.queue.waiting();
                assert!(waiting <= most.max(2 * 8000), "{waiting} of {budget}");
                next(&mut feed).unwrap();
            }
            assert_eq!(all(feed).concat().len(), 197_000);
        }
    }

    #[test]
    fn a_feed_that_is_dropped_ends_its_threads() {
        let (_folder, shards, plan) = shards(&[50_000]);
        for _ in 0..20 {
            let order = Order::span(0, 50_000).unwrap().shuffle(0, None).unwrap();
            let mut feed = Feed::start(decoder(&shards, &plan), options(order, 10, 3)).unwrap();
            assert!(next(&mut feed).is_some());
        }
        assert_eq!(Arc::strong_count(&shards), 1);
    }

    #[test]
    fn whoever_asks_how_it_goes_stops_nobody() {
        let (_folder, shards, plan) = shards(&[20_000]);
        let order = Order::span(0, 20_000).unwrap();
        // Without room for a second batch, one is claimed whenever one was taken: just when it is asked.
        let options = FeedOptions { budget: 0, ..options(order, 1, 3) };
        let mut feed = Feed::start(decoder(&shards, &plan), options).unwrap();
        for _ in 0..20_000 {
            next(&mut feed).unwrap();
            feed.stats().unwrap();
        }
        assert_eq!(feed.stats().unwrap().records, 20_000);
    }

    #[test]
    fn an_error_names_the_record() {
        let (_folder, shards, _) = shards(&[5, 1000]);
        let plan = Arc::new(Plan::new(vec![spec("other", Dtype::Int64, Some(1))]).unwrap());
        let options = options(Order::span(10, 1000).unwrap(), 10, 2);
        let mut feed = Feed::start(decoder(&shards, &plan), options).unwrap();
        let error = feed.take(Duration::from_secs(60)).unwrap_err();
        assert_eq!((error.record(), error.field()), (Some(5), Some("other")));
        assert!(error.offset().is_some() && error.path().is_some_and(|path| path.ends_with("1")));
        assert!(matches!(feed.take(Duration::from_secs(60)), Ok(NextItem::End)));
    }

    #[test]
    fn bad_records_are_left_out_and_reported() {
        let (folder, shards, plan) = shards(&[10, 1000]);
        let path = folder.path().join("1");
        let mut bytes = std::fs::read(&path).unwrap();
        for record in [20, 21, 500] {
            bytes[shards.shard(1, &mut |_| Ok(())).unwrap().offsets()[record] as usize + 15] ^= 1;
        }
        std::fs::write(&path, bytes).unwrap();
        for batch in [1, 7, 100, 2000] {
            let decoder = BatchDecoder { skip: true, ..decoder(&shards, &plan) };
            let order = Order::span(0, 1010).unwrap().slice(4, None, 1, false).unwrap();
            let mut feed = Feed::start(decoder, options(order, batch, 2)).unwrap();
            let (mut numbers, mut skipped, mut rows) = (Vec::new(), Vec::new(), 0);
            while let NextItem::Item((position, batch)) = feed.take(Duration::from_secs(60)).unwrap() {
                rows += batch.rows + batch.skipped.len();
                for bad in batch.skipped {
                    skipped.push((position + bad.row as u64, bad.number));
                    assert!(bad.error.record() == Some(bad.number - 10) && bad.error.path().is_some());
                }
                numbers.extend_from_slice(bytemuck::cast_slice::<u8, i64>(batch.columns[0].values.bytes()));
            }
            assert_eq!(skipped, [(26, 30), (27, 31), (506, 510)]);
            assert!(numbers.into_iter().eq((4..1010).filter(|number| ![30, 31, 510].contains(number))));
            assert_eq!(rows, 1006);
        }
    }
}
