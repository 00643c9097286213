;; world: validator
;; Calls `abort` with a reason and a place.
(import "tollgate:admission/logging@0.1.0" "abort" (func $abort (param i32 i32 i32 i32 i32 i32 i32)))
(data (i32.const 1024) "index out of range" "src/policy.rs")
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
    (call $abort (i32.const 1024) (i32.const 18) (i32.const 1) (i32.const 1042) (i32.const 13) (i32.const 42) (i32.const 7))
    (i32.const 256))
