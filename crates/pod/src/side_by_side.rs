//! Work that mostly waits for other programs (`qemu-img`, `xorrisofs`), several at once.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use os::lock::lock;

use super::PodError;

/// Each program takes some 30 MiB, and one that reads an image of others up to
/// `--disk-memory-limit`.
const MAX_AT_ONCE: usize = 4;

pub(super) type Task<'t> = Box<dyn Fn() -> Result<(), PodError> + Sync + 't>;

/// Does the tasks, as many at once as the pod has processors.
///
/// # Errors
/// Of the first task in their order that fails. Those behind it may not have been begun.
pub(super) fn side_by_side(tasks: &[Task<'_>]) -> Result<(), PodError> {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(BTreeMap::new());
    let work = || {
        // In this order: all tasks before one that has failed are begun, and end.
        while lock(&failed).is_empty() {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(index) else { break };
            if let Err(error) = task() {
                lock(&failed).insert(index, error);
            }
        }
    };
    // `sched_getaffinity`, and the cgroup's quota.
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for _ in 1..processors.min(tasks.len()).min(MAX_AT_ONCE) {
            // Where the pod may have no further thread (`pids.max`), fewer do it.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let first = lock(&failed).pop_first();
    first.map_or(Ok(()), |(_, error)| Err(error))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::Duration;

    use super::*;
    use crate::error::unusable;

    fn failing(why: &'static str, after: u64) -> Task<'static> {
        Box::new(move || {
            thread::sleep(Duration::from_millis(after));
            Err(unusable!("{why}"))
        })
    }

    #[test]
    fn the_error_is_that_of_the_first_task_in_order() {
        for delays in [[0, 0, 0], [20, 0, 0], [20, 10, 0]] {
            let [first, second, third] = delays;
            let tasks = [
                Box::new(|| Ok(())) as Task<'_>,
                failing("first", first),
                failing("second", second),
                failing("third", third),
            ];
            let error = side_by_side(&tasks).unwrap_err();
            assert_eq!(error.to_string(), "first", "{delays:?}");
        }
    }

    #[test]
    fn each_task_is_done_once() {
        let done: Vec<AtomicUsize> = (0..100).map(|_| AtomicUsize::new(0)).collect();
        let count = |one| -> Task<'_> {
            Box::new(move || {
                AtomicUsize::fetch_add(one, 1, Ordering::Relaxed);
                Ok(())
            })
        };
        let tasks: Vec<Task<'_>> = done.iter().map(count).collect();
        side_by_side(&tasks).unwrap();
        assert!(done.iter().all(|one| one.load(Ordering::Relaxed) == 1));
        side_by_side(&[]).unwrap();
    }

    #[test]
    fn tasks_are_at_work_at_once() {
        if thread::available_parallelism().map_or(1, NonZero::get) < 2 {
            return;
        }
        let both = Barrier::new(2);
        let meet = || {
            both.wait();
            Ok(())
        };
        side_by_side(&[Box::new(meet), Box::new(meet)]).unwrap();
    }
}
