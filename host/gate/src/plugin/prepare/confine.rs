//! Confines a child to the rights that preparing a plugin needs.
//!
//! A child loses access to files, the network and other processes. The out-of-memory killer ends it first. Its CPU time
//! and memory are limited.
//!
//! Only system calls let a process do harm, so most are switched off (seccomp). A system call that is not in `ALLOWED`
//! does not exist for the child. Since the child cannot open paths, Landlock would have nothing left to forbid.

use rustix::process::{Resource, Rlimit, setrlimit};

/// Seconds between the warning signal of the CPU limit and the kill.
const CPU_GRACE_SECONDS: u64 = 2;
/// Number of files that a child may have open: its pipes, and one for each memory that a component starts from.
const OPEN_FILES: u64 = 256;

/// Confines this process, which must have only one thread. Returns the protections that the system does not offer, each
/// with the reason.
///
/// # Errors
/// When a limit of CPU time or memory cannot be set: every system has these limits.
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
    // Limit the data size, not the address space: reserved memory that is never touched costs nothing.
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
        "the out-of-memory killer treats the child like the host",
        system::go_first_for_want_of_memory(),
    );
    without("system calls are not filtered", system::filter_calls());
    Ok(missing)
}

#[cfg(target_os = "linux")]
mod system {
    use std::collections::BTreeMap;

    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule,
    };

    /// System calls that a child needs for memory, threads, time, its pipes, and its own exit.
    #[rustfmt::skip]
    const ALLOWED: &[libc::c_long] = &[
        // Pipes, and in-memory files that a component's memories start from.
        libc::SYS_read, libc::SYS_readv, libc::SYS_write, libc::SYS_writev, libc::SYS_close, libc::SYS_fstat,
        libc::SYS_lseek, libc::SYS_fcntl, libc::SYS_memfd_create, libc::SYS_ftruncate, libc::SYS_pread64,
        libc::SYS_pwrite64,
        // Memory management.
        libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_mprotect, libc::SYS_madvise, libc::SYS_brk,
        libc::SYS_membarrier, libc::SYS_sysinfo,
        // Threads and their synchronisation.
        libc::SYS_futex, libc::SYS_set_robust_list, libc::SYS_rseq, libc::SYS_sched_yield,
        libc::SYS_sched_getaffinity, libc::SYS_gettid, libc::SYS_getpid, libc::SYS_exit,
        // Time, and random numbers for hash tables.
        libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_clock_nanosleep, libc::SYS_nanosleep,
        libc::SYS_gettimeofday, libc::SYS_restart_syscall, libc::SYS_getrandom,
        // Signals, through which wasmtime catches traps.
        libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_sigaltstack,
        // Exit of the process.
        libc::SYS_exit_group,
    ];
    /// `prctl` operations that are allowed: naming a thread and naming memory.
    const PR_SET_NAME: u64 = libc::PR_SET_NAME as u64;
    const PR_SET_VMA: u64 = 0x5356_4d41;
    const CLONE_THREAD: u64 = libc::CLONE_THREAD as u64;

    /// Switches off all system calls that are not allowed, permanently, for this process and everything that it starts.
    ///
    /// A forbidden system call fails as if the kernel did not have it. Libraries are prepared for that and do without
    /// the call.
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
        // Allow new threads, but no new processes. `clone3` hides its flags from filters; without it, libraries use
        // `clone`.
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
        // Allow reading limits, but not setting them.
        rules.insert(libc::SYS_prlimit64, vec![only(2, Qword, Eq, 0)?]);
        // Allow signals to this process only: `abort` signals its own thread.
        rules.insert(libc::SYS_tgkill, vec![only(0, Dword, Eq, own_id)?]);
        SeccompFilter::new(
            rules,
            SeccompAction::Errno(libc::ENOSYS as u32),
            SeccompAction::Allow,
            std::env::consts::ARCH.try_into()?,
        )?
        .try_into()
    }

    /// Makes the out-of-memory killer end this process before the host.
    ///
    /// With `memory.oom.group` the kernel ends all processes of the group anyway.
    pub(super) fn go_first_for_want_of_memory() -> Result<(), String> {
        std::fs::write("/proc/self/oom_score_adj", "1000")
            .map_err(|error| format!("/proc/self/oom_score_adj: {error}"))
    }

    /// Closes inherited files. The host opens none that a child inherits, but the process that started the host may
    /// have.
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
    const NOT_HERE: &str = "only Linux supports this";

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
