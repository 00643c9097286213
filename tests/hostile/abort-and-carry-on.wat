;; world: validator
;; Calls `abort` in an endless loop.
(import "tollgate:admission/logging@0.1.0" "abort" (func $abort (param i32 i32 i32 i32 i32 i32 i32)))
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
    (loop $again
        (call $abort (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))
        (br $again))
    unreachable)
