//! A running epoch: read, check, decode and batch on threads of its own, a bounded way ahead of whoever takes the batches.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::columns::Column;
use crate::error::{Error, Result};
use crate::example::walk;
use crate::plan::Plan;
use crate::queue::{CloseOnPanic, Queue, Taken};
use crate::shard::Shard;

/// Threads take work in runs of whole batches of about this many bytes: enough that handing over costs little.
const RUN_BYTES: u64 = 1 << 20;

/// Within a batch, about this many bytes are read, checked and decoded at a time: little enough for a core's cache.
const PIECE_BYTES: u64 = 1 << 18;

/// Which records, in batches of what size, on how many threads.
#[derive(Clone, Debug)]
pub struct Options {
    /// The records to read, in order.
    pub records: Range<usize>,
    /// Records per batch.
    pub batch: usize,
    /// Whether a last, smaller batch is left out.
    pub drop_remainder: bool,
    /// Threads that read and decode.
    pub threads: usize,
}

/// A batch: its columns, and how many rows they have.
pub type Batch = (Vec<Column>, usize);

type Batches = Result<Vec<Batch>>;

/// Batches of columns, in order.
pub struct Feed {
    queue: Arc<Queue<Batches>>,
    threads: Vec<JoinHandle<()>>,
    run: std::vec::IntoIter<Batch>,
    process: u32,
}

impl Feed {
    /// Starts the threads.
    pub fn start(shard: Arc<Shard>, plan: Arc<Plan>, options: Options) -> Result<Feed> {
        let Options { records, batch, drop_remainder, threads } = options;
        if batch == 0 || threads == 0 {
            return Err(Error::usage("expected at least one record a batch and one thread"));
        }
        if records.end > shard.len() || records.start > records.end {
            return Err(Error::usage(format!("expected records within 0..{}, got {records:?}", shard.len())));
        }
        let records = if drop_remainder { records.start..records.end - records.len() % batch } else { records };
        let queue = Arc::new(Queue::new(threads * 2));
        let next = Arc::new(Mutex::new(records.start));
        let work = Arc::new(Work { shard, plan, batch, end: records.end });
        let threads = (0..threads)
            .map(|_| {
                let (queue, next, work) = (queue.clone(), next.clone(), work.clone());
                std::thread::Builder::new().name("penstock-feed".into()).spawn(move || work.run(&queue, &next))
            })
            .collect::<std::io::Result<Vec<_>>>();
        match threads {
            Ok(threads) => Ok(Feed { queue, threads, run: Vec::new().into_iter(), process: std::process::id() }),
            Err(error) => {
                queue.close();
                Err(Error::io("starting a thread failed", &error))
            }
        }
    }

    /// The next batch, waiting for it at most `patience`.
    pub fn take(&mut self, patience: Duration) -> Result<Taken<Batch>> {
        if self.process != std::process::id() {
            let message = "expected to be used by the process that started it, got a fork of that";
            return Err(Error::usage(message).advise("Start iterating in the child process."));
        }
        loop {
            if let Some(batch) = self.run.next() {
                return Ok(Taken::Item(batch));
            }
            match self.queue.take(patience) {
                Taken::Item(Ok(run)) => self.run = run.into_iter(),
                Taken::Item(Err(error)) => {
                    self.queue.close();
                    return Err(error);
                }
                Taken::NotYet => return Ok(Taken::NotYet),
                Taken::End => return Ok(Taken::End),
            }
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        // In a fork the threads do not exist and the lock may be held by one of them: there is nothing to end.
        if self.process == std::process::id() {
            self.queue.close();
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
    shard: Arc<Shard>,
    plan: Arc<Plan>,
    batch: usize,
    end: usize,
}

impl Work {
    fn run(&self, queue: &Queue<Batches>, next: &Mutex<usize>) {
        let _guard = CloseOnPanic(queue);
        let mut buffer = Vec::new();
        loop {
            let (number, records) = {
                // Numbers and records are given out together, so that their orders agree.
                let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(number) = queue.claim() else { return };
                let records = self.next_run(*next);
                if records.is_empty() {
                    queue.end_at(number);
                    return;
                }
                *next = records.end;
                (number, records)
            };
            queue.deliver(number, self.decode(records, &mut buffer));
        }
    }

    /// Whole batches from `start` on, of about [`RUN_BYTES`] in all.
    fn next_run(&self, start: usize) -> Range<usize> {
        let fits = self.fitting(start..self.end, RUN_BYTES);
        let batches = (fits / self.batch).max(1);
        start..start.saturating_add(batches.saturating_mul(self.batch)).min(self.end)
    }

    fn decode(&self, records: Range<usize>, buffer: &mut Vec<u8>) -> Batches {
        let mut batches = Vec::with_capacity(records.len().div_ceil(self.batch));
        let mut start = records.start;
        while start < records.end {
            let end = (start + self.batch).min(records.end);
            batches.push((self.decode_batch(start..end, buffer)?, end - start));
            start = end;
        }
        Ok(batches)
    }

    /// A batch is read and decoded in pieces that stay in a core's cache from one step to the next.
    fn decode_batch(&self, records: Range<usize>, buffer: &mut Vec<u8>) -> Result<Vec<Column>> {
        let mut columns: Vec<Column> = self.plan.specs().iter().map(Column::empty).collect();
        let mut start = records.start;
        while start < records.end {
            let piece = start..start + self.fitting(start..records.end, PIECE_BYTES).max(1);
            let place = |error: Error| self.shard.place(error.renumbered(|row| start as u64 + row));
            let frames = self.shard.frames(piece.clone(), buffer)?;
            let data = self.shard.records(piece.clone(), frames)?;
            let walked = walk(&self.plan, data.iter().copied()).map_err(place)?;
            for (number, column) in columns.iter_mut().enumerate() {
                walked.append(number, column).map_err(place)?;
                column.expect(piece.end - records.start, records.len());
            }
            start = piece.end;
        }
        Ok(columns)
    }

    /// How many of the records have their frames within the first `bytes` bytes.
    fn fitting(&self, records: Range<usize>, bytes: u64) -> usize {
        let offsets = &self.shard.offsets()[records.start..=records.end];
        let limit = offsets[0].saturating_add(bytes);
        offsets.partition_point(|&offset| offset <= limit) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::{Batch, Input, Values};
    use crate::plan::{spec, Dtype};
    use crate::shard::Sidecar;

    fn shard(rows: usize) -> (tempfile::TempDir, Arc<Shard>, Arc<Plan>) {
        let plan = Plan::new(vec![spec("n", Dtype::Int64, Some(1))]).unwrap();
        let data: Vec<u8> = (0..rows as i64).flat_map(i64::to_le_bytes).collect();
        let inputs = [Input { values: Values::Numbers(&data), row_splits: None, present: None }];
        let frames = Batch::new(&plan, &inputs, rows).unwrap().encode(0..rows, Vec::new()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, frames.bytes()).unwrap();
        let shard = Shard::open(&path, Sidecar::Ignore, &mut |_| Ok(())).unwrap();
        (folder, Arc::new(shard), Arc::new(plan))
    }

    fn numbers(mut feed: Feed) -> Vec<Vec<i64>> {
        let mut out = Vec::new();
        loop {
            match feed.take(Duration::from_secs(60)).unwrap() {
                Taken::Item((batch, _)) => {
                    out.push(
                        batch[0].values.bytes().chunks(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).collect(),
                    );
                }
                Taken::End => return out,
                Taken::NotYet => panic!("waited a minute"),
            }
        }
    }

    #[test]
    fn batches_come_in_order_for_any_number_of_threads() {
        let (_folder, shard, plan) = shard(100_003);
        for threads in [1, 2, 5] {
            for (batch, drop_remainder) in [(7, false), (256, true), (100_003, false), (200_000, true)] {
                let options = Options { records: 5..100_003, batch, drop_remainder, threads };
                let got = numbers(Feed::start(shard.clone(), plan.clone(), options).unwrap());
                let all: Vec<i64> = (5..100_003).collect();
                let mut expected: Vec<Vec<i64>> = all.chunks(batch).map(<[i64]>::to_vec).collect();
                if drop_remainder {
                    expected.retain(|rows| rows.len() == batch);
                }
                assert_eq!(got, expected, "batch {batch}, threads {threads}");
            }
        }
    }

    #[test]
    fn a_feed_that_is_dropped_ends_its_threads() {
        let (_folder, shard, plan) = shard(50_000);
        for _ in 0..20 {
            let options = Options { records: 0..50_000, batch: 10, drop_remainder: false, threads: 3 };
            let mut feed = Feed::start(shard.clone(), plan.clone(), options).unwrap();
            assert!(matches!(feed.take(Duration::from_secs(60)).unwrap(), Taken::Item(_)));
        }
        assert_eq!(Arc::strong_count(&shard), 1);
    }

    #[test]
    fn an_error_names_the_record() {
        let (_folder, shard, _) = shard(1000);
        let plan = Arc::new(Plan::new(vec![spec("other", Dtype::Int64, Some(1))]).unwrap());
        let options = Options { records: 10..1000, batch: 10, drop_remainder: false, threads: 2 };
        let error = Feed::start(shard, plan, options).unwrap().take(Duration::from_secs(60)).unwrap_err();
        assert_eq!((error.record(), error.field()), (Some(10), Some("other")));
        assert!(error.offset().is_some() && error.path().is_some());
    }
}
