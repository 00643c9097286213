;; world: mutator
;; Inserts ten thousand elements at the front of a list. Each insert moves all existing elements.
(memory (export "memory") 8)
(data (i32.const 1024) "/spec/list/0" "0")
(func (export "tollgate:admission/mutating@0.1.0#mutate") (result i32)
    (local $at i32)
    (local.set $at (i32.const 65536))
    (loop $again
        ;; add (0) at /spec/list/0: the JSON (0) 0.
        (i32.store offset=4 (local.get $at) (i32.const 1024))
        (i32.store offset=8 (local.get $at) (i32.const 12))
        (i32.store offset=16 (local.get $at) (i32.const 1036))
        (i32.store offset=20 (local.get $at) (i32.const 1))
        (local.set $at (i32.add (local.get $at) (i32.const 24)))
        (br_if $again (i32.lt_u (local.get $at) (i32.const 305536))))
    (i32.store (i32.const 2048) (i32.const 1))
    (i32.store (i32.const 2052) (i32.const 65536))
    (i32.store (i32.const 2056) (i32.const 10000))
    (i32.const 2048))
