;; world: mutator
;; Returns a million `test` operations with the same small value, from 24 MB of its own memory.
(memory (export "memory") 400)
(data (i32.const 1024) "/kind" "\"Pod\"")
(func (export "tollgate:admission/mutating@0.1.0#mutate") (result i32)
    (local $at i32)
    (local.set $at (i32.const 65536))
    (loop $again
        ;; test (5) at /kind: the JSON (0) "Pod".
        (i32.store (local.get $at) (i32.const 5))
        (i32.store offset=4 (local.get $at) (i32.const 1024))
        (i32.store offset=8 (local.get $at) (i32.const 5))
        (i32.store offset=16 (local.get $at) (i32.const 1029))
        (i32.store offset=20 (local.get $at) (i32.const 5))
        (local.set $at (i32.add (local.get $at) (i32.const 24)))
        (br_if $again (i32.lt_u (local.get $at) (i32.const 24065536))))
    (i32.store (i32.const 2048) (i32.const 1))
    (i32.store (i32.const 2052) (i32.const 65536))
    (i32.store (i32.const 2056) (i32.const 1000000))
    (i32.const 2048))
