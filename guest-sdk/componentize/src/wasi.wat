;; A stub of WASI's first preview, as an adapter that wit-component links.
;;
;; The stub is deterministic: each read advances the clock by a microsecond, and randomness comes from a fixed seed. For
;; a file, a socket or an argument, the stub answers that there is none.
(module
  (import "env" "memory" (memory 0))
  (import "tollgate:admission/logging@0.1.0" "abort"
    (func $abort (param i32 i32 i32 i32 i32 i32 i32)))

  (global $now (mut i64) (i64.const 1700000000000000000))
  (global $seed (mut i64) (i64.const 0x9E3779B97F4A7C15))
  ;; The program's buffer for its last words, the size of the buffer, and the length of the text in it.
  (global $words (mut i32) (i32.const 0))
  (global $room (mut i32) (i32.const 0))
  (global $length (mut i32) (i32.const 0))

  ;; Not part of WASI: a program that knows this stub passes a buffer for its standard error.
  (func (export "tollgate_keep_standard_error") (param $at i32) (param $room i32)
    (global.set $words (local.get $at))
    (global.set $room (local.get $room))
    (global.set $length (i32.const 0)))

  ;; Ends the program. The reason of the fault is its last words, or else its exit code.
  (func $end (export "proc_exit") (param $code i32)
    (if (i32.eqz (global.get $length)) (then (call $say_code (local.get $code))))
    (call $abort (global.get $words) (global.get $length)
      (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))
    unreachable)

  ;; Writes the exit code as the last words.
  (func $say_code (param $code i32)
    (local $divisor i32)
    ;; Takes a new page if the program has given no buffer, or one that is too small.
    (if (i32.lt_u (global.get $room) (i32.const 34))
      (then
        (global.set $words (memory.grow (i32.const 1)))
        (if (i32.eq (global.get $words) (i32.const -1)) (then unreachable))
        (global.set $words (i32.shl (global.get $words) (i32.const 16)))))
    ;; `it ended`, ` with ex`, `it code `
    (i64.store align=1 (global.get $words) (i64.const 0x6465646E65207469))
    (i64.store offset=8 align=1 (global.get $words) (i64.const 0x7865206874697720))
    (i64.store offset=16 align=1 (global.get $words) (i64.const 0x2065646F63207469))
    (global.set $length (i32.const 24))
    (local.set $divisor (i32.const 1))
    (loop $wider
      (if (i32.ge_u (i32.div_u (local.get $code) (local.get $divisor)) (i32.const 10))
        (then
          (local.set $divisor (i32.mul (local.get $divisor) (i32.const 10)))
          (br $wider))))
    (loop $digit
      (i32.store8
        (i32.add (global.get $words) (global.get $length))
        (i32.add (i32.const 0x30)
          (i32.rem_u (i32.div_u (local.get $code) (local.get $divisor)) (i32.const 10))))
      (global.set $length (i32.add (global.get $length) (i32.const 1)))
      (local.set $divisor (i32.div_u (local.get $divisor) (i32.const 10)))
      (br_if $digit (local.get $divisor))))

  ;; Whether Go's runtime has just written why it stops. After that text come a trace of all goroutines and a trap
  ;; without a text, and no exit.
  (func $has_given_up (result i32)
    (local $beginning i64)
    (if (i32.lt_u (global.get $length) (i32.const 9)) (then (return (i32.const 0))))
    (if (i32.ne
          (i32.load8_u
            (i32.sub (i32.add (global.get $words) (global.get $length)) (i32.const 1)))
          (i32.const 0x0A))
      (then (return (i32.const 0))))
    (local.set $beginning (i64.load align=1 (global.get $words)))
    (i32.or
      ;; `fatal er`
      (i64.eq (local.get $beginning) (i64.const 0x7265206C61746166))
      ;; `panic: `
      (i64.eq
        (i64.and (local.get $beginning) (i64.const 0x00FFFFFFFFFFFFFF))
        (i64.const 0x00203A63696E6170))))

  (func (export "fd_write") (param $fd i32) (param $vectors i32) (param $count i32) (param $written i32) (result i32)
    (local $at i32) (local $size i32) (local $kept i32) (local $sum i32)
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $count)))
        (local.set $at (i32.load (local.get $vectors)))
        (local.set $size (i32.load offset=4 (local.get $vectors)))
        (local.set $sum (i32.add (local.get $sum) (local.get $size)))
        (if (i32.eq (local.get $fd) (i32.const 2))
          (then
            (local.set $kept (i32.sub (global.get $room) (global.get $length)))
            (if (i32.gt_u (local.get $kept) (local.get $size))
              (then (local.set $kept (local.get $size))))
            (memory.copy
              (i32.add (global.get $words) (global.get $length)) (local.get $at) (local.get $kept))
            (global.set $length (i32.add (global.get $length) (local.get $kept)))
            (if (call $has_given_up) (then (call $end (i32.const 2))))))
        (local.set $vectors (i32.add (local.get $vectors) (i32.const 8)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $next)))
    (i32.store (local.get $written) (local.get $sum))
    i32.const 0)

  (func (export "clock_time_get") (param $clock i32) (param $precision i64) (param $time i32) (result i32)
    (global.set $now (i64.add (global.get $now) (i64.const 1000)))
    (i64.store (local.get $time) (global.get $now))
    i32.const 0)
  (func (export "clock_res_get") (param $clock i32) (param $resolution i32) (result i32)
    (i64.store (local.get $resolution) (i64.const 1000))
    i32.const 0)

  (func (export "random_get") (param $at i32) (param $count i32) (result i32)
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $count)))
        (global.set $seed
          (i64.add
            (i64.mul (global.get $seed) (i64.const 6364136223846793005))
            (i64.const 1442695040888963407)))
        (i32.store8 (local.get $at) (i32.wrap_i64 (i64.shr_u (global.get $seed) (i64.const 33))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $next)))
    i32.const 0)

  ;; Returns one event: that of the first subscription. If it is a clock's, its time has come.
  (func (export "poll_oneoff") (param $subscriptions i32) (param $events i32) (param $count i32) (param $happened i32)
    (result i32)
    (local $time i64)
    (if (i32.eqz (i32.load8_u offset=8 (local.get $subscriptions)))
      (then
        (local.set $time (i64.load offset=24 (local.get $subscriptions)))
        (if (i32.and (i32.load16_u offset=40 (local.get $subscriptions)) (i32.const 1))
          (then
            (if (i64.lt_u (global.get $now) (local.get $time))
              (then (global.set $now (local.get $time)))))
          (else (global.set $now (i64.add (global.get $now) (local.get $time)))))))
    (memory.fill (local.get $events) (i32.const 0) (i32.const 32))
    (i64.store (local.get $events) (i64.load (local.get $subscriptions)))
    (i32.store8 offset=10 (local.get $events) (i32.load8_u offset=8 (local.get $subscriptions)))
    (i32.store (local.get $happened) (i32.const 1))
    i32.const 0)
  (func (export "sched_yield") (result i32) i32.const 0)

  ;; Returns no arguments and no environment.
  (func $none (param $count i32) (param $size i32) (result i32)
    (i32.store (local.get $count) (i32.const 0))
    (i32.store (local.get $size) (i32.const 0))
    i32.const 0)
  (export "args_sizes_get" (func $none))
  (export "environ_sizes_get" (func $none))
  (func $nothing (param i32 i32) (result i32) i32.const 0)
  (export "args_get" (func $nothing))
  (export "environ_get" (func $nothing))

  ;; Standard input is at its end. All three streams are character devices. There is no folder (8 is EBADF).
  (func (export "fd_read") (param i32 i32 i32) (param $read i32) (result i32)
    (i32.store (local.get $read) (i32.const 0))
    i32.const 0)
  (func (export "fd_close") (param i32) (result i32) i32.const 0)
  (func (export "fd_fdstat_get") (param $fd i32) (param $at i32) (result i32)
    (memory.fill (local.get $at) (i32.const 0) (i32.const 24))
    (i32.store8 (local.get $at) (i32.const 2))
    i32.const 0)
  (func (export "fd_fdstat_set_flags") (param i32 i32) (result i32) i32.const 0)
  (func $no_folder_1 (param i32 i32) (result i32) i32.const 8)
  (export "fd_prestat_get" (func $no_folder_1))
  (func (export "fd_prestat_dir_name") (param i32 i32 i32) (result i32) i32.const 8)
  ;; 70 is ESPIPE.
  (func (export "fd_seek") (param i32 i64 i32 i32) (result i32) i32.const 70)

  ;; The other functions do not exist: 52 is ENOSYS.
  (func (export "fd_advise") (param i32 i64 i64 i32) (result i32) i32.const 52)
  (func (export "fd_allocate") (param i32 i64 i64) (result i32) i32.const 52)
  (func (export "fd_datasync") (param i32) (result i32) i32.const 52)
  (func (export "fd_fdstat_set_rights") (param i32 i64 i64) (result i32) i32.const 52)
  (func (export "fd_filestat_get") (param i32 i32) (result i32) i32.const 52)
  (func (export "fd_filestat_set_size") (param i32 i64) (result i32) i32.const 52)
  (func (export "fd_filestat_set_times") (param i32 i64 i64 i32) (result i32) i32.const 52)
  (func (export "fd_pread") (param i32 i32 i32 i64 i32) (result i32) i32.const 52)
  (func (export "fd_pwrite") (param i32 i32 i32 i64 i32) (result i32) i32.const 52)
  (func (export "fd_readdir") (param i32 i32 i32 i64 i32) (result i32) i32.const 52)
  (func (export "fd_renumber") (param i32 i32) (result i32) i32.const 52)
  (func (export "fd_sync") (param i32) (result i32) i32.const 52)
  (func (export "fd_tell") (param i32 i32) (result i32) i32.const 52)
  (func (export "path_create_directory") (param i32 i32 i32) (result i32) i32.const 52)
  (func (export "path_filestat_get") (param i32 i32 i32 i32 i32) (result i32) i32.const 52)
  (func (export "path_filestat_set_times") (param i32 i32 i32 i32 i64 i64 i32) (result i32) i32.const 52)
  (func (export "path_link") (param i32 i32 i32 i32 i32 i32 i32) (result i32) i32.const 52)
  (func (export "path_open") (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32) i32.const 52)
  (func (export "path_readlink") (param i32 i32 i32 i32 i32 i32) (result i32) i32.const 52)
  (func (export "path_remove_directory") (param i32 i32 i32) (result i32) i32.const 52)
  (func (export "path_rename") (param i32 i32 i32 i32 i32 i32) (result i32) i32.const 52)
  (func (export "path_symlink") (param i32 i32 i32 i32 i32) (result i32) i32.const 52)
  (func (export "path_unlink_file") (param i32 i32 i32) (result i32) i32.const 52)
  (func (export "proc_raise") (param i32) (result i32) i32.const 52)
  (func (export "sock_accept") (param i32 i32 i32) (result i32) i32.const 52)
  (func (export "sock_recv") (param i32 i32 i32 i32 i32 i32) (result i32) i32.const 52)
  (func (export "sock_send") (param i32 i32 i32 i32 i32) (result i32) i32.const 52)
  (func (export "sock_shutdown") (param i32 i32) (result i32) i32.const 52))
