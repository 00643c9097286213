;; world: mutator
;; Removes a value a million levels down.
(memory (export "memory") 40)
;; remove (1) at a path of 2,000,000 bytes at 65536.
(data (i32.const 1064) "\01\00\00\00" "\00\00\01\00" "\80\84\1e\00")
(data (i32.const 1100) "\01\00\00\00" "\28\04\00\00" "\01\00\00\00")
(func (export "tollgate:admission/mutating@0.1.0#mutate") (result i32)
    (local $at i32)
    (local.set $at (i32.const 65536))
    (loop $again
        (i32.store16 (local.get $at) (i32.const 0x612f))
        (local.set $at (i32.add (local.get $at) (i32.const 2)))
        (br_if $again (i32.lt_u (local.get $at) (i32.const 2065536))))
    (i32.const 1100))
