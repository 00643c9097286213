;; world: mutator
;; Returns a patch of 100 MB from one page of memory: 25,000 operations with the same 4 kB.
(memory (export "memory") 16)
(func (export "tollgate:admission/mutating@0.1.0#mutate") (result i32)
    (local $at i32)
    (memory.fill (i32.const 4096) (i32.const 0x61) (i32.const 4000))
    (local.set $at (i32.const 65536))
    (loop $again
        ;; add (0) at a path of no length: the text (1) of 4,000 bytes at 4096.
        (i32.store offset=12 (local.get $at) (i32.const 1))
        (i32.store offset=16 (local.get $at) (i32.const 4096))
        (i32.store offset=20 (local.get $at) (i32.const 4000))
        (local.set $at (i32.add (local.get $at) (i32.const 24)))
        (br_if $again (i32.lt_u (local.get $at) (i32.const 665536))))
    (i32.store (i32.const 1024) (i32.const 1))
    (i32.store (i32.const 1028) (i32.const 65536))
    (i32.store (i32.const 1032) (i32.const 25000))
    (i32.const 1024))
