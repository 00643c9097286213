//! Reads the CPU time and the memory of another process. CPU time is in nanoseconds.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Context as _;

/// The CPU time of every thread of a process at one moment.
///
/// The times are those of the scheduler, in nanoseconds. For a thread that is running at this moment, the last few
/// milliseconds may be missing. This applies at the start and at the end of a measurement.
pub struct CpuTimes(HashMap<String, u64>);

/// Resident memory of a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Resident memory now.
    pub resident_bytes: u64,
    /// Peak resident memory.
    pub peak_bytes: u64,
}

// === impl CpuTimes ===

impl CpuTimes {
    /// Reads the CPU times.
    ///
    /// # Errors
    /// Fails if there is no such process, or if the kernel does not count them.
    pub fn of(process: u32) -> anyhow::Result<Self> {
        let folder = format!("/proc/{process}/task");
        let threads = std::fs::read_dir(&folder).with_context(|| {
            format!(
                "cannot read {folder}; check that the server is still \
                running"
            )
        })?;
        let mut times = HashMap::new();
        for thread in threads {
            let thread = thread?;
            let file = thread.path().join("schedstat");
            // A thread may have ended since the folder was listed.
            let Ok(text) = std::fs::read_to_string(&file) else {
                continue;
            };
            let nanoseconds = text.split_whitespace().next();
            let nanoseconds = nanoseconds
                .and_then(|number| number.parse().ok())
                .with_context(|| format!("{} does not begin with a number", file.display()))?;
            times.insert(
                thread.file_name().to_string_lossy().into_owned(),
                nanoseconds,
            );
        }
        anyhow::ensure!(
            !times.is_empty(),
            "{folder} has no thread with a `schedstat`; use a kernel with CONFIG_SCHED_INFO"
        );
        Ok(Self(times))
    }

    /// Returns the CPU time of all threads since `earlier`. Threads that have ended meanwhile count as zero. These are
    /// tokio's threads, which end after ten idle seconds.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Duration {
        let used = self.0.iter().map(|(thread, now)| {
            let before = earlier.0.get(thread).copied().unwrap_or_default();
            now.saturating_sub(before)
        });
        Duration::from_nanos(used.sum())
    }
}

// === impl Memory ===

impl Memory {
    /// Reads the memory of a process.
    ///
    /// # Errors
    /// Fails if the process has ended.
    pub fn of(process: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{process}/status");
        let status = std::fs::read_to_string(&path).with_context(|| {
            format!("cannot read {path}; check that the server is still running")
        })?;
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
            let kib = number.and_then(|number| number.trim().parse::<u64>().ok());
            kib.map(|kib| kib * 1024)
                .with_context(|| format!("{path} has no {name} in kB"))
        };
        Ok(Self {
            resident_bytes: bytes("VmRSS:")?,
            peak_bytes: bytes("VmHWM:")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_includes_new_thread() {
        let read = || CpuTimes::of(std::process::id()).unwrap();
        let before = read();
        let enough = Duration::from_millis(30);
        let worked = std::thread::spawn(move || {
            let mut sum = 0_u64;
            while read().since(&before) < enough {
                sum = std::hint::black_box((0..10_000).fold(sum, u64::wrapping_add));
            }
        });
        worked.join().unwrap();
    }

    #[test]
    fn reads_memory_of_process() {
        let memory = Memory::of(std::process::id()).unwrap();
        assert!(memory.resident_bytes > 0);
        assert!(memory.peak_bytes >= memory.resident_bytes);
    }
}
