;; world: validator
;; Reads the whole object as text, endlessly.
(import "tollgate:admission/review@0.1.0" "get-json" (func $get_json (param i32 i32 i32 i32)))
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
    (loop $again
        (call $get_json (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 2048))
        (global.set $heap (i32.const 32768))
        (br $again))
    unreachable)
