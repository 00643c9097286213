;; world: with-wasi-clock
;; Sleeps for a day in `configure`.
(import "wasi:clocks/monotonic-clock@0.2.0" "subscribe-duration" (func $subscribe (param i64) (result i32)))
(import "wasi:io/poll@0.2.0" "[method]pollable.block" (func $block (param i32)))
(func (export "tollgate:admission/lifecycle@0.1.0#configure") (param i32 i32) (result i32)
    (call $block (call $subscribe (i64.const 86400000000000)))
    (i32.const 256))
