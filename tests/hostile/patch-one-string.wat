;; world: mutator
;; Returns one operation with a text of 100 MB. Its memory limit allows that.
(memory (export "memory") 1700)
(data (i32.const 1024) "/metadata/annotations")
;; add at that path: the text at 65536.
(data (i32.const 1064) "\00\00\00\00" "\00\04\00\00\15\00\00\00" "\01\00\00\00" "\00\00\01\00" "\00\e1\f5\05")
(data (i32.const 1100) "\01\00\00\00\28\04\00\00\01\00\00\00")
(func (export "tollgate:admission/mutating@0.1.0#mutate") (result i32) (i32.const 1100))
