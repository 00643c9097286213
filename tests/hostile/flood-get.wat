;; world: validator
;; Reads the same value endlessly.
(import "tollgate:admission/review@0.1.0" "get" (func $get (param i32 i32 i32 i32)))
(data (i32.const 1024) "/kind")
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
    (loop $again
        (call $get (i32.const 0) (i32.const 1024) (i32.const 5) (i32.const 2048))
        (global.set $heap (i32.const 32768))
        (br $again))
    unreachable)
