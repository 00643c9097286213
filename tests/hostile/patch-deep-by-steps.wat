;; world: mutator
;; Nests 1,000 lists by a thousand flat operations. Each one adds a list to the previous list.
(memory (export "memory") 64)
(data (i32.const 1024) "/spec/deep" "[]")
(func (export "tollgate:admission/mutating@0.1.0#mutate") (result i32)
    (local $at i32) (local $length i32)
    ;; One path for all: /spec/deep/0/0/0…, of which each operation takes two bytes more.
    (memory.copy (i32.const 65536) (i32.const 1024) (i32.const 10))
    (local.set $at (i32.const 65546))
    (loop $path
        (i32.store16 (local.get $at) (i32.const 0x302f))
        (local.set $at (i32.add (local.get $at) (i32.const 2)))
        (br_if $path (i32.lt_u (local.get $at) (i32.const 67546))))
    (local.set $at (i32.const 131072))
    (local.set $length (i32.const 10))
    (loop $operation
        ;; add (0) at the path so far: the JSON (0) [].
        (i32.store offset=4 (local.get $at) (i32.const 65536))
        (i32.store offset=8 (local.get $at) (local.get $length))
        (i32.store offset=16 (local.get $at) (i32.const 1034))
        (i32.store offset=20 (local.get $at) (i32.const 2))
        (local.set $length (i32.add (local.get $length) (i32.const 2)))
        (local.set $at (i32.add (local.get $at) (i32.const 24)))
        (br_if $operation (i32.lt_u (local.get $at) (i32.const 155072))))
    (i32.store (i32.const 2048) (i32.const 1))
    (i32.store (i32.const 2052) (i32.const 131072))
    (i32.store (i32.const 2056) (i32.const 1000))
    (i32.const 2048))
