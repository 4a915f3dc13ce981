//! Work that mostly waits for other programs (`qemu-img`, `xorrisofs`), several at once.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::PodError;

/// Each program takes some 30 MiB, and one that reads an image of others up to
/// `--disk-memory-limit`.
const MAX_AT_ONCE: usize = 4;

pub(super) type Task<'t> = Box<dyn Fn() -> Result<(), PodError> + Sync + 't>;

/// Does the tasks, as many at once as the pod has processors (`sched_getaffinity`, the cgroup's
/// quota). If one fails, those that have begun end first; then it and those behind it are done
/// again, one after the other: what several at once lacked (space, memory, processes) may be
/// enough for one, and the same failure has the same text each time.
///
/// # Errors
/// The error of the first task that fails, in the order of `tasks`.
pub(super) fn side_by_side(tasks: &[Task<'_>]) -> Result<(), PodError> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    by_workers(tasks, processors.min(tasks.len()).min(MAX_AT_ONCE))
}

fn by_workers(tasks: &[Task<'_>], workers: usize) -> Result<(), PodError> {
    let next = AtomicUsize::new(0);
    let first_failed = AtomicUsize::new(usize::MAX);
    let work = || {
        while first_failed.load(Ordering::Relaxed) == usize::MAX {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(index) else { break };
            if task().is_err() {
                first_failed.fetch_min(index, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..workers {
            // Where the pod may have no further thread (`pids.max`), fewer do it.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let first_failed = first_failed.into_inner();
    tasks.iter().skip(first_failed).try_for_each(|task| task())
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
            let error = by_workers(&tasks, 4).unwrap_err();
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
        let both = Barrier::new(2);
        let meet = || {
            both.wait();
            Ok(())
        };
        by_workers(&[Box::new(meet), Box::new(meet)], 2).unwrap();
    }

    #[test]
    fn tasks_that_have_room_for_one_at_once_are_done_one_after_the_other() {
        let (at_once, both) = (AtomicUsize::new(0), Barrier::new(2));
        let is_first_time = AtomicUsize::new(2);
        let alone = || {
            let others = at_once.fetch_add(1, Ordering::SeqCst);
            let left = |left: usize| left.checked_sub(1);
            if is_first_time
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, left)
                .is_ok()
            {
                both.wait();
            }
            at_once.fetch_sub(1, Ordering::SeqCst);
            match others {
                0 => Ok(()),
                _ => Err(unusable!("no space")),
            }
        };
        by_workers(&[Box::new(alone), Box::new(alone)], 2).unwrap();
    }
}
