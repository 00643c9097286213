;; world: mutator
;; Adds a value that is two JSON documents.
(data (i32.const 1024) "/spec/hostile" "1 2")
;; add (0) at the path: the JSON (0).
(data (i32.const 1600) "\00\00\00\00" "\00\04\00\00\0d\00\00\00" "\00\00\00\00" "\0d\04\00\00\03\00\00\00")
;; json-patch (1): that one operation.
(data (i32.const 1632) "\01\00\00\00" "\40\06\00\00" "\01\00\00\00")
(func (export "tollgate:admission/mutating@0.1.0#mutate") (result i32) (i32.const 1632))
