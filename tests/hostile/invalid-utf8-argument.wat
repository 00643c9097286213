;; world: validator
;; Reads a value by a pointer that is not valid UTF-8.
(import "tollgate:admission/review@0.1.0" "get" (func $get (param i32 i32 i32 i32)))
(data (i32.const 1024) "/\ff\fe")
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
    (call $get (i32.const 0) (i32.const 1024) (i32.const 3) (i32.const 2048))
    (i32.const 256))
