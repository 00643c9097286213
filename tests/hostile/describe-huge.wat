;; world: validator
;; Returns a manifest of 20 MB.
(memory (export "memory") 400)
(data (i32.const 1024) "\00\00\01\00\00\00\31\01")
(func (export "tollgate:admission/lifecycle@0.1.0#describe") (result i32) (i32.const 1024))
