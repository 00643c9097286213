;; world: mutator
;; Doubles a label map forty times: operation n copies the whole map into a member of itself. Forty operations of a
;; few bytes would create an object of 2^40 values.
(memory (export "memory") 4)
(data (i32.const 1024) "/metadata/labels" "/metadata/labels/n")
(func (export "tollgate:admission/mutating@0.1.0#mutate") (result i32)
    (local $at i32) (local $left i32)
    (local.set $at (i32.const 65536))
    (local.set $left (i32.const 40))
    (loop $again
        ;; Paths of their own: the eighteen bytes of the second, and a letter that counts.
        (memory.copy (i32.add (local.get $at) (i32.const 32)) (i32.const 1040) (i32.const 18))
        (i32.store8 offset=50 (local.get $at) (i32.add (i32.const 64) (local.get $left)))
        ;; copy (4) from /metadata/labels to there.
        (local.set $at (i32.add (local.get $at) (i32.const 64)))
        (local.set $left (i32.sub (local.get $left) (i32.const 1)))
        (br_if $again (local.get $left)))
    (local.set $at (i32.const 131072))
    (loop $operation
        (i32.store (local.get $at) (i32.const 4))
        (i32.store offset=4 (local.get $at) (i32.const 1024))
        (i32.store offset=8 (local.get $at) (i32.const 16))
        (i32.store offset=12 (local.get $at)
            (i32.add (i32.const 65568)
                (i32.mul (i32.div_u (i32.sub (local.get $at) (i32.const 131072)) (i32.const 24)) (i32.const 64))))
        (i32.store offset=16 (local.get $at) (i32.const 19))
        (local.set $at (i32.add (local.get $at) (i32.const 24)))
        (br_if $operation (i32.lt_u (local.get $at) (i32.const 132032))))
    (i32.store (i32.const 2048) (i32.const 1))
    (i32.store (i32.const 2052) (i32.const 131072))
    (i32.store (i32.const 2056) (i32.const 40))
    (i32.const 2048))
