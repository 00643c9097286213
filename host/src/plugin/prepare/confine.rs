//! Takes from a child what preparing a plugin does not need: files, the network, other processes, priority at the
//! out-of-memory killer, and more than its share of CPU time and memory.
//!
//! The kernel's system calls are what a process can do harm with, so most are switched off (seccomp): whatever is not
//! listed in [`allowed`] does not exist for the child. Paths cannot be opened, so there is nothing left for Landlock to
//! forbid.

use rustix::process::{Resource, Rlimit, setrlimit};

/// Between the CPU limit's warning and its kill.
const CPU_GRACE_SECONDS: u64 = 2;
/// Files that a child may have open: its pipes, and one for each memory that a component starts from.
const OPEN_FILES: u64 = 256;

/// Confines this process, which has to have one thread only. Says what the system does not offer, and why.
///
/// # Errors
/// When a limit of CPU time or memory cannot be set: every system has them.
pub(super) fn confine(cpu_seconds: u64, memory_bytes: u64) -> anyhow::Result<Vec<String>> {
    let limit = |soft: u64, hard: u64| Rlimit {
        current: Some(soft),
        maximum: Some(hard),
    };
    setrlimit(Resource::Core, limit(0, 0))?;
    setrlimit(
        Resource::Cpu,
        limit(cpu_seconds, cpu_seconds + CPU_GRACE_SECONDS),
    )?;
    // Data, not address space: what a memory reserves and never touches costs nothing.
    setrlimit(Resource::Data, limit(memory_bytes, memory_bytes))?;
    setrlimit(Resource::Nofile, limit(OPEN_FILES, OPEN_FILES))?;
    let mut missing = Vec::new();
    let mut without = |what: &str, result: Result<(), String>| {
        if let Err(error) = result {
            missing.push(format!("{what}: {error}"));
        }
    };
    without("inherited files stay open", system::close_inherited_files());
    without(
        "the out-of-memory killer treats it like the host",
        system::go_first_for_want_of_memory(),
    );
    without("its system calls are not filtered", system::filter_calls());
    Ok(missing)
}

#[cfg(target_os = "linux")]
mod system {
    use std::collections::BTreeMap;

    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule,
    };

    /// What a child needs: memory, threads, time, its pipes, and to end.
    #[rustfmt::skip]
    const ALLOWED: &[libc::c_long] = &[
        // Its pipes, and files in memory that a component's memories start from.
        libc::SYS_read, libc::SYS_readv, libc::SYS_write, libc::SYS_writev, libc::SYS_close, libc::SYS_fstat,
        libc::SYS_lseek, libc::SYS_fcntl, libc::SYS_memfd_create, libc::SYS_ftruncate, libc::SYS_pread64,
        libc::SYS_pwrite64,
        // Memory.
        libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_mprotect, libc::SYS_madvise, libc::SYS_brk,
        libc::SYS_membarrier, libc::SYS_sysinfo,
        // Threads.
        libc::SYS_futex, libc::SYS_set_robust_list, libc::SYS_rseq, libc::SYS_sched_yield,
        libc::SYS_sched_getaffinity, libc::SYS_gettid, libc::SYS_getpid, libc::SYS_exit,
        // Time, and chance for hash tables.
        libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_clock_nanosleep, libc::SYS_nanosleep,
        libc::SYS_gettimeofday, libc::SYS_restart_syscall, libc::SYS_getrandom,
        // Signals: wasmtime reads traps off them.
        libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_sigaltstack,
        // The end.
        libc::SYS_exit_group,
    ];
    /// A thread is named, and memory is.
    const PR_SET_NAME: u64 = libc::PR_SET_NAME as u64;
    const PR_SET_VMA: u64 = 0x5356_4d41;
    const CLONE_THREAD: u64 = libc::CLONE_THREAD as u64;

    /// Switches off, for good and for everything that this process starts, what is not allowed. What is not allowed is as
    /// if the kernel did not have it: libraries are prepared for that, and do without.
    pub(super) fn filter_calls() -> Result<(), String> {
        let filter = filter().map_err(|error| error.to_string())?;
        seccompiler::apply_filter(&filter).map_err(|error| match error {
            seccompiler::Error::Prctl(error) => format!("no_new_privs: {error}"),
            seccompiler::Error::Seccomp(error) => format!("seccomp: {error}"),
            error => error.to_string(),
        })
    }

    fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
        use SeccompCmpArgLen::{Dword, Qword};
        use SeccompCmpOp::{Eq, MaskedEq};

        let only = |argument: u8, length, operator, value: u64| {
            SeccompRule::new(vec![SeccompCondition::new(
                argument, length, operator, value,
            )?])
        };
        let own_id = u64::from(std::process::id());
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
            ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
        // Threads and no processes. The newer `clone3` hides its flags from filters; without it, this one is used.
        rules.insert(
            libc::SYS_clone,
            vec![only(0, Qword, MaskedEq(CLONE_THREAD), CLONE_THREAD)?],
        );
        rules.insert(
            libc::SYS_prctl,
            vec![
                only(0, Dword, Eq, PR_SET_NAME)?,
                only(0, Dword, Eq, PR_SET_VMA)?,
            ],
        );
        // Limits are read and not set.
        rules.insert(libc::SYS_prlimit64, vec![only(2, Qword, Eq, 0)?]);
        // `abort` signals its own thread.
        rules.insert(libc::SYS_tgkill, vec![only(0, Dword, Eq, own_id)?]);
        SeccompFilter::new(
            rules,
            SeccompAction::Errno(libc::ENOSYS as u32),
            SeccompAction::Allow,
            std::env::consts::ARCH.try_into()?,
        )?
        .try_into()
    }

    /// With `memory.oom.group` the kernel ends everybody all the same; without, it ends this process and not the host.
    pub(super) fn go_first_for_want_of_memory() -> Result<(), String> {
        std::fs::write("/proc/self/oom_score_adj", "1000")
            .map_err(|error| format!("/proc/self/oom_score_adj: {error}"))
    }

    /// The host opens nothing that a child inherits. What started the host may have.
    #[expect(
        unsafe_code,
        reason = "Rust has no call for files that it does not know of"
    )]
    pub(super) fn close_inherited_files() -> Result<(), String> {
        // SAFETY: nothing in this process uses these descriptors: it has just begun and has opened nothing beyond its
        // standard streams.
        let result = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
        match result {
            0 => Ok(()),
            _ => Err(format!("close_range: {}", std::io::Error::last_os_error())),
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    const NOT_HERE: &str = "only Linux can";

    pub(super) fn filter_calls() -> Result<(), String> {
        Err(NOT_HERE.to_owned())
    }

    pub(super) fn go_first_for_want_of_memory() -> Result<(), String> {
        Err(NOT_HERE.to_owned())
    }

    pub(super) fn close_inherited_files() -> Result<(), String> {
        Err(NOT_HERE.to_owned())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
