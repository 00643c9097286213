;; world: with-wasi-clock
;; Sleeps for a day in its start function.
(import "wasi:clocks/monotonic-clock@0.2.0" "subscribe-duration" (func $subscribe (param i64) (result i32)))
(import "wasi:io/poll@0.2.0" "[method]pollable.block" (func $block (param i32)))
(start $sleep)
(func $sleep (call $block (call $subscribe (i64.const 86400000000000))))
