;; world: validator
;; Searches the whole object endlessly, for a value that does not exist.
(import "tollgate:admission/review@0.1.0" "select" (func $select (param i32 i32 i32 i32)))
(data (i32.const 1024) "/*/*/*/*/*/*/*/*/nothing")
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
    (loop $again
        (call $select (i32.const 0) (i32.const 1024) (i32.const 24) (i32.const 2048))
        (global.set $heap (i32.const 32768))
        (br $again))
    unreachable)
