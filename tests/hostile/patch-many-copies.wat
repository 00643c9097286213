;; world: mutator
;; Copies the whole spec to the same place ten thousand times. The object stays small, but the work does not.
(memory (export "memory") 8)
(data (i32.const 1024) "/spec" "/copy")
(func (export "tollgate:admission/mutating@0.1.0#mutate") (result i32)
    (local $at i32)
    (local.set $at (i32.const 65536))
    (loop $again
        ;; copy (4) from /spec to /copy.
        (i32.store (local.get $at) (i32.const 4))
        (i32.store offset=4 (local.get $at) (i32.const 1024))
        (i32.store offset=8 (local.get $at) (i32.const 5))
        (i32.store offset=12 (local.get $at) (i32.const 1029))
        (i32.store offset=16 (local.get $at) (i32.const 5))
        (local.set $at (i32.add (local.get $at) (i32.const 24)))
        (br_if $again (i32.lt_u (local.get $at) (i32.const 305536))))
    (i32.store (i32.const 2048) (i32.const 1))
    (i32.store (i32.const 2052) (i32.const 65536))
    (i32.store (i32.const 2056) (i32.const 10000))
    (i32.const 2048))
