;; world: mutator
;; Adds an annotation. Only hostile on DELETE, where no object exists.
(data (i32.const 1024) "/metadata/annotations" "{\"checked\":\"true\"}")
;; add (0) at the path: the JSON (0).
(data (i32.const 1600) "\00\00\00\00" "\00\04\00\00\15\00\00\00" "\00\00\00\00" "\15\04\00\00\12\00\00\00")
;; json-patch (1): that one operation.
(data (i32.const 1632) "\01\00\00\00" "\40\06\00\00" "\01\00\00\00")
(func (export "tollgate:admission/mutating@0.1.0#mutate") (result i32) (i32.const 1632))
