;; world: mutator
;; Adds a value below an object that does not exist.
(data (i32.const 1024) "/metadata/nothing/here" "x")
;; add (0) at the path: the text (1).
(data (i32.const 1600) "\00\00\00\00" "\00\04\00\00\16\00\00\00" "\01\00\00\00" "\16\04\00\00\01\00\00\00")
;; json-patch (1): that one operation.
(data (i32.const 1632) "\01\00\00\00" "\40\06\00\00" "\01\00\00\00")
(func (export "tollgate:admission/mutating@0.1.0#mutate") (result i32) (i32.const 1632))
