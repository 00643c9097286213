;; world: validator
;; Denies with 1 MB of text. The host accepts that length, but does not show it all.
(memory (export "memory") 40)
(data (i32.const 1024) "\01\00\00\00" "\00\00\01\00" "\40\42\0f\00")
(func (export "tollgate:admission/validating@0.1.0#validate") (result i32)
    (memory.fill (i32.const 65536) (i32.const 0x6e) (i32.const 1000000))
    (i32.const 1024))
