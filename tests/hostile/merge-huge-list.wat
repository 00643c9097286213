;; world: mutator
;; Replaces a list of numbers with another one of 1,300,000. Stays within every limit, but is expensive to compare.
(memory (export "memory") 64)
(data (i32.const 65536) "{\"spec\":{\"list\":[0")
;; merge-patch (2): 3,900,021 bytes at 65536.
(data (i32.const 1024) "\02\00\00\00" "\00\00\01\00" "\75\82\3b\00")
(func (export "tollgate:admission/mutating@0.1.0#mutate") (result i32)
    (local $at i32) (local $state i32)
    (local.set $at (i32.const 65554))
    (local.set $state (i32.const 12345))
    (loop $again
        ;; A comma and two digits that follow no order.
        (local.set $state
            (i32.add (i32.mul (local.get $state) (i32.const 1103515245)) (i32.const 12345)))
        (i32.store8 (local.get $at) (i32.const 0x2c))
        (i32.store8 offset=1 (local.get $at)
            (i32.add (i32.const 0x31) (i32.and (i32.shr_u (local.get $state) (i32.const 16)) (i32.const 7))))
        (i32.store8 offset=2 (local.get $at)
            (i32.add (i32.const 0x30) (i32.and (i32.shr_u (local.get $state) (i32.const 20)) (i32.const 7))))
        (local.set $at (i32.add (local.get $at) (i32.const 3)))
        (br_if $again (i32.lt_u (local.get $at) (i32.const 3965554))))
    (i32.store8 (i32.const 3965554) (i32.const 0x5d))
    (i32.store16 (i32.const 3965555) (i32.const 0x7d7d))
    (i32.const 1024))
