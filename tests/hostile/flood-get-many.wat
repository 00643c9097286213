;; world: validator
;; Reads the same value 40,000 times with each call, endlessly.
(import "tollgate:admission/review@0.1.0" "get-many" (func $get_many (param i32 i32 i32 i32)))
(data (i32.const 1024) "/kind")
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
    (local $at i32)
    (drop (memory.grow (i32.const 38)))
    ;; A list of 40,000 pointers, each with the same address and length. The results stay below it.
    (local.set $at (i32.const 2097152))
    (loop $fill
        (i32.store (local.get $at) (i32.const 1024))
        (i32.store (i32.add (local.get $at) (i32.const 4)) (i32.const 5))
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (br_if $fill (i32.lt_u (local.get $at) (i32.const 2417152))))
    (loop $again
        (call $get_many (i32.const 0) (i32.const 2097152) (i32.const 40000) (i32.const 2048))
        (global.set $heap (i32.const 32768))
        (br $again))
    unreachable)
