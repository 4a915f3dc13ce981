//! Which host threads a guest with dedicated CPUs runs on.
//!
//! The pod's CPU set is grouped by NUMA cell and core. Guest cores are placed in three rounds:
//!
//! ```text
//! 1 whole      host cores with enough threads, cell by cell; the rest of a core is a fragment
//! 2 fragments  threads of several host cores of one cell
//! 3 crossing   threads of several cells, where that is allowed
//! ```

use std::collections::{HashSet, VecDeque};

use super::CpuTopology;
use super::context::Topology;

/// Free threads of a NUMA cell.
#[derive(Debug, Default)]
struct Cell {
    /// Cores that have at least as many free threads as a guest core.
    cores: VecDeque<VecDeque<u32>>,
    /// All other free threads.
    fragments: VecDeque<u32>,
}

impl Cell {
    /// Takes `count` threads of the first core, or none if there is no core.
    fn take_of_core(
        &mut self,
        count: usize,
        threads_per_core: usize,
        taken: &mut Vec<u32>,
    ) -> bool {
        let Some(core) = self.cores.front_mut() else {
            return false;
        };
        taken.extend(core.drain(..count.min(core.len())));
        if core.len() < threads_per_core {
            self.fragments
                .extend(self.cores.pop_front().unwrap_or_default());
        }
        true
    }
}

/// Free threads of the pod, by cell.
#[derive(Debug)]
pub struct CpuPool {
    cells: Vec<Cell>,
    threads_per_core: usize,
    /// A guest core may have threads on several cells.
    crossing: bool,
}

/// Guest cores that could not be placed.
#[derive(Debug, PartialEq, Eq)]
pub struct Unfitted(pub usize);

impl CpuPool {
    /// The pool of the CPUs in `cpu_set`, for guest cores of `threads_per_core` threads.
    #[must_use]
    pub fn new(
        topology: &Topology,
        cpu_set: &[u32],
        threads_per_core: u32,
        crossing: bool,
    ) -> Self {
        let threads_per_core = threads_per_core.max(1) as usize;
        let allowed: HashSet<u32> = cpu_set.iter().copied().collect();
        let mut seen = HashSet::<u32>::new();
        let cells = topology.numa_cells.iter().map(|host| {
            let mut cell = Cell::default();
            for cpu in &host.cpus {
                if seen.contains(&cpu.id) {
                    continue;
                }
                let siblings = if cpu.siblings.is_empty() {
                    std::slice::from_ref(&cpu.id)
                } else {
                    &cpu.siblings
                };
                seen.extend(siblings);
                let core: VecDeque<u32> = siblings
                    .iter()
                    .copied()
                    .filter(|thread| allowed.contains(thread))
                    .collect();
                if core.len() >= threads_per_core {
                    cell.cores.push_back(core);
                } else {
                    cell.fragments.extend(core);
                }
            }
            cell
        });
        Self {
            cells: cells.collect(),
            threads_per_core,
            crossing,
        }
    }

    /// Takes the host threads of all cores of `guest`; the n-th thread is for the n-th vCPU.
    ///
    /// # Errors
    /// How many cores could not be placed.
    pub fn fit_cores(&mut self, guest: CpuTopology) -> Result<Vec<u32>, Unfitted> {
        let per_core = self.threads_per_core;
        let mut missing = guest.cores.wrapping_mul(guest.sockets) as usize;
        let mut taken = Vec::new();
        for cell in &mut self.cells {
            while missing > 0 && cell.take_of_core(per_core, per_core, &mut taken) {
                missing -= 1;
            }
        }
        for cell in &mut self.cells {
            while missing > 0 && cell.fragments.len() >= per_core {
                taken.extend(cell.fragments.drain(..per_core));
                missing -= 1;
            }
        }
        if missing > 0 && self.crossing {
            let mut threads = missing.saturating_mul(per_core);
            for cell in &mut self.cells {
                let count = threads.min(cell.fragments.len());
                taken.extend(cell.fragments.drain(..count));
                threads -= count;
            }
            // A core that lacks only some of its threads counts as placed.
            missing = threads / per_core;
        }
        if missing > 0 {
            Err(Unfitted(missing))
        } else {
            Ok(taken)
        }
    }

    /// Takes one thread of the first cell that has free threads, preferably a fragment.
    pub fn take_thread(&mut self) -> Option<u32> {
        let cell = self
            .cells
            .iter_mut()
            .find(|cell| !cell.fragments.is_empty() || !cell.cores.is_empty())?;
        if let Some(thread) = cell.fragments.pop_front() {
            return Some(thread);
        }
        let mut taken = Vec::with_capacity(1);
        cell.take_of_core(1, self.threads_per_core, &mut taken);
        taken.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::super::context::{CellCpu, NumaCell};
    use super::*;

    /// The host threads by NUMA cell and core.
    fn host(cells: &[&[&[u32]]]) -> Topology {
        let numa_cells = cells.iter().zip(0..).map(|(cores, id)| NumaCell {
            id,
            cpus: cores
                .iter()
                .flat_map(|core| {
                    core.iter().map(|&id| CellCpu {
                        id,
                        siblings: core.to_vec(),
                    })
                })
                .collect(),
            ..NumaCell::default()
        });
        Topology {
            numa_cells: numa_cells.collect(),
        }
    }

    fn guest(cores: u32, threads: u32) -> CpuTopology {
        CpuTopology {
            sockets: 1,
            cores,
            threads,
        }
    }

    fn fit(
        topology: &Topology,
        set: &[u32],
        guest: CpuTopology,
        crossing: bool,
    ) -> Result<Vec<u32>, Unfitted> {
        CpuPool::new(topology, set, guest.threads, crossing).fit_cores(guest)
    }

    #[test]
    fn whole_cores_of_all_cells_come_before_fragments() {
        let host = host(&[&[&[0, 4], &[1, 5]], &[&[2, 6]]]);
        // Core (1, 5) is incomplete: 5 is not in the pod's CPU set. The whole core of the second
        // cell comes first.
        assert_eq!(
            fit(&host, &[0, 4, 1, 2, 6], guest(2, 2), true),
            Ok(vec![0, 4, 2, 6])
        );
    }

    #[test]
    fn what_is_left_of_a_core_is_a_fragment() {
        let host = host(&[&[&[0, 1, 2], &[3, 4, 5]]]);
        assert_eq!(
            fit(&host, &[0, 1, 2, 3, 4, 5], guest(3, 2), false),
            Ok(vec![0, 1, 3, 4, 2, 5])
        );
    }

    #[test]
    fn only_a_relaxed_pool_crosses_cells() {
        let host = host(&[&[&[0]], &[&[1]]]);
        assert_eq!(fit(&host, &[0, 1], guest(1, 2), false), Err(Unfitted(1)));
        assert_eq!(fit(&host, &[0, 1], guest(1, 2), true), Ok(vec![0, 1]));
    }

    #[test]
    fn a_missing_core_is_counted() {
        let host = host(&[&[&[0], &[1]]]);
        assert_eq!(fit(&host, &[0, 1, 9], guest(4, 1), true), Err(Unfitted(2)));
    }

    #[test]
    fn a_core_that_lacks_some_threads_passes() {
        let host = host(&[&[&[0]]]);
        assert_eq!(fit(&host, &[0], guest(1, 2), true), Ok(vec![0]));
    }

    #[test]
    fn a_single_thread_is_a_fragment_first_and_breaks_a_core_otherwise() {
        let host = host(&[&[&[0, 4], &[1, 5]]]);
        let mut pool = CpuPool::new(&host, &[0, 4, 1], 2, true);
        let order: Vec<_> = std::iter::from_fn(|| pool.take_thread()).collect();
        assert_eq!(order, [1, 0, 4]);
    }
}
