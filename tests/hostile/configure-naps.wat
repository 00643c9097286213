;; world: with-wasi-clock
;; Sleeps for a millisecond at a time, endlessly.
(import "wasi:clocks/monotonic-clock@0.2.0" "subscribe-duration" (func $subscribe (param i64) (result i32)))
(import "wasi:io/poll@0.2.0" "[method]pollable.block" (func $block (param i32)))
(import "wasi:io/poll@0.2.0" "[resource-drop]pollable" (func $drop (param i32)))
(func (export "tollgate:admission/lifecycle@0.1.0#configure") (param i32 i32) (result i32)
    (local $nap i32)
    (loop $again
        (local.set $nap (call $subscribe (i64.const 1000000)))
        (call $block (local.get $nap))
        (call $drop (local.get $nap))
        (br $again))
    unreachable)
