;; world: mutator
;; Adds 1,000 nested lists.
(memory (export "memory") 3)
(data (i32.const 1024) "/spec/deep")
;; add (0) at the path: the JSON (0) of 2,000 bytes at 65536.
(data (i32.const 1064) "\00\00\00\00" "\00\04\00\00\0a\00\00\00" "\00\00\00\00" "\00\00\01\00" "\d0\07\00\00")
(data (i32.const 1100) "\01\00\00\00" "\28\04\00\00" "\01\00\00\00")
(func (export "tollgate:admission/mutating@0.1.0#mutate") (result i32)
    (memory.fill (i32.const 65536) (i32.const 0x5b) (i32.const 1000))
    (memory.fill (i32.const 66536) (i32.const 0x5d) (i32.const 1000))
    (i32.const 1100))
