;; world: validator
;; Logs endlessly.
(import "tollgate:admission/logging@0.1.0" "log" (func $log (param i32 i32 i32)))
(data (i32.const 1024) "again")
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
    (loop $again
        (call $log (i32.const 0) (i32.const 1024) (i32.const 5))
        (br $again))
    unreachable)
