//! Processor time of processes and threads, as the kernel counts it.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// The kernel's clock tick: `USER_HZ` is 100 on every architecture that Linux still builds for.
const TICK: Duration = Duration::from_millis(10);

/// Returns the time that the threads with this name have spent on a processor. Threads that have ended do not count.
/// The kernel keeps the first 15 bytes of a name.
///
/// # Panics
/// Panics if the process has ended.
#[must_use]
pub fn thread_time(process: u32, name: &str) -> Duration {
    let named = threads(process).into_iter().filter(|thread| {
        let of_thread = std::fs::read_to_string(thread.join("comm"));
        of_thread.is_ok_and(|of_thread| of_thread.trim_end() == name)
    });
    named.map(|thread| scheduled(&thread)).sum()
}

/// Returns the time that the living threads of a process have spent on a processor, more exactly than in clock ticks.
///
/// # Panics
/// Panics if the process has ended.
#[must_use]
pub fn threads_time(process: u32) -> Duration {
    let threads = threads(process);
    threads.iter().map(|thread| scheduled(thread)).sum()
}

/// Returns the folders of a process's threads.
fn threads(process: u32) -> Vec<PathBuf> {
    let folder = format!("/proc/{process}/task");
    let entries = std::fs::read_dir(&folder);
    let entries = entries.unwrap_or_else(|error| panic!("{folder}: {error}"));
    let entries = entries.filter_map(Result::ok);
    entries.map(|entry| entry.path()).collect()
}

/// Returns the time that a process or thread has spent on a processor. Zero if it has ended.
fn scheduled(folder: &Path) -> Duration {
    let text = std::fs::read_to_string(folder.join("schedstat")).unwrap_or_default();
    let nanoseconds = text.split_whitespace().next();
    let nanoseconds = nanoseconds.and_then(|text| text.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or_default())
}

/// Returns the processor time of all children of this process that it has waited for.
///
/// # Panics
/// Panics if the kernel does not tell.
#[must_use]
pub fn time_of_children() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").expect("every process has this file");
    // Skip the name, which may hold anything. cutime and cstime are fields 16 and 17 of the line.
    let behind_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields = behind_name.split_whitespace().skip(13).take(2);
    let ticks: u32 = fields.filter_map(|field| field.parse::<u32>().ok()).sum();
    TICK * ticks
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn time_of_a_named_thread_is_counted() {
        let thread = std::thread::Builder::new().name("spins".to_owned());
        let spin = thread.spawn(|| {
            let began = std::time::Instant::now();
            while began.elapsed() < Duration::from_millis(200) {
                std::hint::spin_loop();
            }
            let own = std::process::id();
            (thread_time(own, "spins"), threads_time(own))
        });
        let spent = spin.expect("a thread can be made").join();
        let (spent, all) = spent.expect("it does not panic");
        assert!(spent > Duration::ZERO && all >= spent, "{spent:?} {all:?}");
        assert_eq!(thread_time(std::process::id(), "nobody"), Duration::ZERO);
    }

    #[test]
    fn time_of_a_child_is_counted() {
        let before = time_of_children();
        let turns = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let ran = Command::new("sh").args(["-c", turns]).status();
        assert!(ran.is_ok_and(|status| status.success()));
        assert!(time_of_children() > before);
    }
}
